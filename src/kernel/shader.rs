//! Assembles shaders from templates: fills holes, adds library functions, validates.
//!
//! A template in `shaders/` is valid WGSL by itself. A hole is the text between the lines `// <name>` and `// </name>`; this
//! text is the default.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use naga::valid::{Capabilities as Flags, ModuleInfo, ValidationFlags, Validator};

use super::capabilities::Capabilities;
use super::tokens::tokens;
use super::{series, vec4_functions};
use crate::error::{Error, Result};

/// Library files by subject; first those of single precision, then those of double precision.
const LIBRARY: &[&str] = &[
    include_str!("../../shaders/lib/number.wgsl"),
    include_str!("../../shaders/lib/check.wgsl"),
    include_str!("../../shaders/lib/schedule.wgsl"),
    include_str!("../../shaders/lib/half.wgsl"),
    include_str!("../../shaders/lib/words.wgsl"),
    include_str!("../../shaders/lib/texel.wgsl"),
    include_str!("../../shaders/lib/index.wgsl"),
    include_str!("../../shaders/lib/exponential.wgsl"),
    include_str!("../../shaders/lib/logarithm.wgsl"),
    include_str!("../../shaders/lib/power.wgsl"),
    include_str!("../../shaders/lib/trigonometric.wgsl"),
    include_str!("../../shaders/lib/hyperbolic.wgsl"),
    include_str!("../../shaders/lib/division.wgsl"),
    include_str!("../../shaders/lib/erf.wgsl"),
    include_str!("../../shaders/lib/gamma.wgsl"),
    include_str!("../../shaders/lib/zeta.wgsl"),
    include_str!("../../shaders/lib/incomplete_gamma.wgsl"),
    include_str!("../../shaders/lib/bessel.wgsl"),
    include_str!("../../shaders/lib/modified_bessel.wgsl"),
    include_str!("../../shaders/lib/airy.wgsl"),
    include_str!("../../shaders/lib/polynomial.wgsl"),
    include_str!("../../shaders/lib/double/number.wgsl"),
    include_str!("../../shaders/lib/double/exponential.wgsl"),
    include_str!("../../shaders/lib/double/trigonometric.wgsl"),
    include_str!("../../shaders/lib/double/hyperbolic.wgsl"),
    include_str!("../../shaders/lib/double/division.wgsl"),
    include_str!("../../shaders/lib/double/erf.wgsl"),
    include_str!("../../shaders/lib/double/gamma.wgsl"),
];

/// Integer functions. They exist for `i64` as well, with every `i32` replaced by `i64`.
const INTEGERS: &str = include_str!("../../shaders/lib/integer.wgsl");

/// Fills the holes of a template and inserts the library functions that the result uses. A hole without a replacement keeps
/// its default.
pub fn assemble(template: &str, holes: &[(&str, String)]) -> String {
    let mut text = String::new();
    let mut skipping: Option<&str> = None;
    for line in template.lines() {
        let marker = line.trim();
        let marker = marker
            .strip_prefix("// <")
            .and_then(|marker| marker.strip_suffix('>'));
        match (marker, skipping) {
            (Some(name), None) => {
                if let Some((name, body)) = holes.iter().find(|(hole, _)| *hole == name) {
                    text.push_str(body);
                    skipping = Some(name);
                }
            }
            (Some(name), Some(hole)) if name.strip_prefix('/') == Some(hole) => skipping = None,
            (None, None) => {
                text.push_str(line);
                text.push('\n');
            }
            _ => {}
        }
    }
    with_library(&text)
}

/// Inserts the library functions that the text calls, directly or indirectly, before the entry point.
fn with_library(text: &str) -> String {
    let functions = library();
    let mut used = BTreeSet::new();
    let mut worklist = vec![text];
    while let Some(text) = worklist.pop() {
        for word in tokens(text) {
            if let Some(source) = functions.get(word)
                && used.insert(word)
            {
                worklist.push(source);
            }
        }
    }
    let imports: Vec<&str> = used
        .iter()
        .filter_map(|name| functions.get(*name))
        .map(String::as_str)
        .collect();
    match text.find("@compute") {
        Some(place) if !imports.is_empty() => {
            let (head, main) = text.split_at(place);
            format!("{head}{}\n\n{main}", imports.join("\n\n"))
        }
        _ => text.to_string(),
    }
}

/// Library functions by name, each with the comment in front of it, and their vec4 versions.
fn library() -> &'static BTreeMap<String, String> {
    static FUNCTIONS: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| {
        // `31` occurs only as the largest shift.
        let wide = INTEGERS.replace("i32", "i64").replace("31", "63");
        let files = LIBRARY.iter().copied().chain([INTEGERS, &wide]);
        let series = series::all().map(|series| (series.name.to_string(), series.wgsl()));
        let mut library: BTreeMap<String, String> =
            files.flat_map(split_functions).chain(series).collect();
        let vec4_versions = vec4_functions::generate(&library);
        library.extend(vec4_versions);
        library
    })
}

/// True for the name of a library function.
pub fn is_function(name: &str) -> bool {
    library().contains_key(name)
}

/// The name of the vec4 version of a library function; none if it has no such version.
pub fn vec4_version(function: &str) -> Option<String> {
    Some(vec4_functions::vec4_name(function)).filter(|name| is_function(name))
}

/// Names of all library functions.
pub fn library_names() -> impl Iterator<Item = &'static str> {
    library().keys().map(String::as_str)
}

/// Splits a file into functions at blank lines; parts without a function are comments on the file.
fn split_functions(file: &str) -> Vec<(String, String)> {
    file.split("\n\n")
        .filter_map(|part| {
            let part = part.trim_matches('\n');
            let head = part.lines().find_map(|line| line.strip_prefix("fn "))?;
            let name = head.split('(').next()?;
            Some((name.to_string(), part.to_string()))
        })
        .collect()
}

/// Validates WGSL for a device with these capabilities; the message shows the line.
pub fn validate(wgsl: &str, capabilities: &Capabilities) -> Result<()> {
    validate_module(&parse(wgsl)?, wgsl, capabilities).map(drop)
}

pub(super) fn parse(wgsl: &str) -> Result<naga::Module> {
    naga::front::wgsl::parse_str(wgsl).map_err(|error| Error::plan(error.emit_to_string(wgsl)))
}

/// Validates a parsed module and returns the analysis that naga's back ends need.
pub(super) fn validate_module(
    module: &naga::Module,
    wgsl: &str,
    capabilities: &Capabilities,
) -> Result<ModuleInfo> {
    // Every device has packing of two half precision numbers in a word.
    let mut flags = Flags::SHADER_FLOAT16_IN_FLOAT32;
    flags.set(Flags::SHADER_INT64, capabilities.int64);
    flags.set(Flags::FLOAT64, capabilities.float64);
    flags.set(Flags::SHADER_FLOAT16, capabilities.float16);
    flags.set(Flags::SUBGROUP, capabilities.subgroups);
    flags.set(Flags::SUBGROUP_BARRIER, capabilities.subgroup_barriers);
    let has_matrices = !capabilities.cooperative_matrices.is_empty();
    flags.set(Flags::COOPERATIVE_MATRIX, has_matrices);
    Validator::new(ValidationFlags::all(), flags)
        .validate(module)
        .map_err(|error| Error::plan(error.emit_to_string(wgsl)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_filled_or_kept() {
        let template = "a\n// <one>\nb\n// </one>\n// <two>\nc\n// </two>\nd";
        let text = assemble(template, &[("one", "x\n".to_string())]);
        assert_eq!(text, "a\nx\nc\nd\n");
    }

    #[test]
    fn imports_are_transitive() {
        let text = assemble("@compute fn main() { let a = tan_of(1.0); }", &[]);
        assert!(
            text.contains("fn tan_of") && text.contains("fn quarter_turns"),
            "{text}"
        );
    }
}
