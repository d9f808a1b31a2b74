//! Names in generated source.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use super::shader;

/// A name as close to the wanted one as WGSL and the names in use allow.
pub fn unique(taken: &mut BTreeSet<String>, wanted: &str) -> String {
    let clean: String = wanted
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    let clean = clean.trim_matches('_').to_string();
    let clean = match clean.chars().next() {
        None => String::from("value"),
        Some(first) if first.is_ascii_digit() => format!("v{clean}"),
        // Not by an underscore alone: naga removes it, and does not know all words that HLSL reserves.
        Some(_) if is_reserved(&clean) => format!("{clean}_value"),
        Some(_) => clean,
    };
    let mut name = clean.clone();
    let mut number = 0;
    while !taken.insert(name.clone()) {
        number += 1;
        name = format!("{clean}_{number}");
    }
    name
}

/// True for a reserved word of WGSL or a name that generated source uses.
fn is_reserved(word: &str) -> bool {
    const WORDS: &str = "alias break case const const_assert continue continuing default diagnostic discard else enable \
        false fn for if let loop override requires return struct switch true var while bool f16 f32 f64 i32 u32 i64 u64 \
        array atomic vec2 vec3 vec4 mat2x2 mat3x3 mat4x4 ptr sampler texture function private workgroup uniform storage \
        read write read_write abs acos asin atan ceil clamp cos cosh cross dot exp exp2 floor fma fract log log2 max min \
        mix modf pow round select sign sin sinh smoothstep sqrt step tan tanh trunc transpose all any null self Self \
        abstract active alignas as asm async await auto become binding_array cast catch class compile concept constexpr \
        crate debugger decltype delete do dynamic_cast enum explicit export extends extern external fallthrough filter \
        final finally friend from fxgroup get goto groupshared highp impl implements import inline instanceof interface \
        layout lowp macro match mediump meta mod module move mut mutable namespace new noexcept noinline nointerpolation \
        noperspective nullptr of operator package packoffset partition pass patch pixelfragment precise precision \
        premerge protected pub public ref regardless register resource restrict set shared sizeof smooth snorm static \
        std subroutine super target template this throw trait try type typedef typeid typename typeof union unless \
        unorm unsafe unsized use using varying virtual volatile wgsl where with yield cast sizes main length index faults";
    static RESERVED: OnceLock<BTreeSet<&str>> = OnceLock::new();
    let reserved = RESERVED.get_or_init(|| WORDS.split_whitespace().collect());
    reserved.contains(word) || shader::is_function(word)
}
