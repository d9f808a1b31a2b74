//! Cases for every function of one or two elements and for every dtype, from the tables of [`crate::op`].

use crate::dtype::DType;
use crate::kernel::materialization::Precision;
use crate::op::{BinaryFunction, UnaryFunction};

use super::cases::DoctorCase;

/// Number of elements; the last workgroup is not full.
const COUNT: usize = 300;

/// Dtypes of operands of functions, the preferred one first.
const OPERANDS: [DType; 3] = [DType::F32, DType::I32, DType::Bool];

/// Cases of all functions and dtypes.
pub(super) fn cases() -> Vec<DoctorCase> {
    let dtypes = DType::ALL.into_iter();
    let dtypes = dtypes.flat_map(|dtype| [arithmetic(dtype), casts(dtype)]);
    let unary = UnaryFunction::ALL.iter().filter_map(|x| unary(*x));
    let binary = BinaryFunction::ALL.iter().filter_map(|x| binary(*x));
    dtypes.chain(unary).chain(binary).collect()
}

fn case(group: &'static str, name: String, inputs: String, body: String) -> DoctorCase {
    DoctorCase::new(group, name, inputs, &body, Precision::Single)
}

/// Arithmetic in a dtype, between operands of different shapes too.
fn arithmetic(dtype: DType) -> DoctorCase {
    let body = match dtype {
        DType::Bool => {
            "a = logical_and x, y; b = logical_not a; c = aten.logical_xor b, z; d = aten.any.dim c, 1; return b, c, d"
        }
        _ => {
            "a = add x, y; b = mul a, x; c = lt b, y; d = select c, a, b; e = aten.add.Tensor d, z; return a, e"
        }
    };
    let inputs = format!("x: {dtype}[7, 43]; y: {dtype}[7, 43]; z: {dtype}[43]");
    case(
        "dtypes",
        format!("arithmetic in {dtype}"),
        inputs,
        body.into(),
    )
}

/// Casts from a dtype to the others. Only a cast from `f64` needs double precision on the device.
fn casts(dtype: DType) -> DoctorCase {
    let others = DType::ALL.into_iter();
    let others = others.filter(|other| *other != dtype && *other != DType::F64);
    let (mut body, mut results) = (String::new(), Vec::new());
    for other in others {
        body += &format!("to_{other} = aten.to.dtype x, dtype={other}; ");
        results.push(format!("to_{other}"));
    }
    body += &format!("return {}", results.join(", "));
    let inputs = format!(
        "x: {dtype}[{COUNT}] in 0..{}",
        if dtype == DType::Bool { 1 } else { 99 }
    );
    case("dtypes", format!("casts from {dtype}"), inputs, body)
}

/// A function of one element; `None` if no dtype of [`OPERANDS`] has it.
fn unary(function: UnaryFunction) -> Option<DoctorCase> {
    let (name, (low, high)) = (function.name(), function.sample_range());
    let of = |dtype| {
        let inputs = format!("x: {dtype}[{COUNT}] in {low}..{high}");
        case(
            "functions",
            name.into(),
            inputs,
            format!("y = {name} x; return y"),
        )
    };
    OPERANDS
        .into_iter()
        .map(of)
        .find(|case| case.module().is_ok())
}

/// A function of two elements; `None` if no dtype of [`OPERANDS`] has it.
fn binary(function: BinaryFunction) -> Option<DoctorCase> {
    let (name, [(low, high), (lowest, highest)]) = (function.name(), function.sample_ranges());
    let of = |dtype| {
        let inputs = format!(
            "x: {dtype}[{COUNT}] in {low}..{high}; y: {dtype}[{COUNT}] in {lowest}..{highest}"
        );
        case(
            "functions",
            name.into(),
            inputs,
            format!("z = {name} x, y; return z"),
        )
    };
    OPERANDS
        .into_iter()
        .map(of)
        .find(|case| case.module().is_ok())
}
