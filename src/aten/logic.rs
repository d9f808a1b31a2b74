//! Logic of truth values and of bits.

use super::Composite;
use super::pointwise::binary;
use crate::op::BinaryFunction;

pub(super) const ROWS: &[Composite] = &[
    Composite::elementwise(
        &["aten::logical_not(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").logical_not()),
        &["f32[B, 3]", "bool[3]"],
    ),
    Composite::elementwise(
        &["aten::logical_and(Tensor self, Tensor other) -> Tensor"],
        |a| Ok(a.tensor("self").logical_and(a.tensor("other"))),
        &["f32[B, 3], i64[3]"],
    ),
    Composite::elementwise(
        &["aten::logical_or(Tensor self, Tensor other) -> Tensor"],
        |a| Ok(a.tensor("self").logical_or(a.tensor("other"))),
        &["f32[B, 3], i64[3]"],
    ),
    Composite::elementwise(
        &["aten::logical_xor(Tensor self, Tensor other) -> Tensor"],
        |a| Ok(a.tensor("self").logical_xor(a.tensor("other"))),
        &["f32[B, 3], i64[3]"],
    ),
    Composite::elementwise(
        &["aten::bitwise_not(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").bitwise_not()),
        &["i64[B, 3]", "bool[3]", "u8[3]"],
    ),
    Composite::elementwise(
        &[
            "aten::bitwise_and.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::bitwise_and.Scalar(Tensor self, Scalar other) -> Tensor",
            "aten::bitwise_and.Scalar_Tensor(Scalar self, Tensor other) -> Tensor",
            "aten::__and__.Scalar(Tensor self, Scalar other) -> Tensor",
            "aten::__and__.Tensor(Tensor self, Tensor other) -> Tensor",
        ],
        |a| binary(a, BinaryFunction::BitwiseAnd),
        &[
            "i64[B, 3], i64[3]",
            "Scalar: bool[3], 1",
            "Scalar_Tensor: 5, i32[3]",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::bitwise_or.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::bitwise_or.Scalar(Tensor self, Scalar other) -> Tensor",
            "aten::bitwise_or.Scalar_Tensor(Scalar self, Tensor other) -> Tensor",
            "aten::__or__.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::__or__.Scalar(Tensor self, Scalar other) -> Tensor",
        ],
        |a| binary(a, BinaryFunction::BitwiseOr),
        &["i64[B, 3], bool[3]", "Scalar: u8[3], 5"],
    ),
    Composite::elementwise(
        &[
            "aten::bitwise_xor.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::bitwise_xor.Scalar(Tensor self, Scalar other) -> Tensor",
            "aten::bitwise_xor.Scalar_Tensor(Scalar self, Tensor other) -> Tensor",
            "aten::__xor__.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::__xor__.Scalar(Tensor self, Scalar other) -> Tensor",
        ],
        |a| binary(a, BinaryFunction::BitwiseXor),
        &["bool[B, 3], bool[3]", "Scalar: i32[3], 5"],
    ),
    Composite::elementwise(
        &[
            "aten::bitwise_left_shift.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::bitwise_left_shift.Tensor_Scalar(Tensor self, Scalar other) -> Tensor",
            "aten::bitwise_left_shift.Scalar_Tensor(Scalar self, Tensor other) -> Tensor",
            "aten::__lshift__.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::__lshift__.Scalar(Tensor self, Scalar other) -> Tensor",
        ],
        |a| binary(a, BinaryFunction::ShiftLeft),
        &[
            "Tensor: i32[3], i32[3]",
            "Tensor_Scalar: i64[B, 3], 3",
            "Scalar_Tensor: 3, i64[3]",
            "__lshift__.Scalar: i32[3], 40",
        ],
    ),
    Composite::elementwise(
        &[
            "aten::bitwise_right_shift.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::bitwise_right_shift.Tensor_Scalar(Tensor self, Scalar other) -> Tensor",
            "aten::bitwise_right_shift.Scalar_Tensor(Scalar self, Tensor other) -> Tensor",
            "aten::__rshift__.Tensor(Tensor self, Tensor other) -> Tensor",
            "aten::__rshift__.Scalar(Tensor self, Scalar other) -> Tensor",
        ],
        |a| binary(a, BinaryFunction::ShiftRight),
        &[
            "Tensor: i32[3], i32[3]",
            "Tensor_Scalar: i64[B, 3], 3",
            "__rshift__.Scalar: i32[3], 40",
        ],
    ),
];
