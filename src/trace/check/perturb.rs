//! Derives other inputs for a graph from those of the trace: other values, other sizes, extremes.
//!
//! Frozen values and sizes show only with other inputs. Integers keep their range, since they may be indices. Sizes are
//! chosen to satisfy the guards if possible.

use std::collections::BTreeSet;

use super::evaluate::{argument_inputs, signature};
use super::value_changes::{ValueChange, gather_elements};
use crate::dim::{Bindings, Dim, Symbol};
use crate::error::Result;
use crate::ir::{Graph, NamedTree, ValueId};
use crate::item::{Item, flatten_arguments};
use crate::random::Lcg;
use crate::symbols;
use crate::tensor::Tensor;

/// Largest number of constant input sizes that are changed.
const MAX_FIXED_SIZES: usize = 4;

/// Arguments that differ from those of the trace.
#[derive(Clone, Debug)]
pub struct Perturbation {
    /// Says what differs: `size x_0 = 2 becomes 3`.
    pub label: String,
    /// The size that differs; none if only values differ.
    pub size: Option<SizeChange>,
    /// The arguments.
    pub arguments: Vec<Item>,
}

impl Perturbation {
    /// True if a size becomes 0.
    pub(super) fn is_empty_batch(&self) -> bool {
        self.size.as_ref().is_some_and(|change| change.to == 0)
    }
}

/// A size that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeChange {
    /// The original size.
    pub from: i64,
    /// The new size.
    pub to: i64,
    /// The size's symbol in the graph; none if the size is constant.
    pub symbol: Option<Symbol>,
    /// True for the first size of an input, by convention the batch size.
    pub is_batch: bool,
}

/// Generates arguments of the graph's example sizes: floats between -1 and 1, integers 0 and 1.
///
/// # Errors
/// A size of an input has no example value.
pub fn example(graph: &Graph) -> Result<Vec<Item>> {
    let mut random = Lcg(1);
    let tensor = |id: &ValueId| {
        let ty = graph.ty(*id);
        let shape = ty.sizes(&graph.hints)?;
        let count = shape.iter().product();
        match ty.dtype.is_float() {
            true => {
                let data = (0..count).map(|_| random.next() * 2.0 - 1.0).collect();
                Tensor::from_f64(ty.dtype, shape, data)
            }
            false => {
                let data = (0..count).map(|_| i64::from(random.next() < 0.5)).collect();
                Tensor::from_i64(ty.dtype, shape, data)
            }
        }
    };
    let tensors: Vec<Tensor> = argument_inputs(graph)
        .iter()
        .map(tensor)
        .collect::<Result<_>>()?;
    arguments(graph, &tensors)
}

/// Derives arguments with other values and sizes from the given ones.
///
/// # Errors
/// The arguments do not fit the graph's signature.
pub fn perturb(graph: &Graph, given: &[Item]) -> Result<Vec<Perturbation>> {
    let tensors = flatten_arguments(&signature(graph), given)?;
    let mut perturbations = Vec::new();
    for change in ValueChange::ALL {
        let changed: Vec<Tensor> = tensors
            .iter()
            .map(|x| change.apply(x))
            .collect::<Result<_>>()?;
        if changed != tensors {
            perturbations.push(Perturbation {
                label: change.label().to_string(),
                size: None,
                arguments: arguments(graph, &changed)?,
            });
        }
    }
    for resize in resizes(graph, &tensors) {
        let changed: Vec<Tensor> = tensors
            .iter()
            .zip(&resize.shapes)
            .map(|(tensor, shape)| resize_tensor(tensor, shape))
            .collect::<Result<_>>()?;
        perturbations.push(Perturbation {
            label: resize.label,
            size: Some(resize.change),
            arguments: arguments(graph, &changed)?,
        });
    }
    Ok(perturbations)
}

/// Builds arguments of the graph's signature from tensors.
pub fn arguments(graph: &Graph, tensors: &[Tensor]) -> Result<Vec<Item>> {
    let signature = signature(graph);
    let build = |input: &NamedTree| Item::build(&input.tree, tensors, &graph.hints);
    signature.iter().map(build).collect()
}

/// Returns the arguments resized for another value of a symbol; none if they do not fit the signature or the size is
/// invalid.
pub fn resize_arguments(
    graph: &Graph,
    given: &[Item],
    symbol: &Symbol,
    to: i64,
) -> Option<Vec<Item>> {
    let tensors = flatten_arguments(&signature(graph), given).ok()?;
    let mut bindings = bindings(graph, &tensors);
    bindings.insert(symbol.clone(), to);
    let ids = argument_inputs(graph).iter().zip(&tensors);
    let resized = ids.map(|(id, tensor)| {
        let shape = graph.ty(*id).sizes(&bindings).ok()?;
        resize_tensor(tensor, &shape).ok()
    });
    arguments(graph, &resized.collect::<Option<Vec<_>>>()?).ok()
}

/// The values of the symbols for inputs of these sizes.
fn bindings(graph: &Graph, tensors: &[Tensor]) -> Bindings {
    let sizes = argument_inputs(graph)
        .iter()
        .zip(tensors)
        .flat_map(|(id, tensor)| {
            let sizes = tensor.shape().iter().copied();
            graph.ty(*id).shape.iter().zip(sizes)
        });
    symbols::solve(sizes)
}

/// Shapes for all inputs after changing one size.
struct Resize {
    label: String,
    change: SizeChange,
    /// The shape of each input.
    shapes: Vec<Vec<usize>>,
}

/// Returns all resizes of the inputs.
fn resizes(graph: &Graph, tensors: &[Tensor]) -> Vec<Resize> {
    let bindings = bindings(graph, tensors);
    let mut all_resizes: Vec<Resize> = symbols(graph)
        .iter()
        .flat_map(|symbol| resize_symbol(graph, symbol, &bindings))
        .collect();
    all_resizes.extend(
        fixed_sizes(graph)
            .into_iter()
            .filter_map(|size| resize_fixed(graph, size, &bindings)),
    );
    all_resizes
}

/// The symbols in the inputs' types.
fn symbols(graph: &Graph) -> BTreeSet<Symbol> {
    let dims = argument_inputs(graph)
        .iter()
        .flat_map(|id| &graph.ty(*id).shape);
    dims.flat_map(Dim::symbols).collect()
}

/// Returns resizes of a symbol: to another positive size that satisfies the guards, to the next size even if a guard
/// fails, and to 1 and 0 if these satisfy the guards. An empty batch is tried even if a guard refuses it, as long as
/// another size satisfies the guards.
fn resize_symbol(graph: &Graph, symbol: &Symbol, bindings: &Bindings) -> Vec<Resize> {
    let Some(size) = bindings.get(symbol).copied() else {
        return Vec::new();
    };
    let with_size = |to: i64| {
        let mut changed = bindings.clone();
        changed.insert(symbol.clone(), to);
        changed
    };
    let holds = |to: &i64| {
        let changed = with_size(*to);
        graph
            .guards
            .iter()
            .all(|guard| guard.holds(&changed).unwrap_or(false))
    };
    let candidates = [
        size + 1,
        size + 2,
        size * 2,
        size * 3,
        size * 2 + 1,
        size - 1,
    ];
    let is_batch = argument_inputs(graph).iter().any(|id| {
        let first = graph.ty(*id).shape.first();
        first.and_then(Dim::as_symbol) == Some(symbol)
    });
    let valid_size = candidates.into_iter().find(|to| *to > 0 && holds(to));
    let sizes = BTreeSet::from_iter(
        [
            Some(size + 1),
            valid_size,
            Some(1).filter(holds),
            Some(0).filter(|to| is_batch && valid_size.is_some() || holds(to)),
        ]
        .into_iter()
        .flatten(),
    );
    let resize_to = |to: i64| {
        let shapes = argument_inputs(graph)
            .iter()
            .map(|id| graph.ty(*id).sizes(&with_size(to)).ok());
        Some(Resize {
            label: format!("size {symbol} = {size} becomes {to}"),
            change: SizeChange {
                from: size,
                to,
                symbol: Some(symbol.clone()),
                is_batch,
            },
            shapes: shapes.collect::<Option<_>>()?,
        })
    };
    let sizes = sizes.into_iter().filter(|to| *to != size).rev();
    sizes.filter_map(resize_to).collect()
}

/// Returns changes of constant input sizes, first axes first.
fn fixed_sizes(graph: &Graph) -> Vec<SizeChange> {
    let mut sizes = BTreeSet::new();
    for id in argument_inputs(graph) {
        for (axis, size) in graph.ty(*id).shape.iter().enumerate() {
            if let Some(size) = size.as_const().filter(|size| *size > 0) {
                sizes.insert((axis > 0, size));
            }
        }
    }
    let change = |(is_inner, size): (bool, i64)| SizeChange {
        from: size,
        to: size + 1,
        symbol: None,
        is_batch: !is_inner,
    };
    sizes
        .into_iter()
        .map(change)
        .take(MAX_FIXED_SIZES)
        .collect()
}

/// Returns the resize for a change of a constant size; none if a size of an input is unknown.
fn resize_fixed(graph: &Graph, change: SizeChange, bindings: &Bindings) -> Option<Resize> {
    let resized = |(axis, dim): (usize, &Dim)| match dim.as_const() {
        Some(size) if size == change.from && (axis == 0) == change.is_batch => {
            usize::try_from(change.to).ok()
        }
        _ => usize::try_from(dim.eval(bindings).ok()?).ok(),
    };
    let shape = |id: ValueId| {
        let sizes = graph.ty(id).shape.iter().enumerate().map(resized);
        sizes.collect::<Option<Vec<usize>>>()
    };
    let shapes = argument_inputs(graph).iter().map(|id| shape(*id));
    let size_name = if change.is_batch {
        "first size"
    } else {
        "size"
    };
    Some(Resize {
        label: format!("{size_name} {} becomes {}", change.from, change.to),
        shapes: shapes.collect::<Option<_>>()?,
        change,
    })
}

/// Resizes a tensor along every axis: truncates it, or repeats it from its beginning.
fn resize_tensor(tensor: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let source_position = |mut index: usize| {
        let (mut position, mut stride) = (0, 1);
        for (new, old) in shape.iter().zip(tensor.shape()).rev() {
            position += index % new % old.max(&1) * stride;
            index /= new;
            stride *= old;
        }
        position
    };
    let count = shape.iter().product();
    gather_elements(tensor, shape, (0..count).map(source_position))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    fn perturbed(text: &str, inputs: &[Tensor]) -> Vec<(String, Vec<Tensor>)> {
        let graph: Graph = text.parse().unwrap();
        let inputs: Vec<Item> = inputs.iter().cloned().map(Item::Tensor).collect();
        let made = perturb(&graph, &inputs).unwrap().into_iter();
        let tensors = |arguments: &[Item]| -> Vec<Tensor> {
            arguments.iter().flat_map(Item::tensors).cloned().collect()
        };
        made.map(|one| (one.label, tensors(&one.arguments)))
            .collect()
    }

    #[test]
    fn indices_stay_in_range() {
        let text = "graph f(x: i64[S]) -> i64[S] {\n  size S = 3\n  return x\n}";
        let x = Tensor::from_vec([3], vec![5i64, 2, 4]).unwrap();
        for (label, tensors) in perturbed(text, &[x]) {
            let values = tensors[0].to_i64();
            assert!(
                values.iter().all(|value| (2..=5).contains(value)),
                "{label}: {values:?}"
            );
        }
    }

    #[test]
    fn sizes_satisfy_guards_and_stay_consistent() {
        let text = "graph f(x: f32[B, 4], y: f32[2*B]) -> f32[B, 4] {\n  size B = 2\n  \
                    guard 2*floordiv(B, 2) == B\n  return x\n}";
        let x = Tensor::full(DType::F32, [2, 4], 1.0).unwrap();
        let y = Tensor::full(DType::F32, [4], 1.0).unwrap();
        let labels: Vec<(String, Vec<Vec<usize>>)> = perturbed(text, &[x, y])
            .into_iter()
            .filter(|(label, _)| label.starts_with("size"))
            .map(|(label, tensors)| (label, tensors.iter().map(|x| x.shape().to_vec()).collect()))
            .collect();
        let expected = [
            ("size B = 2 becomes 4", [vec![4, 4], vec![8]]),
            ("size B = 2 becomes 3", [vec![3, 4], vec![6]]),
            ("size B = 2 becomes 0", [vec![0, 4], vec![0]]),
            ("size 4 becomes 5", [vec![2, 5], vec![4]]),
        ];
        let expected = expected.map(|(label, shapes)| (label.to_string(), shapes.to_vec()));
        assert_eq!(labels, expected);
    }

    #[test]
    fn tensors_repeat_from_their_beginning() {
        let x = Tensor::from_vec([2, 2], vec![1i64, 2, 3, 4]).unwrap();
        assert_eq!(resize_tensor(&x, &[3, 1]).unwrap().to_i64(), [1, 3, 1]);
        assert_eq!(
            resize_tensor(&x, &[2, 3]).unwrap().to_i64(),
            [1, 2, 1, 3, 4, 3]
        );
    }
}
