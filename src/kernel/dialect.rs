//! Differences between WGSL as naga reads it and WGSL as browsers read it, and limits of naga's back ends.
//!
//! | feature | kernels for naga | kernels within WebGPU's limits |
//! |---|---|---|
//! | `f16` | `enable f16;` by [`enable_directives`] | none: halves are words, read by `unpack2x16float` |
//! | subgroups | no directive, which naga does not have (browsers demand `enable subgroups;`) | none |
//! | cooperative matrices | `enable wgpu_cooperative_matrix;` | none |
//! | 64-bit integers and floats | `i64`, `u64`, `f64` with suffixes `li`, `lu`, `lf` | none: `i64` is stored in 32 bits, `f64` is refused |
//! | bits of doubles | none: `translate` refuses them | none |
//! | literals | every compiler reads the same bits: `literal` | the same |
//! | barriers | in uniform control flow, which both check | the same |
//!
//! The columns follow from [`Capabilities`](super::capabilities::Capabilities): a device within WebGPU's limits has none of the
//! optional features, and naga validates each kernel against those of its device. `.ci/portability` compiles the kernels of
//! the second column with Chromium's compiler.

/// Directives that a kernel's source needs.
pub fn enable_directives(text: &str) -> String {
    let extensions = [
        ("f16", text.contains("<f16")),
        ("wgpu_cooperative_matrix", text.contains("coop_mat")),
    ];
    let directives = extensions.iter().filter(|(_, is_used)| *is_used);
    let directives: String = directives
        .map(|(name, _)| format!("enable {name};\n"))
        .collect();
    if directives.is_empty() {
        directives
    } else {
        directives + "\n"
    }
}
