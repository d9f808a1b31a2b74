//! The operator dictionary: PyTorch's operators, one row ([`Composite`]) each.
//!
//! A row has one or more schemas as PyTorch writes them (`torch/…/native_functions.yaml`), a body in terms of the
//! builder's methods, and sample cases. Shape rule, oracle, device code, text and JSON form, import and the operator
//! list follow from these. A schema's alias annotations say which operators are views
//! (`Tensor(a) self … -> Tensor(a)`). In-place and `out=` variants have no rows: importers rewrite them. Rows that draw
//! random numbers have two more parameters than in PyTorch, `seed` and `counter`; the numbers are a function of both. A
//! counter may be a tensor, so that each iteration of a loop has its own.
//!
//! A body is a function or closure of the call's arguments `a` ([`Args`]). Methods of the builder and of values do not
//! return errors: the builder remembers the first one, and [`Builder::check`] takes it. The *compute dtype* of a dtype
//! is the one in which PyTorch's CPU kernels compute: `f32` for half precision, else the dtype itself
//! ([`DType::to_compute`](crate::dtype::DType::to_compute)).

#![deny(
    clippy::indexing_slicing,
    reason = "behind an operator that failed a value has no dimensions: a body must not rely on those that it expects"
)]

mod accepted_dtypes;
mod args;
mod gradient;
mod graph_methods;
mod schema;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

pub use args::Args;
pub(crate) use backward::convolution::{conv_filter_gradient, conv_input_gradient};
pub(crate) use gradient::detach;
pub use gradient::{CallGradient, GradientRule};
pub use philox::Generator;
use philox::{COUNTER, SEED};
pub use schema::{ArgumentType, DefaultValue, ResultStructure, Schema, SchemaParameter};
pub use strides::{ResultPlacement, StrideRule, ViewSteps, WantedFormat, apply_view_step};

use accepted_dtypes::{AcceptedDTypes, rules_of};

use crate::error::{Error, Result};
use crate::ir::{Argument, Builder, Value};
use crate::shape::TensorType;
use crate::symbols::with_sizes;

mod activation;
mod advanced;
mod arithmetic;
mod attention;
mod backward;
mod bounds;
mod bounds_checks;
mod class_loss;
mod comparison;
mod concatenate;
mod contraction;
mod convert;
mod convolution;
mod create;
mod ctc_loss;
mod cumulative;
mod diagonal;
mod distance;
mod dropout;
mod embedding;
mod factorize;
mod fourier;
mod fractional_pooling;
mod grid;
mod histogram;
mod index;
mod jacobi;
mod linalg;
mod linear;
#[cfg(test)]
#[path = "../../docs/examples/log_cosh.rs"]
mod log_cosh;
mod logic;
mod loss;
mod matrix;
mod matrix_gradients;
mod norm;
mod normalization;
mod order;
mod packed;
mod pad;
mod philox;
mod pointwise;
mod pooling;
mod positions;
mod quantize;
mod random;
mod rearrange;
mod recurrent;
mod reduce;
mod replace_part;
mod resample;
mod resize;
mod scatter;
mod scatter_gradient;
mod signal;
mod slice;
mod softmax;
mod special;
mod spectral;
mod split;
mod statistics;
mod strides;
mod unary;
mod view;
mod windows;

/// The rows of each module.
const ROWS_BY_MODULE: &[&[Composite]] = &[
    activation::ROWS,
    dropout::ROWS,
    random::ROWS,
    arithmetic::ROWS,
    bounds::ROWS,
    class_loss::ROWS,
    ctc_loss::ROWS,
    comparison::ROWS,
    distance::ROWS,
    logic::ROWS,
    loss::ROWS,
    special::ROWS,
    unary::ROWS,
    convolution::ROWS,
    pooling::ROWS,
    fractional_pooling::ROWS,
    quantize::ROWS,
    normalization::ROWS,
    softmax::ROWS,
    linear::ROWS,
    attention::ROWS,
    backward::attention::ROWS,
    backward::axis_maps::ROWS,
    backward::convolution::ROWS,
    backward::pooling::ROWS,
    resize::ROWS,
    convert::ROWS,
    create::ROWS,
    diagonal::ROWS,
    concatenate::ROWS,
    pad::ROWS,
    rearrange::ROWS,
    slice::ROWS,
    cumulative::ROWS,
    embedding::ROWS,
    histogram::ROWS,
    index::ROWS,
    signal::ROWS,
    norm::ROWS,
    order::ROWS,
    reduce::ROWS,
    scatter::ROWS,
    statistics::ROWS,
    view::ROWS,
    replace_part::ROWS,
    grid::ROWS,
    packed::ROWS,
    recurrent::ROWS,
    linalg::ROWS,
    fourier::ROWS,
    spectral::ROWS,
    #[cfg(test)]
    log_cosh::ROWS,
];

/// An operator: its overloads and what they compute.
pub struct Composite {
    /// Schemas as PyTorch writes them, in the order in which PyTorch tries them. All share the body.
    pub schemas: &'static [&'static str],
    /// The result in terms of other operators.
    pub body: CompositeBody,
    /// Whether a call with given arguments draws random numbers; `None` if no call does.
    pub is_random: Option<RandomPredicate>,
    /// Memory layout of the results.
    pub strides: StrideRule,
    /// The gradients of the arguments, where PyTorch's differ from those of the body, or are better numerically.
    pub gradient: Option<GradientRule>,
    /// Number of results that pass gradients on: `output_differentiability` in PyTorch's `derivatives.yaml`.
    pub differentiable_results: usize,
    /// Arguments of sample calls: `f32[4, 8], dim=1`. A case belongs to the first schema, unless it begins with the
    /// name of an overload, an operator, or both, and a colon (`Scalar: f32[3], 2`).
    pub cases: &'static [&'static str],
}

/// Whether a call with these arguments draws random numbers.
pub type RandomPredicate = for<'g> fn(&Args<'g>) -> bool;

/// The body of an operator, by its number of results.
#[derive(Clone, Copy)]
pub enum CompositeBody {
    /// Exactly one tensor.
    One(for<'g> fn(&Args<'g>) -> Result<Value<'g>>),
    /// A tuple or list of tensors.
    Many(for<'g> fn(&Args<'g>) -> Result<Vec<Value<'g>>>),
}

impl Composite {
    /// An operator with one result.
    pub const fn one(
        schemas: &'static [&'static str],
        body: for<'g> fn(&Args<'g>) -> Result<Value<'g>>,
        cases: &'static [&'static str],
    ) -> Composite {
        Composite {
            schemas,
            body: CompositeBody::One(body),
            is_random: None,
            strides: StrideRule::Standard,
            gradient: None,
            differentiable_results: usize::MAX,
            cases,
        }
    }

    /// An operator whose result is computed elementwise.
    pub const fn elementwise(
        schemas: &'static [&'static str],
        body: for<'g> fn(&Args<'g>) -> Result<Value<'g>>,
        cases: &'static [&'static str],
    ) -> Composite {
        Composite::one(schemas, body, cases).with_strides(StrideRule::Elementwise)
    }

    /// An operator whose result is a tuple or list.
    pub const fn many(
        schemas: &'static [&'static str],
        body: for<'g> fn(&Args<'g>) -> Result<Vec<Value<'g>>>,
        cases: &'static [&'static str],
    ) -> Composite {
        Composite {
            schemas,
            body: CompositeBody::Many(body),
            is_random: None,
            strides: StrideRule::Standard,
            gradient: None,
            differentiable_results: usize::MAX,
            cases,
        }
    }

    /// Returns the row with another memory layout of its results.
    const fn with_strides(mut self, strides: StrideRule) -> Composite {
        self.strides = strides;
        self
    }

    /// Returns the row with a rule for its gradients.
    const fn with_gradient(mut self, rule: GradientRule) -> Composite {
        self.gradient = Some(rule);
        self
    }

    /// Returns the row with fewer results that pass gradients on.
    const fn with_differentiable_results(mut self, count: usize) -> Composite {
        self.differentiable_results = count;
        self
    }

    /// Returns the row with a predicate that says which calls draw random numbers.
    const fn with_random(mut self, draws: RandomPredicate) -> Composite {
        self.is_random = Some(draws);
        self
    }
}

/// An overload of a row.
pub struct Operator {
    /// Name in the text form: `aten.add.Tensor`, without the dot of an empty overload name.
    pub name: Arc<str>,
    /// Parameters and results.
    pub schema: Schema,
    /// The row that defines it.
    pub row: &'static Composite,
    /// Element types by the position of the parameter, where PyTorch accepts fewer than the body.
    accepted_dtypes: Vec<(usize, AcceptedDTypes)>,
}

/// The overloads of all rows.
struct OperatorTable {
    /// Overloads by name in the text form.
    operators: BTreeMap<Arc<str>, Operator>,
    /// Overloads by base name (`aten::add`), in the order in which they are tried.
    overloads: BTreeMap<String, Vec<Arc<str>>>,
}

/// The table of operators, which the first call builds.
fn operator_table() -> &'static OperatorTable {
    static TABLE: OnceLock<OperatorTable> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = OperatorTable {
            operators: BTreeMap::new(),
            overloads: BTreeMap::new(),
        };
        for row in ROWS_BY_MODULE.iter().copied().flatten() {
            // A schema that does not parse is skipped; the test `every_schema_parses_and_is_unique` finds it.
            for mut schema in row
                .schemas
                .iter()
                .filter_map(|text| Schema::parse(text).ok())
            {
                if row.is_random.is_some() {
                    schema.parameters.extend([
                        SchemaParameter::internal(SEED, ArgumentType::Int),
                        SchemaParameter::internal(COUNTER, ArgumentType::IntOrTensor),
                    ]);
                }
                let name: Arc<str> = schema.text_name().into();
                table
                    .overloads
                    .entry(schema.base_name())
                    .or_default()
                    .push(name.clone());
                let operator = Operator {
                    accepted_dtypes: rules_of(&schema),
                    name: name.clone(),
                    schema,
                    row,
                };
                table.operators.insert(name, operator);
            }
        }
        table
    })
}

/// Every operator, by name.
pub fn operators() -> impl Iterator<Item = &'static Operator> {
    operator_table().operators.values()
}

/// The rows of all modules, in table order.
pub fn rows() -> impl Iterator<Item = &'static Composite> {
    ROWS_BY_MODULE.iter().copied().flatten()
}

/// The overload of a name in the text form, `aten.add.Tensor`. Fails if there is none.
pub fn operator(name: &str) -> Result<&'static Operator> {
    let overload = operator_table().operators.get(name);
    overload.ok_or_else(|| Error::unsupported(format!("there is no operator {name}")))
}

/// The overloads of a base name, `aten::add`, in the order in which they are tried; empty if there is no such operator.
pub fn overloads(base_name: &str) -> impl Iterator<Item = &'static Operator> {
    let names = operator_table()
        .overloads
        .get(base_name)
        .map(Vec::as_slice)
        .unwrap_or_default();
    names
        .iter()
        .filter_map(|name| operator_table().operators.get(name))
}

impl Operator {
    /// Adds the operations of the body to the graph, and returns the results.
    pub fn expand<'g>(
        &'static self,
        builder: &'g Builder,
        arguments: &[Argument],
    ) -> Result<Vec<Value<'g>>> {
        let args = Args::new(builder, self, arguments);
        self.check_dtypes(builder, arguments)
            .map_err(|error| error.at(&self.name))?;
        let results = match self.row.body {
            CompositeBody::One(body) => body(&args).map(|value| vec![value]),
            CompositeBody::Many(body) => body(&args),
        };
        let results = results.and_then(|results| builder.check().map(|()| results));
        // Clear any error of a failed body, so that it does not fail the next one.
        results.map_err(|error| {
            let _ = builder.check();
            error.at(&self.name)
        })
    }

    /// Result types for arguments of a graph under construction.
    pub fn infer(
        &'static self,
        builder: &Builder,
        arguments: &[Argument],
    ) -> Result<Vec<TensorType>> {
        let scratch = builder.scratch();
        let arguments = scratch.import(builder, arguments);
        let results = self.expand(&scratch, &arguments)?;
        Ok(results.into_iter().map(Value::ty).collect())
    }

    /// Adds a call to the graph: one node that keeps the operator's name. Arguments missing at the end have their
    /// defaults.
    pub fn call<'g>(
        &'static self,
        builder: &'g Builder,
        mut arguments: Vec<Argument>,
    ) -> Result<Vec<Value<'g>>> {
        let types = self.infer(builder, &arguments).map_err(|error| {
            let hints = builder.symbols().hints();
            error.with_message(|message| with_sizes(message, &hints))
        })?;
        let missing = self.schema.parameters.iter().skip(arguments.len());
        arguments
            .extend(missing.map(|parameter| parameter.default.clone().unwrap_or(Argument::None)));
        Ok(builder.call(&self.name, arguments, types))
    }

    /// [`Operator::call`] of an operator with one result, for bodies of other rows whose gradient is that of the call.
    fn call_one<'g>(
        &'static self,
        builder: &'g Builder,
        arguments: Vec<Argument>,
    ) -> Result<Value<'g>> {
        let results = self.call(builder, arguments)?;
        let result = results.first().copied();
        result.ok_or_else(|| Error::internal(format!("{} has no result", self.name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_parses_and_is_unique() {
        let mut names = std::collections::BTreeSet::new();
        for text in rows().flat_map(|row| row.schemas) {
            let schema = Schema::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(names.insert(schema.text_name()), "{text} stands twice");
        }
    }
}
