//! From the expressions and statements of a kernel to its text, and what kernels of all kinds share.

mod binding;
mod source;
pub mod turns;
pub mod work;

pub use binding::declarations;
pub use source::Source;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::dim::{Dim, Symbol};
use crate::error::Result;
use crate::ir::ValueId;
use crate::kernel::choice::Choice;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, Type};
use crate::kernel::index::Index;
use crate::kernel::plan::{Kernel, Workgroups};
use crate::kernel::work::Work;
use crate::pass::plan::element::position::Position;
use crate::pass::plan::element::{Binding, Scope, scalar, write};
use crate::pass::plan::group::Group;

/// Invocations of a workgroup where a kernel has no reason for another number.
pub const INVOCATIONS: i64 = 64;

/// A kernel before it is text.
pub struct Lowered<'a> {
    /// Expressions and buffers.
    pub scope: Scope<'a>,
    /// The shader around the statements.
    pub template: &'static str,
    /// What `main` does.
    pub statements: Vec<Statement>,
    /// Workgroups of a dispatch.
    pub workgroups: Workgroups,
    /// Values of further holes.
    pub holes: Vec<(&'static str, String)>,
    /// Why it is this kernel, where there was a choice.
    pub choice: Option<Choice>,
    /// What it is called by, if not by what it computes.
    pub title: Option<&'static str>,
    /// What it does, if it is not all that its nodes do.
    pub work: Option<Work>,
}

/// A kernel as text, and what a dispatch of it needs.
#[derive(Clone)]
pub struct Made {
    /// The kernel.
    pub kernel: Kernel,
    /// The sizes that it expects.
    pub sizes: Vec<Dim>,
    /// Workgroups of the dispatch.
    pub workgroups: Workgroups,
    /// What lies in its buffers and textures.
    pub bindings: Vec<Binding>,
    /// Why it is this kernel, where there was a choice.
    pub choice: Option<Choice>,
    /// What it does, if it is not all that its nodes do.
    pub work: Option<Work>,
    /// Values in pairs of which it would write single elements.
    pub singles: BTreeSet<ValueId>,
    /// The checks that it makes, by the values that they give, in the order of their sites.
    pub checks: Vec<ValueId>,
    /// What its text is written from; none if that is the application's.
    pub source: Option<Rc<Source>>,
}

impl Made {
    /// The same with sizes for symbols.
    pub fn in_sizes(self, sizes: &BTreeMap<Symbol, Dim>) -> Made {
        let size = |dim: &Dim| dim.substitute(sizes);
        Made {
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

impl<'a> Lowered<'a> {
    /// A kernel of `count` invocations, in workgroups of the usual size.
    pub fn new(
        scope: Scope<'a>,
        template: &'static str,
        statements: Vec<Statement>,
        count: &Dim,
    ) -> Lowered<'a> {
        Lowered {
            scope,
            template,
            statements,
            workgroups: Workgroups::Linear(count.ceil_div(&Dim::from(INVOCATIONS))),
            holes: Vec::new(),
            choice: None,
            title: None,
            work: None,
        }
    }

    /// A kernel of `count` workgroups, whose size the template says.
    pub fn of_workgroups(
        scope: Scope<'a>,
        template: &'static str,
        statements: Vec<Statement>,
        count: Dim,
    ) -> Lowered<'a> {
        Lowered {
            workgroups: Workgroups::Linear(count.clone()),
            ..Lowered::new(scope, template, statements, &count)
        }
    }

    /// The text, and what a dispatch needs.
    pub fn finish(mut self, label: String) -> Result<Made> {
        let label = self.title.map_or(label, String::from);
        self.read_texels()?;
        if !self.fits() {
            return Err(self.too_many(&label));
        }
        let buffers = self.scope.buffers.iter();
        let mut source = Source {
            label,
            template: self.template,
            holes: self.holes,
            buffers: buffers.map(|binding| binding.buffer.clone()).collect(),
            statements: self.statements,
            sizes_in: self.scope.capabilities.sizes_in(),
            pool: self.scope.pool,
            sizes: Vec::new(),
        };
        let (kernel, sizes) = source.kernel();
        source.sizes.clone_from(&sizes);
        Ok(Made {
            kernel,
            sizes,
            workgroups: self.workgroups,
            bindings: self.scope.buffers,
            choice: self.choice,
            work: self.work,
            singles: self.scope.singles,
            checks: self.scope.checks.unwrap_or_default(),
            source: Some(Rc::new(source)),
        })
    }
}

/// What the text must ask for.
pub fn enables(text: &str) -> String {
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

/// The number of the invocation in `0..count` and a test that ends the surplus ones.
pub fn invocation(scope: &mut Scope, count: &Dim) -> (Index, Statement) {
    let (index, number) = scope.counter("index", count);
    let end = scope.pool.size(count);
    let surplus = scope.pool.call("x >= y", Type::Bool, &[index, end]);
    (number, Statement::ReturnIf(surplus))
}

/// How many pieces of a number of elements cover a size; written so that it reads well.
pub fn pieces(size: &Dim, piece: usize) -> Dim {
    (size + &Dim::from(piece) - 1).floor_div(&Dim::from(piece))
}

/// Writes what is left of a group once its anchor's result is known at a position.
pub fn store(
    scope: &mut Scope,
    group: &Group,
    result: ValueId,
    value: Expr,
    position: &Position,
) -> Result<Statement> {
    let (value, position) = epilogue(scope, group, result, value, position)?;
    write(scope, group.root, value, &position)
}

/// An element of a group's root and its position, once its anchor's result is known at a position.
pub fn epilogue(
    scope: &mut Scope,
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

/// A loop over `0..size`; the body is made for the loop variable. Nothing is repeated for a size of 1.
pub fn repeat(
    scope: &mut Scope,
    name: &str,
    size: &Dim,
    body: impl FnOnce(&mut Scope, Index) -> Result<Vec<Statement>>,
) -> Result<Vec<Statement>> {
    let end = scope.pool.size(size);
    repeat_to(scope, name, (size, end), body)
}

/// The same up to an end that may come before the size.
pub fn repeat_to(
    scope: &mut Scope,
    name: &str,
    (size, end): (&Dim, Expr),
    body: impl FnOnce(&mut Scope, Index) -> Result<Vec<Statement>>,
) -> Result<Vec<Statement>> {
    if size.is(1) {
        return body(scope, Index::zero());
    }
    let (variable, number) = scope.counter(name, size);
    let body = body(scope, number)?;
    let from = scope.pool.number(0);
    Ok(vec![Statement::Loop {
        variable,
        from,
        to: end,
        step: 1,
        body,
    }])
}

/// Nested loops over all coordinates of a shape.
pub fn repeat_all(
    scope: &mut Scope,
    names: &str,
    shape: &[Dim],
    body: impl FnOnce(&mut Scope, Vec<Index>) -> Result<Vec<Statement>>,
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

/// One loop over all coordinates of a shape, which are carried along; the body is made for their place in row-major order
/// and for them. Loops within loops cost more where the inner ones are short. There must be fewer than 65,536 places.
pub fn repeat_as_one(
    scope: &mut Scope,
    (place, names): (&str, &[String]),
    shape: &[Dim],
    body: impl FnOnce(&mut Scope, &Index, &[Index]) -> Result<Vec<Statement>>,
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
    let (zero, end) = (scope.pool.number(0), scope.pool.size(&size));
    let mut statements = Vec::new();
    if moving.len() > 1 {
        let carried = || moving.iter().map(|(counter, _)| *counter);
        statements.extend(carried().map(|counter| Statement::Declare(counter, zero)));
        inner.splice(0..0, carried().map(Statement::Freeze));
        inner.extend(carry(scope, &moving));
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

/// Moves coordinates on by one.
fn carry(scope: &mut Scope, counters: &[(Expr, &Dim)]) -> Vec<Statement> {
    let Some(((counter, size), outer)) = counters.split_last() else {
        return Vec::new();
    };
    let pool = &mut scope.pool;
    let (zero, one, end) = (pool.number(0), pool.number(1), pool.size(size));
    let next = pool.call("x + y", Type::U32, &[*counter, one]);
    let mut statements = vec![Statement::Assign(*counter, next)];
    if !outer.is_empty() {
        let is_over = pool.call("x == y", Type::Bool, &[*counter, end]);
        let mut over = vec![Statement::Assign(*counter, zero)];
        over.extend(carry(scope, outer));
        statements.push(Statement::If(is_over, over));
    }
    statements
}

/// `base + offset`, kept below a size if it is not known to be.
pub fn clamped(scope: &mut Scope, base: &Index, offset: usize, size: &Dim, name: &str) -> Index {
    let moved = base.add_size(&Dim::from(offset));
    if offset == 0 || moved.is_below(size) {
        return moved;
    }
    let pool = &mut scope.pool;
    let (moved, last) = (moved.emit(pool), pool.size(&(size - 1)));
    let limited = pool.call("min(x, y)", Type::U32, &[moved, last]);
    pool.set_label(limited, name);
    Index::expr(limited, size)
}

/// Statements under the condition that `base + offset` lies below a size, where that is not known.
pub fn guarded(
    scope: &mut Scope,
    base: &Index,
    offset: impl Into<Index>,
    size: &Dim,
    body: Vec<Statement>,
) -> Vec<Statement> {
    match offset.into() {
        offset if offset.is(0) => body,
        offset => below(scope, &base.add(&offset), size, body),
    }
}

/// An index kept below a size.
pub fn limited(scope: &mut Scope, index: &Index, size: &Dim) -> Index {
    if index.is_below(size) {
        return index.clone();
    }
    let (index, last) = (index.emit(&mut scope.pool), scope.pool.size(&(size - 1)));
    let limited = scope.pool.call("min(x, y)", Type::U32, &[index, last]);
    Index::expr(limited, size)
}

/// Statements where an index lies below a size.
pub fn below(scope: &mut Scope, index: &Index, size: &Dim, body: Vec<Statement>) -> Vec<Statement> {
    if index.is_below(size) {
        return body;
    }
    vec![Statement::If(scope.is_below(index, size), body)]
}
