mod concat;

use crate::dtype::{Category, DType};
use crate::error::Result;
use crate::ir::rewrite::{apply_to_all_graphs, replay};
use crate::ir::{Argument, Builder, Graph, Op, Primitive, Value, ValueId};
use crate::op::{
    Binary, BinaryFunction, Cast, Expand, Full, Pad, Permute, Reshape, Slice, Unary, UnaryFunction,
};
use crate::scalar::Scalar;
use crate::shape::TensorType;

use super::constant::splat;

/// Replaces nodes by cheaper equivalent ones, using [`RULES`], until no rule applies.
pub fn simplify(graph: &Graph) -> Result<Graph> {
    apply_to_all_graphs(graph, &mut |graph| {
        replay(graph, |replay, node| {
            let Op::Primitive(primitive) = &node.op else {
                return replay.copy(node);
            };
            let site = RewriteSite {
                builder: replay.builder,
                primitive: primitive.clone(),
                arguments: replay.arguments(node),
            };
            site.simplify()
        })
    })
}

/// A rewrite rule: an equation applied from left to right.
pub struct Rule {
    /// The equation.
    pub name: &'static str,
    /// Returns the right side for a node that matches the left side, otherwise `None`.
    apply: for<'g> fn(&RewriteSite<'g>) -> Option<Replacement>,
}

/// Replacement of a node.
enum Replacement {
    /// An existing value.
    Value(ValueId),
    /// A new node, to which the rules are applied again.
    Node(Primitive, Vec<Argument>),
}

/// A node that is about to be added to the new graph.
struct RewriteSite<'g> {
    builder: &'g Builder,
    primitive: Primitive,
    /// Arguments as values of the new graph.
    arguments: Vec<Argument>,
}

/// The rules, tried in order. They hold for every operand, negative zero and infinities included.
pub const RULES: &[Rule] = &[
    Rule::new("cast to its own dtype = x", cast_to_own_dtype),
    Rule::new("cast of a lossless cast = cast", cast_of_cast),
    Rule::new("reshape to its own shape = x", reshape_to_own_shape),
    Rule::new("reshape of reshape = reshape", reshape_of_reshape),
    Rule::new("permute in order = x", permute_in_order),
    Rule::new("permute of permute = permute", permute_of_permute),
    Rule::new(
        "permute that moves unit axes = reshape",
        permute_of_unit_axes,
    ),
    Rule::new("expand to its own shape = x", expand_to_own_shape),
    Rule::new("expand of expand = expand", expand_of_expand),
    Rule::new("slice of everything = x", slice_of_everything),
    Rule::new("slice of slice = slice", slice_of_slice),
    Rule::new("pad by nothing = x", pad_by_nothing),
    Rule::new("concat of one = x", concat::of_one),
    Rule::new(
        "concat of neighbouring slices = concat of one slice",
        concat::of_neighbours,
    ),
    Rule::new("reduce along no axes = x", reduce_of_nothing),
    Rule::new("dot along an axis of size 0 = 0", dot_over_nothing),
    Rule::new("x + -0 = x - 0 = x * 1 = x / 1 = x", neutral_number),
    Rule::new(
        "a view combined with a number = view of the combination",
        number_moved_before_views,
    ),
    Rule::new("neg of neg, not of not = x", involution),
    Rule::new("not of eq = ne", negated_equality),
    Rule::new(
        "select with a constant condition = the selected operand",
        select_by_constant,
    ),
    Rule::new(
        "select of equal operands = that operand",
        select_between_equals,
    ),
];

impl Rule {
    const fn new(
        name: &'static str,
        apply: for<'g> fn(&RewriteSite<'g>) -> Option<Replacement>,
    ) -> Rule {
        Rule { name, apply }
    }
}

impl<'g> RewriteSite<'g> {
    /// Applies rules until none matches, then adds the node.
    fn simplify(mut self) -> Result<Vec<Value<'g>>> {
        while let Some(replacement) = RULES.iter().find_map(|rule| (rule.apply)(&self)) {
            match replacement {
                Replacement::Value(id) => return Ok(vec![self.builder.value(id)]),
                Replacement::Node(primitive, arguments) => {
                    (self.primitive, self.arguments) = (primitive, arguments);
                }
            }
        }
        self.builder.try_apply(self.primitive, self.arguments)
    }

    /// The argument of this index, if it is a value.
    fn operand(&self, index: usize) -> Option<ValueId> {
        match self.arguments.get(index)? {
            Argument::Value(id) => Some(*id),
            _ => None,
        }
    }

    /// The only operand and its type.
    fn only_operand(&self) -> Option<(ValueId, TensorType)> {
        match self.arguments.as_slice() {
            [Argument::Value(id)] => Some((*id, self.builder.ty(*id))),
            _ => None,
        }
    }

    /// The primitive that defines the only operand, and that primitive's first operand.
    fn inner(&self) -> Option<(Primitive, ValueId)> {
        let (operand, _) = self.only_operand()?;
        let node = self.builder.node_of(operand)?;
        match (node.op, node.arguments.first()?) {
            (Op::Primitive(primitive), Argument::Value(id)) => Some((primitive, *id)),
            _ => None,
        }
    }
}

/// Replacement by a primitive with one operand.
fn node(primitive: impl Into<Primitive>, operand: ValueId) -> Option<Replacement> {
    Some(Replacement::Node(
        primitive.into(),
        vec![Argument::Value(operand)],
    ))
}

fn cast_to_own_dtype(site: &RewriteSite) -> Option<Replacement> {
    let Primitive::Cast(Cast { dtype }) = site.primitive else {
        return None;
    };
    let (x, ty) = site.only_operand()?;
    (ty.dtype == dtype).then_some(Replacement::Value(x))
}

fn cast_of_cast(site: &RewriteSite) -> Option<Replacement> {
    let Primitive::Cast(outer) = &site.primitive else {
        return None;
    };
    let (Primitive::Cast(inner), x) = site.inner()? else {
        return None;
    };
    let source_dtype = site.builder.ty(x).dtype;
    holds_all_of(inner.dtype, source_dtype).then(|| node(outer.clone(), x))?
}

/// True if a cast from `narrow` to `wide` is lossless.
fn holds_all_of(wide: DType, narrow: DType) -> bool {
    // Binary digits of the largest number up to which all integers are representable, and whether there are negative ones.
    let integer_digits = |dtype: DType| match dtype {
        DType::Bool => (1, false),
        DType::U8 => (8, false),
        DType::I8 => (7, true),
        DType::I16 => (15, true),
        DType::I32 => (31, true),
        DType::I64 => (63, true),
        DType::F16 => (11, true),
        DType::BF16 => (8, true),
        DType::F32 => (24, true),
        DType::F64 => (53, true),
    };
    let ((wide_digits, wide_sign), (narrow_digits, narrow_sign)) =
        (integer_digits(wide), integer_digits(narrow));
    let holds_integers = narrow_digits <= wide_digits && (wide_sign || !narrow_sign);
    match (wide.category(), narrow.category()) {
        (Category::Float, Category::Float) => {
            wide == narrow || matches!(wide, DType::F32 | DType::F64) && narrow_digits < wide_digits
        }
        (_, Category::Float) => false,
        (Category::Bool, _) => narrow == DType::Bool,
        _ => holds_integers,
    }
}

fn reshape_to_own_shape(site: &RewriteSite) -> Option<Replacement> {
    let Primitive::Reshape(Reshape { shape }) = &site.primitive else {
        return None;
    };
    let (x, ty) = site.only_operand()?;
    (ty.shape == *shape).then_some(Replacement::Value(x))
}

fn reshape_of_reshape(site: &RewriteSite) -> Option<Replacement> {
    let Primitive::Reshape(outer) = &site.primitive else {
        return None;
    };
    match site.inner()? {
        (Primitive::Reshape(_), x) => node(outer.clone(), x),
        _ => None,
    }
}

fn permute_in_order(site: &RewriteSite) -> Option<Replacement> {
    let Primitive::Permute(Permute { axes }) = &site.primitive else {
        return None;
    };
    let (x, _) = site.only_operand()?;
    axes.is_sorted().then_some(Replacement::Value(x))
}

fn permute_of_permute(site: &RewriteSite) -> Option<Replacement> {
    let Primitive::Permute(Permute { axes: outer }) = &site.primitive else {
        return None;
    };
    let (Primitive::Permute(Permute { axes: inner }), x) = site.inner()? else {
        return None;
    };
    let axes = outer
        .iter()
        .map(|axis| inner.get(*axis).copied())
        .collect::<Option<_>>()?;
    node(Permute { axes }, x)
}

fn permute_of_unit_axes(site: &RewriteSite) -> Option<Replacement> {
    let Primitive::Permute(Permute { axes }) = &site.primitive else {
        return None;
    };
    let (x, ty) = site.only_operand()?;
    let non_unit_axes = axes
        .iter()
        .filter(|axis| ty.shape.get(**axis).is_some_and(|size| !size.is(1)));
    let shape = axes
        .iter()
        .map(|axis| ty.shape.get(*axis).cloned())
        .collect::<Option<_>>()?;
    non_unit_axes
        .is_sorted()
        .then(|| node(Reshape { shape }, x))?
}

fn expand_to_own_shape(site: &RewriteSite) -> Option<Replacement> {
    let Primitive::Expand(Expand { shape }) = &site.primitive else {
        return None;
    };
    let (x, ty) = site.only_operand()?;
    (ty.shape == *shape).then_some(Replacement::Value(x))
}

fn expand_of_expand(site: &RewriteSite) -> Option<Replacement> {
    let Primitive::Expand(outer) = &site.primitive else {
        return None;
    };
    match site.inner()? {
        (Primitive::Expand(_), x) => node(outer.clone(), x),
        _ => None,
    }
}

fn slice_of_everything(site: &RewriteSite) -> Option<Replacement> {
    let Primitive::Slice(slice) = &site.primitive else {
        return None;
    };
    let (x, ty) = site.only_operand()?;
    slice
        .is_identity(&ty.shape)
        .then_some(Replacement::Value(x))
}

fn slice_of_slice(site: &RewriteSite) -> Option<Replacement> {
    let Primitive::Slice(outer) = &site.primitive else {
        return None;
    };
    let (Primitive::Slice(inner), x) = site.inner()? else {
        return None;
    };
    if outer.axis != inner.axis {
        return None;
    }
    let slice = Slice {
        axis: inner.axis,
        start: &inner.start + &(&outer.start * inner.step),
        length: outer.length.clone(),
        step: inner.step.checked_mul(outer.step)?,
    };
    node(slice, x)
}

fn pad_by_nothing(site: &RewriteSite) -> Option<Replacement> {
    let Primitive::Pad(Pad { low, high }) = &site.primitive else {
        return None;
    };
    let adds_nothing = low.iter().chain(high).all(|padding| padding.is(0));
    adds_nothing.then(|| site.operand(0).map(Replacement::Value))?
}

fn reduce_of_nothing(site: &RewriteSite) -> Option<Replacement> {
    match &site.primitive {
        Primitive::Reduce(reduce) if reduce.axes.is_empty() => {
            site.operand(0).map(Replacement::Value)
        }
        _ => None,
    }
}

/// Avoids a kernel that would have zero-length arrays.
fn dot_over_nothing(site: &RewriteSite) -> Option<Replacement> {
    let (Primitive::Dot(_), Some(a), Some(b)) = (&site.primitive, site.operand(0), site.operand(1))
    else {
        return None;
    };
    let (a, b) = (site.builder.ty(a), site.builder.ty(b));
    let ([rows @ .., inner], [.., columns]) = (a.shape.as_slice(), b.shape.as_slice()) else {
        return None;
    };
    let zeros = Full {
        dtype: a.dtype,
        shape: rows.iter().chain([columns]).cloned().collect(),
    };
    let zero = Argument::Number(Scalar::Int(0));
    inner
        .is(0)
        .then(|| Replacement::Node(zeros.into(), vec![zero]))
}

fn neutral_number(site: &RewriteSite) -> Option<Replacement> {
    use BinaryFunction::{Add, Div, Mul, Sub};
    let Primitive::Binary(Binary { function }) = site.primitive else {
        return None;
    };
    let (x, number, number_is_left) = match site.arguments.as_slice() {
        [Argument::Value(x), Argument::Number(number)] => (*x, *number, false),
        [Argument::Number(number), Argument::Value(x)] => (*x, *number, true),
        _ => return None,
    };
    let dtype = site.builder.ty(x).dtype;
    let equals = |float: f64, integer: i64| match number.cast(dtype) {
        number if dtype.is_float() => number == Scalar::Float(float),
        number => number == Scalar::Int(integer),
    };
    let neutral = match function {
        // -0.0 + 0.0 is 0.0.
        Add => equals(-0.0, 0),
        Sub => equals(0.0, 0) && !number_is_left,
        Mul => equals(1.0, 1),
        Div => equals(1.0, 1) && !number_is_left,
        _ => false,
    };
    neutral.then_some(Replacement::Value(x))
}

/// Moves arithmetic with a number before the views of its operand, so that it fuses into the kernel that computes the
/// viewed value.
fn number_moved_before_views(site: &RewriteSite) -> Option<Replacement> {
    let Primitive::Binary(_) = &site.primitive else {
        return None;
    };
    let is_value = |argument: &Argument| matches!(argument, Argument::Value(_));
    let is_number = |argument: &Argument| matches!(argument, Argument::Number(_));
    let value_index = site.arguments.iter().position(is_value)?;
    if site
        .arguments
        .iter()
        .filter(|other| is_number(other))
        .count()
        != 1
    {
        return None;
    }
    let (mut base, mut views) = (site.operand(value_index)?, Vec::new());
    while let Some(node) = site.builder.node_of(base)
        && let Op::Primitive(view @ (Primitive::Permute(_) | Primitive::Reshape(_))) = node.op
        && let Some(Argument::Value(inner)) = node.arguments.first()
    {
        views.push(view);
        base = *inner;
    }
    let (outer, views) = views.split_first()?;
    let producer = site.builder.node_of(base)?;
    let Op::Primitive(Primitive::Dot(_) | Primitive::Binary(_)) = producer.op else {
        return None;
    };
    let mut arguments = site.arguments.clone();
    arguments[value_index] = Argument::Value(base);
    let mut results = site
        .builder
        .try_apply(site.primitive.clone(), arguments)
        .ok()?;
    for view in views.iter().rev() {
        let operand = Argument::Value(results.first()?.id());
        results = site.builder.try_apply(view.clone(), vec![operand]).ok()?;
    }
    node(outer.clone(), results.first()?.id())
}

fn involution(site: &RewriteSite) -> Option<Replacement> {
    use UnaryFunction::{BitwiseNot, LogicalNot, Neg};
    let Primitive::Unary(Unary { function: outer }) = site.primitive else {
        return None;
    };
    match site.inner()? {
        (Primitive::Unary(Unary { function: inner }), x)
            if inner == outer && matches!(outer, Neg | LogicalNot | BitwiseNot) =>
        {
            Some(Replacement::Value(x))
        }
        _ => None,
    }
}

fn negated_equality(site: &RewriteSite) -> Option<Replacement> {
    let Primitive::Unary(Unary {
        function: UnaryFunction::LogicalNot | UnaryFunction::BitwiseNot,
    }) = site.primitive
    else {
        return None;
    };
    let (operand, _) = site.only_operand()?;
    let inner = site.builder.node_of(operand)?;
    let function = match inner.op {
        Op::Primitive(Primitive::Binary(Binary { function })) => match function {
            BinaryFunction::Eq => BinaryFunction::Ne,
            BinaryFunction::Ne => BinaryFunction::Eq,
            _ => return None,
        },
        _ => return None,
    };
    Some(Replacement::Node(
        Binary { function }.into(),
        inner.arguments,
    ))
}

fn select_by_constant(site: &RewriteSite) -> Option<Replacement> {
    let Primitive::Select(_) = site.primitive else {
        return None;
    };
    let [Argument::Value(condition), a, b] = site.arguments.as_slice() else {
        return None;
    };
    let Argument::Number(truth) = splat(site.builder, *condition)? else {
        return None;
    };
    match if truth.to_f64() == 0.0 { b } else { a } {
        Argument::Value(id) => Some(Replacement::Value(*id)),
        number => {
            let value = site
                .arguments
                .iter()
                .skip(1)
                .flat_map(Argument::values)
                .next()?;
            let TensorType { dtype, shape } = site.builder.ty(value);
            let full = crate::op::Full { dtype, shape };
            Some(Replacement::Node(full.into(), vec![number.clone()]))
        }
    }
}

fn select_between_equals(site: &RewriteSite) -> Option<Replacement> {
    let Primitive::Select(_) = site.primitive else {
        return None;
    };
    let (a, b) = (site.operand(1)?, site.operand(2)?);
    (a == b).then_some(Replacement::Value(a))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lossless_casts() {
        for (wide, narrow) in [
            (DType::F32, DType::F16),
            (DType::F32, DType::BF16),
            (DType::F64, DType::I32),
            (DType::I16, DType::U8),
            (DType::F16, DType::Bool),
        ] {
            assert!(holds_all_of(wide, narrow), "{wide} {narrow}");
        }
        for (wide, narrow) in [
            (DType::F16, DType::BF16),
            (DType::F32, DType::I32),
            (DType::I8, DType::U8),
            (DType::U8, DType::I8),
            (DType::Bool, DType::U8),
            (DType::I64, DType::F16),
        ] {
            assert!(!holds_all_of(wide, narrow), "{wide} {narrow}");
        }
    }
}
