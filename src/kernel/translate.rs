//! Translates kernels to the languages of all platforms: SPIR-V for Vulkan, MSL for Metal, HLSL for DX12.
//!
//! wgpu translates only for its own platform. This module translates for all of them on any machine, to find kernels that
//! another platform would reject.

use naga::back::{hlsl, msl, spv};
use naga::valid::{FunctionInfo, ModuleInfo};
use naga::{Expression, Function, Module, ScalarKind};

use super::capabilities::Capabilities;
use super::literal;
use super::shader::{parse, validate_module};
use crate::error::{Error, Result};

/// A kernel in every language that supports its features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Translations {
    /// SPIR-V 1.3.
    pub spirv: Vec<u32>,
    /// HLSL for shader model 6.2, the first with half precision; none for a kernel with cooperative matrices, which DX12
    /// does not have.
    pub hlsl: Option<String>,
    /// MSL 2.4; none for a kernel in double precision, which Metal does not have.
    pub msl: Option<String>,
}

/// Validates WGSL for a device with these capabilities and translates it.
///
/// # Errors
/// The WGSL is not valid, compilers may read a literal differently, or a language cannot express the kernel; the message
/// names the language.
pub fn translate(wgsl: &str, capabilities: &Capabilities) -> Result<Translations> {
    let module = parse(wgsl)?;
    literal::check_literals(wgsl)?;
    let info = validate_module(&module, wgsl, capabilities)?;
    let single = Capabilities {
        float64: false,
        ..capabilities.clone()
    };
    let plain = Capabilities {
        cooperative_matrices: Vec::new(),
        ..capabilities.clone()
    };
    let is_cooperative = validate_module(&module, wgsl, &plain).is_err();
    // A kernel that is valid on the device, but not without double precision, uses double precision.
    let is_double = validate_module(&module, wgsl, &single).is_err();
    Ok(Translations {
        spirv: to_spirv(&module, &info)?,
        hlsl: (!is_cooperative)
            .then(|| to_hlsl(&module, &info))
            .transpose()?,
        msl: (!is_double).then(|| to_msl(&module, &info)).transpose()?,
    })
}

fn to_spirv(module: &Module, info: &ModuleInfo) -> Result<Vec<u32>> {
    let options = spv::Options {
        lang_version: (1, 3),
        ..Default::default()
    };
    spv::write_vec(module, info, &options, None).map_err(|error| translation_error("SPIR-V", error))
}

fn to_hlsl(module: &Module, info: &ModuleInfo) -> Result<String> {
    if casts_bits_of_doubles(module, info) {
        let reason = "it casts the bits of a number in double precision";
        return Err(translation_error("HLSL", reason));
    }
    let options = hlsl::Options {
        shader_model: hlsl::ShaderModel::V6_2,
        special_constants_binding: Some(hlsl::BindTarget::default()),
        ..Default::default()
    };
    let mut text = String::new();
    hlsl::Writer::new(&mut text, &options, &Default::default())
        .write(module, info, None)
        .map_err(|error| translation_error("HLSL", error))?;
    Ok(text)
}

/// True if a module casts bits between 64-bit floats and integers. naga's HLSL converts the number instead (naga 30).
fn casts_bits_of_doubles(module: &Module, info: &ModuleInfo) -> bool {
    let functions = module.functions.iter();
    let functions = functions.map(|(handle, function)| (function, &info[handle]));
    let entry_points = module.entry_points.iter().enumerate();
    let entry_points =
        entry_points.map(|(index, entry)| (&entry.function, info.get_entry_point(index)));
    functions
        .chain(entry_points)
        .any(|(function, info)| function_casts_bits_of_doubles(module, function, info))
}

fn function_casts_bits_of_doubles(
    module: &Module,
    function: &Function,
    info: &FunctionInfo,
) -> bool {
    let expressions = function.expressions.iter();
    let mut casts = expressions.filter_map(|(_, expression)| match expression {
        Expression::As {
            expr,
            kind,
            convert: None,
        } => Some((info[*expr].ty.inner_with(&module.types).scalar()?, *kind)),
        _ => None,
    });
    casts.any(|(from, to)| {
        from.width == 8 && (from.kind == ScalarKind::Float) != (to == ScalarKind::Float)
    })
}

fn to_msl(module: &Module, info: &ModuleInfo) -> Result<String> {
    let options = msl::Options {
        lang_version: (2, 4),
        ..Default::default()
    };
    msl::write_string(module, info, &options, &Default::default())
        .map(|(text, _)| text)
        .map_err(|error| translation_error("MSL", error))
}

fn translation_error(language: &str, error: impl std::fmt::Display) -> Error {
    Error::plan(format!("cannot be translated to {language}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(expression: &str) -> Result<Translations> {
        let capabilities = Capabilities {
            int64: true,
            float64: true,
            ..crate::gpu::portable()
        };
        let wgsl = format!(
            "@group(0) @binding(0) var<storage, read_write> x: array<f64>;\n\
             @compute @workgroup_size(1) fn main() {{ x[0] = {expression}; }}"
        );
        translate(&wgsl, &capabilities)
    }

    #[test]
    fn bit_casts_of_doubles_are_refused_for_hlsl() {
        assert!(translated("f64(u64(x[0]))").is_ok());
        for cast in ["bitcast<f64>(bitcast<u64>(x[0]))", "bitcast<f64>(1lu)"] {
            let error = translated(cast).unwrap_err().to_string();
            assert!(error.contains("HLSL: it casts the bits"), "{error}");
        }
    }
}
