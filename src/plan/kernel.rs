//! Kernel generation from expressions and statements, and helpers that kernels of all kinds share.

mod binding;
pub mod epilogue_loop;
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
    /// The checks that the kernel evaluates, by their results, in the order of their sites.
    pub checks: Vec<ValueId>,
    /// Description from which the source is generated; `None` for a user-defined shader.
    pub source: Option<Rc<KernelSource>>,
}

impl GeneratedKernel {
    /// Substitutes sizes for symbols.
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
            workgroups: Workgroups::Linear(count.clone()),
            ..LoweredKernel::new(scope, template, statements, &count)
        }
    }

    /// Generates the source and the parameters of a dispatch.
    pub fn finish(mut self, label: String) -> Result<GeneratedKernel> {
        let label = self.title.map_or(label, String::from);
        self.bind_textures()?;
        if !self.fits() {
            return Err(self.too_many_bindings(&label));
        }
        let buffers = self.scope.buffers.iter();
        let mut source = KernelSource {
            label,
            template: self.template,
            template_values: self.template_values,
            buffers: buffers.map(|binding| binding.buffer.clone()).collect(),
            statements: self.statements,
            sizes_in: self.scope.capabilities.sizes_space(),
            pool: self.scope.pool,
            sizes: Vec::new(),
        };
        let (kernel, sizes) = source.kernel();
        source.sizes.clone_from(&sizes);
        Ok(GeneratedKernel {
            kernel,
            sizes,
            workgroups: self.workgroups,
            bindings: self.scope.buffers,
            choice: self.choice,
            work: self.work,
            scalar_writes: self.scope.scalar_writes,
            checks: self.scope.checks.unwrap_or_default(),
            source: Some(Rc::new(source)),
        })
    }
}

/// Enable directives that a kernel's source needs.
pub fn enable_directives(text: &str) -> String {
    let asked = [
        ("f16", text.contains("<f16")),
        ("wgpu_cooperative_matrix", text.contains("coop_mat")),
    ];
    let lines = asked.iter().filter(|(_, is_used)| *is_used);
    let lines: String = lines.map(|(name, _)| format!("enable {name};\n")).collect();
    if lines.is_empty() {
        lines
    } else {
        lines + "\n"
    }
}

/// Index of the invocation in `0..count`, and a statement that ends surplus invocations.
pub fn invocation(scope: &mut KernelScope, count: &Dim) -> (Index, Statement) {
    let (index, number) = scope.counter("index", count);
    let end = scope.pool.size(count);
    let surplus = scope.pool.call("x >= y", WgslType::Bool, &[index, end]);
    (number, Statement::ReturnIf(surplus))
}

/// Divides a size by a number and rounds up, by the formula `(size + piece - 1) / piece`.
pub fn ceil_div(size: &Dim, piece: usize) -> Dim {
    (size + &Dim::from(piece) - 1).floor_div(&Dim::from(piece))
}

/// Applies the epilogue to the anchor's result at a position and stores the element.
pub fn store(
    scope: &mut KernelScope,
    group: &Group,
    result: ValueId,
    value: Expr,
    position: &Position,
) -> Result<Statement> {
    let (value, position) = epilogue(scope, group, result, value, position)?;
    write(scope, group.root, value, &position)
}

/// Element and position of a group's root, given the anchor's result at a position.
pub fn epilogue(
    scope: &mut KernelScope,
    group: &Group,
    result: ValueId,
    value: Expr,
    position: &Position,
) -> Result<(Expr, Position)> {
    let graph = scope.graph;
    let (inner, outer) = (&graph.ty(result).shape, &graph.ty(group.root).shape);
    let value = scalar::narrow(&mut scope.pool, value, graph.ty(result).dtype);
    scope.set_computed(result, value);
    let position = if inner == outer {
        position.clone()
    } else {
        position.reshape(inner, outer)
    };
    let value = scope.produce(group.root, &position)?;
    Ok((value, position))
}

/// Emits a loop over `0..size`. `body` receives the loop variable. A size of 1 needs no loop.
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

/// Emits nested loops over all coordinates of a shape.
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

/// Emits one loop over all coordinates of a shape. Counters carry the coordinates along; `body` receives their row-major
/// index and the coordinates. Short nested loops would cost more. The shape must have fewer than 65,536 elements.
pub fn repeat_flattened(
    scope: &mut KernelScope,
    place: &str,
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
    let at: Vec<Index> = counters.iter().map(|(_, index)| index.clone()).collect();
    let moving = counters.iter().zip(shape).filter(|(_, size)| !size.is(1));
    let moving: Vec<(Expr, &Dim)> = moving
        .map(|((counter, _), size)| (*counter, size))
        .collect();
    let (variable, place) = match moving.as_slice() {
        [] => return body(scope, &Index::zero(), &at),
        [(only, size)] => (*only, Index::expr(*only, size)),
        _ => scope.counter(place, &size),
    };
    let mut inner = body(scope, &place, &at)?;
    let (zero, end) = (scope.pool.index(0), scope.pool.size(&size));
    let mut statements = Vec::new();
    if moving.len() > 1 {
        let carried = || moving.iter().map(|(counter, _)| *counter);
        statements.extend(carried().map(|counter| Statement::Declare(counter, zero)));
        inner.splice(0..0, carried().map(Statement::Freeze));
        inner.extend(increment_coordinates(scope, &moving));
    }
    statements.push(Statement::Loop {
        variable,
        from: zero,
        to: end,
        step: 1,
        body: inner,
    });
    Ok(statements)
}

/// Increments coordinates in row-major order.
fn increment_coordinates(scope: &mut KernelScope, counters: &[(Expr, &Dim)]) -> Vec<Statement> {
    let Some(((counter, size), outer)) = counters.split_last() else {
        return Vec::new();
    };
    let pool = &mut scope.pool;
    let (zero, one, end) = (pool.index(0), pool.index(1), pool.size(size));
    let next = pool.call("x + y", WgslType::U32, &[*counter, one]);
    let mut statements = vec![Statement::Assign(*counter, next)];
    if !outer.is_empty() {
        let is_over = pool.call("x == y", WgslType::Bool, &[*counter, end]);
        let mut over = vec![Statement::Assign(*counter, zero)];
        over.extend(increment_coordinates(scope, outer));
        statements.push(Statement::If(is_over, over));
    }
    statements
}

/// `base + offset`, clamped below a size unless it is known to be smaller.
pub fn clamped_offset(
    scope: &mut KernelScope,
    base: &Index,
    offset: usize,
    size: &Dim,
    name: &str,
) -> Index {
    let moved = base.add_size(&Dim::from(offset));
    if offset == 0 || moved.is_less_than(size) {
        return moved;
    }
    let pool = &mut scope.pool;
    let (moved, last) = (moved.emit(pool), pool.size(&(size - 1)));
    let limited = pool.call("min(x, y)", WgslType::U32, &[moved, last]);
    pool.set_label(limited, name);
    Index::expr(limited, size)
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
    let limited = scope.pool.call("min(x, y)", WgslType::U32, &[index, last]);
    Index::expr(limited, size)
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
