//! Random arguments for a graph: normally distributed floats, ids within their embeddings, masks of ones.

use std::collections::BTreeMap;

use super::Signature;
use crate::dim::{Bindings, Dim};
use crate::dtype::Category;
use crate::error::Result;
use crate::ir::{Argument, Graph, Node, Op, ValueId};
use crate::scalar::Scalar;
use crate::shape::{TensorType, wrap_dim};
use crate::tensor::{Tensor, numel};

/// Distribution of a random input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputDistribution {
    /// The normal distribution of mean 0 and variance 1.
    Normal,
    /// Uniformly distributed integers from 0 to this, exclusive.
    Below(i64),
    /// Ones.
    Ones,
}

impl InputDistribution {
    /// The distribution for an input, from its name and type.
    ///
    /// Integers are 0 or 1, which most programs accept; [`input_distributions`] finds the ranges of ids in a graph.
    pub fn of(name: &str, ty: &TensorType) -> InputDistribution {
        match ty.dtype.category() {
            _ if name.to_lowercase().contains("mask") => InputDistribution::Ones,
            Category::Float => InputDistribution::Normal,
            _ => InputDistribution::Below(2),
        }
    }

    /// Draws a tensor of a type with constant sizes. Equal seeds give equal tensors.
    ///
    /// # Errors
    /// Fails if a size is symbolic, or memory for the tensor is not available.
    pub fn tensor(self, ty: &TensorType, seed: u64) -> Result<Tensor> {
        let sizes = ty.sizes(&Bindings::new())?;
        let count = numel(&sizes)?;
        let mut random = Random(seed);
        match self {
            InputDistribution::Ones => Tensor::full(ty.dtype, sizes, 1.0),
            InputDistribution::Normal => {
                let data = (0..count).map(|_| random.normal()).collect();
                Tensor::from_f64(ty.dtype, sizes, data)
            }
            InputDistribution::Below(end) => {
                let data = (0..count).map(|_| random.below(end)).collect();
                Tensor::from_i64(ty.dtype, sizes, data)
            }
        }
    }
}

/// The distributions for the inputs of a graph, by signature names. Integers that index an embedding, `index_select`,
/// `gather` or an index operator are drawn within the size of the table.
///
/// # Errors
/// Fails if the size of a table is symbolic without an example.
pub fn input_distributions(graph: &Graph) -> Result<BTreeMap<String, InputDistribution>> {
    // Exclusive upper bounds of integers.
    let mut ends: BTreeMap<ValueId, i64> = BTreeMap::new();
    // Readers follow their operands, so that ranges propagate from the last node to the first.
    for node in graph.nodes.iter().rev() {
        let Op::Call(_) = node.op else { continue };
        if let Some((table, index)) = indexed_table(graph, node) {
            let end = table.eval(&graph.hints)?;
            for id in index {
                narrow(&mut ends, id, end);
            }
        } else if keeps_elements(node) {
            let end = node.results.iter().filter_map(|id| ends.get(id)).min();
            if let (Some(end), Some(id)) = (end.copied(), node.operands().first()) {
                narrow(&mut ends, *id, end);
            }
        }
    }
    let inputs = Signature::of_graph(graph).numbered(true).into_iter();
    let distributions = inputs.filter_map(|(name, index)| {
        let id = graph.inputs.get(index)?;
        let usual = InputDistribution::of(&name, graph.ty(*id));
        let distribution = match (usual, ends.get(id)) {
            (InputDistribution::Below(_), Some(end)) => InputDistribution::Below(*end),
            _ => usual,
        };
        Some((name, distribution))
    });
    Ok(distributions.collect())
}

/// Lowers the exclusive upper bound of a value to `end`, if it is not lower already.
fn narrow(ends: &mut BTreeMap<ValueId, i64>, id: ValueId, end: i64) {
    let known = ends.entry(id).or_insert(end);
    *known = end.min(*known);
}

/// Size of the table that a node indexes, and the index values.
fn indexed_table(graph: &Graph, node: &Node) -> Option<(Dim, Vec<ValueId>)> {
    let argument = |number: usize| node.arguments.get(number);
    let values = |number: usize| argument(number).map(Argument::values).unwrap_or_default();
    let table = *values(0).first()?;
    let size = |dim: i64| {
        let rank = graph.ty(table).rank();
        let axis = wrap_dim(dim, rank).ok()?;
        graph.ty(table).shape.get(axis).cloned()
    };
    let dim = match argument(1) {
        Some(Argument::Number(Scalar::Int(dim))) => *dim,
        _ => 0,
    };
    match node.op.short_name() {
        "embedding" | "embedding_bag" => Some((size(0)?, values(1))),
        "index_select" | "gather" => Some((size(dim)?, values(2))),
        "index" => {
            let Some(Argument::List(items)) = argument(1) else {
                return None;
            };
            let axis = items.iter().position(|item| !item.values().is_empty())?;
            let index = items.get(axis).map(Argument::values)?;
            Some((size(i64::try_from(axis).ok()?)?, index))
        }
        _ => None,
    }
}

/// True for nodes whose results contain only elements of the first operand.
fn keeps_elements(node: &Node) -> bool {
    const NAMES: &[&str] = &[
        "to",
        "_to_copy",
        "type_as",
        "int",
        "long",
        "view",
        "_unsafe_view",
        "reshape",
        "flatten",
        "unflatten",
        "squeeze",
        "unsqueeze",
        "expand",
        "expand_as",
        "repeat",
        "permute",
        "transpose",
        "t",
        "slice",
        "select",
        "narrow",
        "contiguous",
        "clone",
        "detach",
        "alias",
        "clamp",
    ];
    NAMES.contains(&node.op.short_name())
}

/// Pseudo-random numbers (SplitMix64).
struct Random(u64);

impl Random {
    /// The next 64 pseudo-random bits.
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Uniform between 0, exclusive, and 1, inclusive.
    fn uniform(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Normally distributed, by the Box–Muller transform. The second number of each pair is dropped.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// An integer from 0 to `end`, exclusive; 0 if `end` is not positive.
    fn below(&mut self, end: i64) -> i64 {
        let end = u64::try_from(end).unwrap_or(1).max(1);
        i64::try_from(self.bits() % end).unwrap_or(0)
    }
}

/// Derives a seed for a named input from the seed of a call, so that inputs of one type get different numbers.
pub fn seed_of(seed: u64, name: &str) -> u64 {
    let bytes = name.bytes();
    bytes.fold(seed ^ 0x6f6e_696f_6e73_6b69, |hash, byte| {
        Random(hash ^ u64::from(byte)).bits()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_stay_within_their_embedding() {
        let text = "graph forward(ids: i64[1, 5], mask: i64[1, 5], x: f32[2], flag: bool[2]) -> f32[1, 5, 4] {\n  \
                    w: f32[7, 4] = aten.rand [7, 4], none, none, none, none\n  \
                    same: i64[1, 5] = aten.view ids, [1, 5]\n  \
                    e: f32[1, 5, 4] = aten.embedding w, same, -1, false, false\n  return e\n}";
        let graph: Graph = text.parse().unwrap();
        let found = input_distributions(&graph).unwrap();
        assert_eq!(found["ids"], InputDistribution::Below(7));
        assert_eq!(found["mask"], InputDistribution::Ones);
        assert_eq!(found["x"], InputDistribution::Normal);
        assert_eq!(found["flag"], InputDistribution::Below(2));
    }

    #[test]
    fn equal_seeds_give_equal_numbers_of_the_distribution() {
        let ty: TensorType = "f32[1000]".parse().unwrap();
        let x = InputDistribution::Normal.tensor(&ty, 0).unwrap();
        assert_eq!(x, InputDistribution::Normal.tensor(&ty, 0).unwrap());
        assert_ne!(x, InputDistribution::Normal.tensor(&ty, 1).unwrap());
        let values = x.to_f64();
        let mean = values.iter().sum::<f64>() / 1000.0;
        let variance = values.iter().map(|value| value * value).sum::<f64>() / 1000.0;
        assert!(
            mean.abs() < 0.1 && (variance - 1.0).abs() < 0.15,
            "{mean} {variance}"
        );
        let ids: TensorType = "i64[1000]".parse().unwrap();
        let ids = InputDistribution::Below(7)
            .tensor(&ids, 0)
            .unwrap()
            .to_i64();
        assert_eq!((ids.iter().min(), ids.iter().max()), (Some(&0), Some(&6)));
    }
}
