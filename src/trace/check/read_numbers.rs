//! Numbers in a graph that were probably read from a tensor.

use super::canonical::{each_node, node_line};
use super::finding::merge_equal;
use super::{Finding, Id};
use crate::aten::{self, ArgumentType};
use crate::ir::{Argument, Graph, GraphModule, Node, Op};
use crate::scalar::Scalar;

/// Largest number of decimal digits of a number that counts as written by hand.
const MAX_WRITTEN_DIGITS: usize = 6;

/// Largest number of significant bits of a number that counts as a binary fraction written by hand.
const MAX_WRITTEN_BITS: u32 = 12;

/// Returns findings for numbers that have all digits of an `f32` and no more. `item()` of a tensor gives such numbers;
/// numbers written in a program have fewer digits, and results of Python's arithmetic have more. A number that is the only
/// element of a weight is not reported, since it does not depend on the inputs.
pub fn read_numbers(graph: &Graph, module: &GraphModule) -> Vec<Finding> {
    let weights = module.weights.values().filter(|weight| weight.numel() == 1);
    let weight_values: Vec<f64> = weights.flat_map(|weight| weight.to_f64()).collect();
    let mut findings = Vec::new();
    each_node(graph, &mut |graph, node, value| {
        for number in number_operands(node) {
            if has_f32_digits(number) && !weight_values.contains(&number) {
                let message = format!("{number:?} in {} has all digits of an f32", node.op.name());
                let finding = Finding::new(Id::ReadNumber, message).at(&node.place);
                findings.push(
                    finding
                        .with_value(value.clone())
                        .details([node_line(graph, node)]),
                );
            }
        }
    });
    merge_equal(findings)
}

/// Numbers that are operands of a node. Parameters such as probabilities and epsilons do not count.
fn number_operands(node: &Node) -> Vec<f64> {
    let Op::Call(name) = &node.op else {
        return Vec::new();
    };
    let Ok(operator) = aten::operator(name) else {
        return Vec::new();
    };
    let pairs = operator.schema.parameters.iter().zip(&node.arguments);
    let operands = pairs.filter(|(parameter, _)| is_operand_type(&parameter.ty));
    let number = |argument: &Argument| match argument {
        Argument::Number(Scalar::Float(number)) => Some(*number),
        _ => None,
    };
    operands
        .filter_map(|(_, argument)| number(argument))
        .collect()
}

/// True for parameters that are operands of the computation.
fn is_operand_type(ty: &ArgumentType) -> bool {
    match ty {
        ArgumentType::Optional(inner) => is_operand_type(inner),
        ty => matches!(ty, ArgumentType::Scalar),
    }
}

/// True if a number is an `f32` with more digits and more bits than a number written by hand.
fn has_f32_digits(number: f64) -> bool {
    let as_f32 = number as f32;
    let mantissa = as_f32.to_bits() & 0x007f_ffff;
    let bits = 24 - mantissa.trailing_zeros().min(23);
    // Limits such as `f32::MAX` have all mantissa bits set. Programs name them.
    let is_limit = mantissa == 0x007f_ffff;
    f64::from(as_f32) == number
        && as_f32.is_normal()
        && !is_limit
        && bits > MAX_WRITTEN_BITS
        && significant_digits(as_f32) > MAX_WRITTEN_DIGITS
}

/// Number of decimal digits that distinguish a number from its neighbours.
fn significant_digits(number: f32) -> usize {
    let text = format!("{number:e}");
    let digits = text.split('e').next().unwrap_or_default();
    digits.chars().filter(char::is_ascii_digit).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_numbers_are_distinguished_from_elements() {
        for read in [
            1.344_085_574_150_085_4,
            0.545_570_194_721_221_9,
            f64::from(-0.002_341_825_5_f32),
        ] {
            assert!(has_f32_digits(read), "{read}");
        }
        let root = 2f64.sqrt();
        let written = [
            0.0,
            0.1,
            f64::from(0.1f32),
            1.702,
            0.044715,
            root,
            1.0 / root,
            0.125,
            1e-5,
            65504.0,
            255.0,
        ];
        let limits = [
            f64::from(f32::MIN),
            f64::from(f32::EPSILON),
            f64::INFINITY,
            f64::NAN,
        ];
        for written in written.into_iter().chain(limits) {
            assert!(!has_f32_digits(written), "{written}");
        }
    }
}
