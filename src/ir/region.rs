use std::collections::BTreeMap;

use crate::dim::{Dim, Symbol};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::{Shape, TensorType};
use crate::symbols::Symbols;

use super::graph::{Argument, Graph, Op, Region, ValueId};

impl Region {
    /// Result types for arguments of these types; an error says which do not match. `symbols` answers questions about
    /// symbolic sizes and records the answers. Sizes of the bodies follow from their inputs.
    pub fn infer(&self, symbols: &Symbols, arguments: &[TensorType]) -> Result<Vec<TensorType>> {
        match self {
            Region::If { then, otherwise } => infer_if(symbols, [then, otherwise], arguments),
            Region::Loop { body, carried } => infer_loop(symbols, body, *carried, arguments),
            Region::Call { body } => apply(symbols, body, arguments),
        }
    }
}

fn infer_if(
    symbols: &Symbols,
    branches: [&Graph; 2],
    arguments: &[TensorType],
) -> Result<Vec<TensorType>> {
    let [condition, inputs @ ..] = arguments else {
        return Err(Error::operator("if takes a condition"));
    };
    require_scalar("the condition", condition, DType::Bool)?;
    let [results, others] = branches.map(|branch| apply(symbols, branch, inputs));
    let (results, others) = (results?, others?);
    require_same(symbols, "the branches' results", &results, &others)?;
    Ok(results)
}

fn infer_loop(
    symbols: &Symbols,
    body: &Graph,
    carried: usize,
    arguments: &[TensorType],
) -> Result<Vec<TensorType>> {
    let [trips, condition, inputs @ ..] = arguments else {
        return Err(Error::operator("loop takes a trip count and a condition"));
    };
    require_scalar("the trip count", trips, DType::I64)?;
    require_scalar("the condition", condition, DType::Bool)?;
    let state = inputs
        .get(..carried)
        .ok_or_else(|| Error::operator(format!("loop carries {carried} values")))?;
    let inputs = [std::slice::from_ref(trips), inputs].concat();
    let results = apply(symbols, body, &inputs)?;
    let [again, next @ ..] = results.as_slice() else {
        return Err(Error::operator("the body returns the next condition"));
    };
    require_scalar("the next condition", again, DType::Bool)?;
    require_same(symbols, "carried values before and after", state, next)?;
    Ok(state.to_vec())
}

/// Types of a graph's outputs for inputs of these types.
fn apply(symbols: &Symbols, body: &Graph, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
    let wanted: Vec<&TensorType> = body.inputs.iter().map(|id| body.ty(*id)).collect();
    let fits = |(wanted, found): (&&TensorType, &TensorType)| {
        (wanted.dtype, wanted.rank()) == (found.dtype, found.rank())
    };
    if wanted.len() != inputs.len() || !wanted.iter().zip(inputs).all(fits) {
        return Err(Error::operator(format!(
            "{} takes ({}), not ({})",
            body.name,
            list(wanted.into_iter()),
            list(inputs.iter())
        )));
    }
    let sizes = body.sizes_for(inputs);
    let translate =
        |shape: &Shape| -> Shape { shape.iter().map(|size| size.substitute(&sizes)).collect() };
    for (wanted, found) in wanted.iter().zip(inputs) {
        let shape = translate(&wanted.shape);
        for (left, right) in shape.iter().zip(&found.shape) {
            let complain = || format!("{} takes {wanted}, not {found}", body.name);
            symbols.require_equal(left, right, complain)?;
        }
    }
    let output = |ty: &TensorType| TensorType {
        dtype: ty.dtype,
        shape: translate(&ty.shape),
    };
    Ok(body.outputs.iter().map(|id| output(body.ty(*id))).collect())
}

impl Graph {
    /// The body with its sizes expressed in those of the enclosing graph, whose values have these types.
    pub fn with_sizes_of(
        &self,
        arguments: &[Argument],
        ty: impl Fn(ValueId) -> TensorType,
    ) -> Graph {
        let given = self.inputs.iter().zip(arguments).map(|(id, argument)| {
            let value = argument.values().first().copied();
            value.map_or_else(|| self.ty(*id).clone(), &ty)
        });
        let sizes = self.sizes_for(&given.collect::<Vec<TensorType>>());
        let mut body = self.clone();
        body.map_sizes(&mut |size| size.substitute(&sizes));
        body
    }

    /// Replaces every size in types, arguments and attributes, but not in bodies of regions, which have their own sizes.
    pub fn map_sizes(&mut self, size: &mut impl FnMut(&Dim) -> Dim) {
        for info in &mut self.values {
            info.ty.shape.iter_mut().for_each(|dim| *dim = size(dim));
        }
        for node in &mut self.nodes {
            for argument in &mut node.arguments {
                *argument = argument.map(&mut |id| id, size);
            }
            if let Op::Primitive(primitive) = &mut node.op {
                primitive.map_sizes(size);
            }
        }
    }

    /// The symbols of a body in terms of the sizes of its inputs.
    fn sizes_for(&self, inputs: &[TensorType]) -> BTreeMap<Symbol, Dim> {
        let pairs = || {
            let wanted = self.inputs.iter().map(|id| &self.ty(*id).shape);
            wanted
                .zip(inputs)
                .flat_map(|(wanted, found)| wanted.iter().zip(&found.shape))
        };
        let mut sizes = BTreeMap::new();
        for (left, right) in pairs() {
            if let Some(name) = left.as_symbol() {
                sizes.entry(name.clone()).or_insert_with(|| right.clone());
            }
        }
        // Symbols inside expressions are renamed while they are solved for, to keep them apart from those of the enclosing
        // graph.
        let apart = |name: &Symbol| -> Symbol { format!("{name}'").into() };
        for (left, right) in pairs() {
            let unknown: Vec<Symbol> = left
                .symbols()
                .into_iter()
                .filter(|name| !sizes.contains_key(name))
                .collect();
            if let [name] = unknown.as_slice() {
                let mut known = sizes.clone();
                known.insert(name.clone(), Dim::symbol(apart(name)));
                if let Some(size) = left.substitute(&known).solve_for(right, &apart(name)) {
                    sizes.insert(name.clone(), size);
                }
            }
        }
        sizes
    }
}

fn require_scalar(what: &str, ty: &TensorType, dtype: DType) -> Result<()> {
    if ty.dtype == dtype && ty.shape.is_empty() {
        Ok(())
    } else {
        Err(Error::operator(format!("{what} is {ty}, not {dtype}[]")))
    }
}

fn require_same(symbols: &Symbols, what: &str, a: &[TensorType], b: &[TensorType]) -> Result<()> {
    let complain = || {
        let (a, b) = (list(a.iter()), list(b.iter()));
        format!("{what} are ({a}) and ({b})")
    };
    let fits = |(a, b): (&TensorType, &TensorType)| (a.dtype, a.rank()) == (b.dtype, b.rank());
    if a.len() != b.len() || !a.iter().zip(b).all(fits) {
        return Err(Error::operator(complain()));
    }
    let sizes = |types: &[TensorType]| -> Vec<Dim> {
        types.iter().flat_map(|ty| ty.shape.clone()).collect()
    };
    for (left, right) in sizes(a).iter().zip(&sizes(b)) {
        symbols.require_equal(left, right, complain)?;
    }
    Ok(())
}

fn list<'a>(types: impl Iterator<Item = &'a TensorType>) -> String {
    let types: Vec<String> = types.map(ToString::to_string).collect();
    types.join(", ")
}
