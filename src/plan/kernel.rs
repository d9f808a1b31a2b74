//! Kernel generation from expressions and statements, and helpers that kernels of all kinds share.

mod binding;
mod dynamic_schedule;
pub mod epilogue_loop;
pub mod lane_pairs;
mod source;
pub mod work;

pub use binding::declarations;
pub use source::KernelSource;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::dim::{Dim, Symbol};
use crate::error::Result;
use crate::ir::ValueId;
use crate::kernel::choice::VariantChoice;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, WgslType};
use crate::kernel::index::Index;
use crate::kernel::plan::{Kernel, Workgroups};
use crate::kernel::work::Work;
use crate::plan::element::position::Position;
use crate::plan::element::{KernelBinding, KernelScope, scalar, write};
use crate::plan::group::Group;

/// Default number of invocations of a workgroup.
pub const INVOCATIONS: i64 = 64;

/// A kernel before its source is generated.
pub struct LoweredKernel<'a> {
    /// Expressions and buffers.
    pub scope: KernelScope<'a>,
    /// WGSL template around the statements.
    pub template: &'static str,
    /// Body of `main`.
    pub statements: Vec<Statement>,
    /// True if all invocations of a subgroup have the same `index`; otherwise neighbours have neighbouring ones.
    pub has_uniform_index: bool,
    /// True if workgroups take their indices in the order in which they start. Otherwise their place in the dispatch
    /// determines them.
    pub has_dynamic_schedule: bool,
    /// Workgroups of a dispatch.
    pub workgroups: Workgroups,
    /// Values of the template's further placeholders.
    pub template_values: Vec<(&'static str, String)>,
    /// Why this variant was chosen, if there was a choice.
    pub choice: Option<VariantChoice>,
    /// Label, if it does not follow from the nodes.
    pub title: Option<&'static str>,
    /// Work of the kernel, if it differs from the sum over its nodes.
    pub work: Option<Work>,
}

/// A kernel with its source and the parameters of its dispatch.
#[derive(Clone)]
pub struct GeneratedKernel {
    /// The kernel.
    pub kernel: Kernel,
    /// The sizes that the kernel expects.
    pub sizes: Vec<Dim>,
    /// Workgroups of the dispatch.
    pub workgroups: Workgroups,
    /// Values in its buffers and textures.
    pub bindings: Vec<KernelBinding>,
    /// Why this variant was chosen, if there was a choice.
    pub choice: Option<VariantChoice>,
    /// Work of the kernel, if it differs from the sum over its nodes.
    pub work: Option<Work>,
    /// Values in half-precision pairs of which the kernel would write single elements.
    pub scalar_writes: BTreeSet<ValueId>,
    /// The checks that the kernel evaluates, by their results, in the order of their flags.
    pub checks: Vec<ValueId>,
    /// Description from which the source is generated; `None` for a user-defined shader.
    pub source: Option<Rc<KernelSource>>,
}

impl GeneratedKernel {
    /// Substitutes sizes for symbols in the sizes, the workgroup count and the work.
    pub fn substitute_sizes(self, sizes: &BTreeMap<Symbol, Dim>) -> GeneratedKernel {
        let size = |dim: &Dim| dim.substitute(sizes);
        GeneratedKernel {
            sizes: self.sizes.iter().map(size).collect(),
            workgroups: match &self.workgroups {
                Workgroups::Linear(count) => Workgroups::Linear(size(count)),
                Workgroups::Grid(counts) => Workgroups::Grid(counts.each_ref().map(size)),
            },
            work: self.work.map(|work| Work {
                operations: size(&work.operations),
                bytes: size(&work.bytes),
                ..work
            }),
            ..self
        }
    }
}

impl<'a> LoweredKernel<'a> {
    /// A kernel of `count` invocations in workgroups of the default size.
    pub fn new(
        scope: KernelScope<'a>,
        template: &'static str,
        statements: Vec<Statement>,
        count: &Dim,
    ) -> LoweredKernel<'a> {
        LoweredKernel {
            scope,
            template,
            statements,
            has_uniform_index: false,
            has_dynamic_schedule: false,
            workgroups: Workgroups::Linear(count.ceil_div(&Dim::from(INVOCATIONS))),
            template_values: Vec::new(),
            choice: None,
            title: None,
            work: None,
        }
    }

    /// A kernel of `count` workgroups of the template's size.
    pub fn of_workgroups(
        scope: KernelScope<'a>,
        template: &'static str,
        statements: Vec<Statement>,
        count: Dim,
    ) -> LoweredKernel<'a> {
        LoweredKernel {
            has_uniform_index: true,
            workgroups: Workgroups::Linear(count.clone()),
            ..LoweredKernel::new(scope, template, statements, &count)
        }
    }

    /// Generates the source and the parameters of a dispatch.
    pub fn finish(mut self, label: String) -> Result<GeneratedKernel> {
        let label = self.title.map_or(label, String::from);
        self.bind_textures()?;
        self.merge_bindings();
        if self.has_dynamic_schedule {
            self.schedule_dynamically();
        }
        if !self.fits() {
            return Err(self.too_many_bindings(&label));
        }
        if self.scope.pairs_lanes() {
            let (pool, uniform) = (&mut self.scope.pool, self.has_uniform_index);
            self.statements = lane_pairs::pair_lanes(pool, self.statements, uniform);
        }
        let buffers = self.scope.buffers.iter();
        let mut source = KernelSource {
            label,
            template: self.template,
            template_values: self.template_values,
            buffers: buffers.map(|binding| binding.buffer.clone()).collect(),
            statements: self.statements,
            sizes_in: self.scope.capabilities.sizes_space(),
            divides_by_floats: self.scope.capabilities.software,
            pool: self.scope.pool,
            sizes: Vec::new(),
        };
        let (kernel, sizes) = source.kernel();
        source.sizes.clone_from(&sizes);
        let mut bindings = self.scope.buffers;
        bindings.retain(|binding| binding.buffer.is_bound());
        Ok(GeneratedKernel {
            kernel,
            sizes,
            workgroups: self.workgroups,
            bindings,
            choice: self.choice,
            work: self.work,
            scalar_writes: self.scope.scalar_writes,
            checks: self.scope.checks.unwrap_or_default(),
            source: Some(Rc::new(source)),
        })
    }
}

/// Index of the invocation in `0..count`, and a statement that ends surplus invocations: those of the last workgroup
/// with larger indices.
pub fn invocation(scope: &mut KernelScope, count: &Dim) -> (Index, Statement) {
    let (variable, index) = scope.counter("index", count);
    let end = scope.pool.size(count);
    let surplus = scope.pool.call("x >= y", WgslType::Bool, &[variable, end]);
    (index, Statement::ReturnIf(surplus))
}

/// Divides a size by a number and rounds up, by the formula `(size + divisor - 1) / divisor`.
pub fn ceil_div(size: &Dim, divisor: usize) -> Dim {
    (size + &Dim::from(divisor) - 1).floor_div(&Dim::from(divisor))
}

/// Applies the epilogue to the anchor's result at a position and stores the elements of all values that the group writes.
pub fn store(
    scope: &mut KernelScope,
    group: &Group,
    result: ValueId,
    value: Expr,
    position: &Position,
) -> Result<Vec<Statement>> {
    scope.inline_values(&group.other_outputs);
    let outputs = group.outputs().into_iter();
    let store = |output| {
        let (element, position) = epilogue(scope, output, result, value, position)?;
        write(scope, output, element, &position)
    };
    outputs.map(store).collect()
}

/// Element and position of a value that a group writes, given the anchor's result at a position. `value` is computed in
/// the type of the result's dtype and is rounded to it first.
pub fn epilogue(
    scope: &mut KernelScope,
    output: ValueId,
    result: ValueId,
    value: Expr,
    position: &Position,
) -> Result<(Expr, Position)> {
    let graph = scope.graph;
    let (result_shape, output_shape) = (&graph.ty(result).shape, &graph.ty(output).shape);
    let value = scalar::narrow(&mut scope.pool, value, graph.ty(result).dtype);
    scope.set_computed(result, value);
    let position = if result_shape == output_shape {
        position.clone()
    } else {
        position.reshape(result_shape, output_shape)
    };
    let element = scope.produce(output, &position)?;
    Ok((element, position))
}

/// Emits a loop over `0..size` with a loop variable of this name, which `body` receives. A size of 1 needs no loop.
pub fn repeat(
    scope: &mut KernelScope,
    name: &str,
    size: &Dim,
    body: impl FnOnce(&mut KernelScope, Index) -> Result<Vec<Statement>>,
) -> Result<Vec<Statement>> {
    let end = scope.pool.size(size);
    repeat_to(scope, name, size, end, body)
}

/// Emits a loop like [`repeat`] up to an end that may be smaller than the size.
pub fn repeat_to(
    scope: &mut KernelScope,
    name: &str,
    size: &Dim,
    end: Expr,
    body: impl FnOnce(&mut KernelScope, Index) -> Result<Vec<Statement>>,
) -> Result<Vec<Statement>> {
    if size.is(1) {
        return body(scope, Index::zero());
    }
    let (variable, number) = scope.counter(name, size);
    let body = body(scope, number)?;
    let from = scope.pool.index(0);
    Ok(vec![Statement::Loop {
        variable,
        from,
        to: end,
        step: 1,
        body,
    }])
}

/// Emits nested loops over all coordinates of a shape. `names` is the name of the loop variable, or the prefix of the
/// names of several.
pub fn repeat_all(
    scope: &mut KernelScope,
    names: &str,
    shape: &[Dim],
    body: impl FnOnce(&mut KernelScope, Vec<Index>) -> Result<Vec<Statement>>,
) -> Result<Vec<Statement>> {
    let mut counters = Vec::new();
    for (axis, size) in shape.iter().enumerate() {
        let name = if shape.len() == 1 {
            names.to_string()
        } else {
            format!("{names}{axis}")
        };
        counters.push((name, size.clone()));
    }
    let indices = counters
        .iter()
        .map(|(name, size)| scope.counter(name, size).1)
        .collect();
    let mut statements = body(scope, indices)?;
    for (name, size) in counters.iter().rev() {
        let inner = statements;
        statements = repeat(scope, name, size, |_, _| Ok(inner))?;
    }
    Ok(statements)
}

/// Emits one loop over all coordinates of a shape, since nested short loops would cost more. `body` receives the
/// row-major index, whose variable is named `flat_name`, and the coordinates. These are counters with the names
/// `names`, which each iteration increments. The shape must have fewer than 65,536 elements.
pub fn repeat_flattened(
    scope: &mut KernelScope,
    flat_name: &str,
    names: &[String],
    shape: &[Dim],
    body: impl FnOnce(&mut KernelScope, &Index, &[Index]) -> Result<Vec<Statement>>,
) -> Result<Vec<Statement>> {
    let size = Dim::product(shape);
    let counters: Vec<(Expr, Index)> = names
        .iter()
        .zip(shape)
        .map(|(name, size)| scope.counter(name, size))
        .collect();
    let coordinates: Vec<Index> = counters.iter().map(|(_, index)| index.clone()).collect();
    let iterated = counters.iter().zip(shape).filter(|(_, size)| !size.is(1));
    let iterated: Vec<(Expr, &Dim)> = iterated
        .map(|((counter, _), size)| (*counter, size))
        .collect();
    let (variable, flat_index) = match iterated.as_slice() {
        [] => return body(scope, &Index::zero(), &coordinates),
        [(only, size)] => (*only, Index::expr(*only, size)),
        _ => scope.counter(flat_name, &size),
    };
    let mut loop_body = body(scope, &flat_index, &coordinates)?;
    let (zero, end) = (scope.pool.index(0), scope.pool.size(&size));
    let mut statements = Vec::new();
    if iterated.len() > 1 {
        let iterated_counters = || iterated.iter().map(|(counter, _)| *counter);
        statements.extend(iterated_counters().map(|counter| Statement::Declare(counter, zero)));
        loop_body.splice(0..0, iterated_counters().map(Statement::Freeze));
        loop_body.extend(increment_coordinates(scope, &iterated));
    }
    statements.push(Statement::Loop {
        variable,
        from: zero,
        to: end,
        step: 1,
        body: loop_body,
    });
    Ok(statements)
}

/// Increments coordinates in row-major order.
fn increment_coordinates(scope: &mut KernelScope, counters: &[(Expr, &Dim)]) -> Vec<Statement> {
    let Some(((counter, size), outer_counters)) = counters.split_last() else {
        return Vec::new();
    };
    let pool = &mut scope.pool;
    let (zero, one, end) = (pool.index(0), pool.index(1), pool.size(size));
    let next = pool.call("x + y", WgslType::U32, &[*counter, one]);
    let mut statements = vec![Statement::Assign(*counter, next)];
    if !outer_counters.is_empty() {
        let is_at_end = pool.call("x == y", WgslType::Bool, &[*counter, end]);
        let mut carry = vec![Statement::Assign(*counter, zero)];
        carry.extend(increment_coordinates(scope, outer_counters));
        statements.push(Statement::If(is_at_end, carry));
    }
    statements
}

/// `base + offset`, clamped below a size unless it is known to be smaller. `name` labels the clamped index.
pub fn clamped_offset(
    scope: &mut KernelScope,
    base: &Index,
    offset: usize,
    size: &Dim,
    name: &str,
) -> Index {
    let sum = base.add_size(&Dim::from(offset));
    if offset == 0 || sum.is_less_than(size) {
        return sum;
    }
    let pool = &mut scope.pool;
    let (sum, last) = (sum.emit(pool), pool.size(&(size - 1)));
    let clamped = pool.call("min(x, y)", WgslType::U32, &[sum, last]);
    pool.set_label(clamped, name);
    Index::expr(clamped, size)
}

/// Guards statements by `base + offset < size`, unless the condition is known to hold.
pub fn offset_bounds_guard(
    scope: &mut KernelScope,
    base: &Index,
    offset: impl Into<Index>,
    size: &Dim,
    body: Vec<Statement>,
) -> Vec<Statement> {
    match offset.into() {
        offset if offset.is(0) => body,
        offset => bounds_guard(scope, &base.add(&offset), size, body),
    }
}

/// An index clamped below a size.
pub fn clamped_index(scope: &mut KernelScope, index: &Index, size: &Dim) -> Index {
    if index.is_less_than(size) {
        return index.clone();
    }
    let (index, last) = (index.emit(&mut scope.pool), scope.pool.size(&(size - 1)));
    let clamped = scope.pool.call("min(x, y)", WgslType::U32, &[index, last]);
    Index::expr(clamped, size)
}

/// Guards statements by `index < size`, unless the condition is known to hold.
pub fn bounds_guard(
    scope: &mut KernelScope,
    index: &Index,
    size: &Dim,
    body: Vec<Statement>,
) -> Vec<Statement> {
    if index.is_less_than(size) {
        return body;
    }
    vec![Statement::If(scope.is_below(index, size), body)]
}
