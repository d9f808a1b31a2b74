//! Conversions between dtypes, and copies.

use super::{Composite, StrideRule};
use crate::dtype::DType;

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &[
            "aten::to.dtype(Tensor(a) self, ScalarType dtype, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor(a)",
            "aten::to.dtype_layout(Tensor(a) self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor(a)",
            "aten::to.device(Tensor(a) self, Device device, ScalarType dtype, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor(a)",
            "aten::to.prim_dtype(Tensor(a) self, int? dtype=None, bool non_blocking=False, bool copy=False) -> Tensor(a)",
            "aten::to.prim_Device(Tensor(a) self, Device? device, int? dtype=None, bool non_blocking=False, bool copy=False) -> Tensor(a)",
        ],
        |a| {
            let x = a.tensor("self");
            Ok(x.to(a.dtype("dtype").unwrap_or(x.dtype())))
        },
        &[
            "f32[B, 3], dtype=i64",
            "i64[3], dtype=f16",
            "f32[2], dtype=bool",
            "dtype_layout: f32[2], dtype=f16",
        ],
    )
    .with_strides(StrideRule::ItselfOrNew),
    Composite::one(
        &[
            "aten::_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, bool non_blocking=False, MemoryFormat? memory_format=None) -> Tensor",
        ],
        |a| {
            let x = a.tensor("self");
            Ok(x.to(a.dtype("dtype").unwrap_or(x.dtype())))
        },
        &["f32[B, 3], dtype=i64"],
    )
    .with_strides(StrideRule::Preserve),
    Composite::one(
        &[
            "aten::to.other(Tensor(a) self, Tensor other, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor(a)",
            "aten::type_as(Tensor self, Tensor other) -> Tensor",
        ],
        |a| Ok(a.tensor("self").to(a.tensor("other").dtype())),
        &["other: f32[B, 3], i64[2]"],
    )
    .with_strides(StrideRule::ItselfOrNew),
    Composite::one(
        &["aten::copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor"],
        |a| {
            let x = a.tensor("self");
            Ok(a.tensor("src").to(x.dtype()).expand(x.shape()))
        },
        &["f32[B, 3], i64[3]"],
    ),
    Composite::one(
        &[
            "aten::clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor",
            "aten::_pin_memory(Tensor self, Device? device=None) -> Tensor",
        ],
        |a| Ok(a.tensor("self")),
        &["f32[B, 3]"],
    )
    .with_strides(StrideRule::Preserve),
    Composite::one(
        &[
            "aten::to.prim_other(Tensor(a) self, bool non_blocking=False, bool copy=False) -> Tensor(a)",
            "aten::cpu(Tensor(a) self) -> Tensor(a)",
            "aten::pin_memory(Tensor(a) self, Device? device=None) -> Tensor(a)",
            "aten::cuda(Tensor(a) self) -> Tensor(a)",
        ],
        |a| Ok(a.tensor("self")),
        &["f32[B, 3]"],
    )
    .with_strides(StrideRule::ItselfOrNew),
    Composite::one(
        &[
            "aten::to_dense(Tensor self, ScalarType? dtype=None, *, bool? masked_grad=None) -> Tensor",
        ],
        |a| {
            let x = a.tensor("self");
            Ok(x.to(a.dtype("dtype").unwrap_or(x.dtype())))
        },
        &["f32[3]", "f32[3], i64"],
    ),
    Composite::one(
        &[
            "aten::_autocast_to_full_precision(Tensor(a) self, bool cuda_enabled, bool cpu_enabled) -> Tensor(a)",
        ],
        |a| {
            let x = a.tensor("self");
            Ok(if a.bool("cpu_enabled") {
                x.to_compute()
            } else {
                x
            })
        },
        &["f16[3], False, False", "f16[3], False, True"],
    )
    .with_strides(StrideRule::ItselfOrNew),
    Composite::one(
        &[
            "aten::_autocast_to_reduced_precision(Tensor(a) self, bool cuda_enabled, bool cpu_enabled, ScalarType cuda_dtype, ScalarType cpu_dtype) -> Tensor(a)",
        ],
        |a| {
            let x = a.tensor("self");
            let dtype = a.dtype("cpu_dtype").filter(|_| a.bool("cpu_enabled"));
            Ok(x.to(dtype
                .filter(|_| x.dtype() == DType::F32)
                .unwrap_or(x.dtype())))
        },
        &["f32[3], False, True, f16, bf16"],
    )
    .with_strides(StrideRule::ItselfOrNew),
    Composite::one(
        &["aten::_cast_Float(Tensor self, bool non_blocking=False) -> Tensor"],
        |a| Ok(a.tensor("self").to(DType::F32)),
        &["i64[3]"],
    )
    .with_strides(StrideRule::Preserve),
    Composite::one(
        &["aten::_cast_Double(Tensor self, bool non_blocking=False) -> Tensor"],
        |a| Ok(a.tensor("self").to(DType::F64)),
        &["f32[3]"],
    )
    .with_strides(StrideRule::Preserve),
    Composite::one(
        &["aten::_cast_Half(Tensor self, bool non_blocking=False) -> Tensor"],
        |a| Ok(a.tensor("self").to(DType::F16)),
        &["f32[3]"],
    )
    .with_strides(StrideRule::Preserve),
    Composite::one(
        &["aten::_cast_Long(Tensor self, bool non_blocking=False) -> Tensor"],
        |a| Ok(a.tensor("self").to(DType::I64)),
        &["f32[3]"],
    )
    .with_strides(StrideRule::Preserve),
    Composite::one(
        &["aten::_cast_Int(Tensor self, bool non_blocking=False) -> Tensor"],
        |a| Ok(a.tensor("self").to(DType::I32)),
        &["f32[3]"],
    )
    .with_strides(StrideRule::Preserve),
    Composite::one(
        &["aten::_cast_Short(Tensor self, bool non_blocking=False) -> Tensor"],
        |a| Ok(a.tensor("self").to(DType::I16)),
        &["f32[3]"],
    )
    .with_strides(StrideRule::Preserve),
    Composite::one(
        &["aten::_cast_Char(Tensor self, bool non_blocking=False) -> Tensor"],
        |a| Ok(a.tensor("self").to(DType::I8)),
        &["f32[3]"],
    )
    .with_strides(StrideRule::Preserve),
    Composite::one(
        &["aten::_cast_Byte(Tensor self, bool non_blocking=False) -> Tensor"],
        |a| Ok(a.tensor("self").to(DType::U8)),
        &["f32[3]"],
    )
    .with_strides(StrideRule::Preserve),
];
