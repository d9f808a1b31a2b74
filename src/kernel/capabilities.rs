//! Capabilities of a device, and the types in which it stores elements.

use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};

use super::layout::{Texel, TextureLimits};

/// Properties of a device that planning depends on. Taken from an adapter, or made up for tests.
#[derive(Clone, Debug, PartialEq)]
pub struct Capabilities {
    /// Largest storage buffer binding in bytes.
    pub max_binding_size: u64,
    /// Largest buffer in bytes.
    pub max_buffer_size: u64,
    /// Alignment in bytes of the offset of a storage buffer binding, and of buffers that alias textures.
    pub offset_alignment: u64,
    /// Storage buffers that one kernel may bind.
    pub max_storage_buffers: u32,
    /// Workgroups along one dimension of a dispatch.
    pub max_workgroups: u32,
    /// Invocations of a workgroup.
    pub max_invocations: u32,
    /// Bytes of workgroup memory.
    pub max_workgroup_memory: u32,
    /// 64-bit integers in shaders. Without them `i64` is stored in 32 bits, and inputs and constants are range-checked.
    pub int64: bool,
    /// Double precision in shaders; without it `f64` is rejected.
    pub float64: bool,
    /// Half precision in shaders; without it `f16` is stored and computed in `f32` and rounded at each store.
    pub float16: bool,
    /// Subgroup operations.
    pub subgroups: bool,
    /// Subgroup barriers.
    pub subgroup_barriers: bool,
    /// Invocations of every subgroup; 0 if unknown or not constant.
    pub subgroup_size: u32,
    /// Cooperative matrices; none unless the device was opened with experimental features.
    pub cooperative_matrices: Vec<CooperativeMatrix>,
    /// The adapter is a software rasteriser.
    pub software: bool,
    /// Limits of textures that kernels read.
    pub textures: TextureLimits,
    /// True if textures can alias buffers, so that they are read without a copy: see
    /// [`Access::AliasedTexture`](super::plan::Access::AliasedTexture).
    pub buffer_aliasing: bool,
}

/// Vector widths of a software rasteriser, in lanes, for which there are special kernels.
const SPECIALIZED_LANES: [u32; 2] = [8, 16];

impl Capabilities {
    /// Invocations of a subgroup on a software rasteriser, which runs them as the lanes of a SIMD vector; none on other
    /// devices.
    pub fn simd_lanes(&self) -> Option<usize> {
        let has_simd_lanes =
            self.software && self.subgroups && SPECIALIZED_LANES.contains(&self.subgroup_size);
        has_simd_lanes.then_some(self.subgroup_size as usize)
    }

    /// Address space of the sizes of the device's kernels.
    ///
    /// If loop bounds come from a uniform buffer, lavapipe compiles the kernel again at every dispatch, which takes tens of
    /// milliseconds. A GPU reads a uniform buffer fastest.
    pub fn sizes_space(&self) -> SizesSpace {
        if self.software {
            SizesSpace::Storage
        } else {
            SizesSpace::Uniform
        }
    }
}

/// A size and type of square cooperative matrices, which a subgroup multiplies and accumulates in single precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CooperativeMatrix {
    /// Rows and columns: 8 or 16.
    pub size: u32,
    /// True for factors in half precision, false for single precision.
    pub half: bool,
}

/// Type of a buffer's elements in WGSL. Types narrower than 32 bits that WGSL cannot store are widened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StorageType {
    /// `u32`: `bool` (0 or 1).
    U32,
    /// `i32`: `u8`, `i8`, `i16`, `i32`, and `i64` on devices without 64-bit integers.
    I32,
    /// `i64`
    I64,
    /// `f16`
    F16,
    /// `u32`: two `f16`, the first in the lower half. An invocation that writes one of them must write both.
    F16x2,
    /// `f32`: `f32`, `bf16`, and `f16` on devices without half precision.
    F32,
    /// `f64`
    F64,
}

impl StorageType {
    /// The host dtype whose elements have the same bits.
    pub fn dtype(self) -> DType {
        match self {
            StorageType::U32 | StorageType::I32 => DType::I32,
            StorageType::I64 => DType::I64,
            StorageType::F16 | StorageType::F16x2 => DType::F16,
            StorageType::F32 => DType::F32,
            StorageType::F64 => DType::F64,
        }
    }

    /// The storage type of a dtype on a device. Fails if the device does not support the dtype.
    pub fn of(dtype: DType, capabilities: &Capabilities) -> Result<StorageType> {
        Ok(match dtype {
            DType::Bool => StorageType::U32,
            DType::U8 | DType::I8 | DType::I16 | DType::I32 => StorageType::I32,
            DType::I64 => {
                if capabilities.int64 {
                    StorageType::I64
                } else {
                    StorageType::I32
                }
            }
            DType::F16 => {
                if capabilities.float16 {
                    StorageType::F16
                } else {
                    StorageType::F32
                }
            }
            DType::BF16 | DType::F32 => StorageType::F32,
            DType::F64 if capabilities.float64 => StorageType::F64,
            DType::F64 => {
                return Err(Error::plan("the device has no double precision")
                    .help("run on the host, or convert the model to f32"));
            }
        })
    }

    /// The storage type for `f32` in half precision. A software rasteriser loads two words faster than four `f16`.
    pub fn half(capabilities: &Capabilities) -> StorageType {
        if capabilities.float16 && !capabilities.software {
            StorageType::F16
        } else {
            StorageType::F16x2
        }
    }

    /// The texel type for these elements; none if textures cannot hold them.
    pub fn texel(self) -> Option<Texel> {
        match self {
            StorageType::F16 | StorageType::F16x2 => Some(Texel::F16),
            StorageType::F32 => Some(Texel::F32),
            _ => None,
        }
    }

    /// True for half precision.
    pub fn is_half(self) -> bool {
        matches!(self, StorageType::F16 | StorageType::F16x2)
    }

    /// Name of the type in WGSL.
    pub fn wgsl(self) -> &'static str {
        match self {
            StorageType::U32 | StorageType::F16x2 => "u32",
            StorageType::I32 => "i32",
            StorageType::I64 => "i64",
            StorageType::F16 => "f16",
            StorageType::F32 => "f32",
            StorageType::F64 => "f64",
        }
    }

    /// Bytes of an element.
    pub fn size(self) -> u64 {
        match self {
            StorageType::F16 | StorageType::F16x2 => 2,
            StorageType::U32 | StorageType::I32 | StorageType::F32 => 4,
            StorageType::I64 | StorageType::F64 => 8,
        }
    }
}

/// The name in WGSL, except for packed pairs.
impl fmt::Display for StorageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageType::F16x2 => f.write_str("f16 in pairs"),
            storage => f.write_str(storage.wgsl()),
        }
    }
}

/// Address space of a kernel's sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SizesSpace {
    /// `var<uniform>`
    Uniform,
    /// `var<storage, read>`
    Storage,
}
