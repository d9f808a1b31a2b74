//! Translates kernels to the languages of all platforms: SPIR-V for Vulkan, MSL for Metal, HLSL for DX12.
//!
//! wgpu translates only for its own platform. This module translates for all of them on any machine, to find kernels that
//! another platform would reject.

use naga::back::{hlsl, msl, spv};
use naga::valid::ModuleInfo;

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

fn to_spirv(module: &naga::Module, info: &ModuleInfo) -> Result<Vec<u32>> {
    let options = spv::Options {
        lang_version: (1, 3),
        ..Default::default()
    };
    spv::write_vec(module, info, &options, None).map_err(|error| translation_error("SPIR-V", error))
}

fn to_hlsl(module: &naga::Module, info: &ModuleInfo) -> Result<String> {
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

fn to_msl(module: &naga::Module, info: &ModuleInfo) -> Result<String> {
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
