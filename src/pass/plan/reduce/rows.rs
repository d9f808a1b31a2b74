//! Rows: reductions over the same trailing axes of a value, and what is pointwise around them, in one kernel.
//!
//! A row is gone through once for each stage: reductions that need no other one's result, then those that need the results
//! of the first stage, and so on; at last what is written for each element. A mean, then a variance, then the normalised
//! elements are three stages.

use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::{Definition, Graph, Node, ValueId};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, Type};
use crate::kernel::index::Index;
use crate::op::ReduceFunction;
use crate::pass::plan::cost::{example, weight_of};
use crate::pass::plan::element::position::Position;
use crate::pass::plan::element::quad::{self, QUAD};
use crate::pass::plan::element::{Scope, eight, operand, scalar, write};
use crate::pass::plan::group::{Frame, Rows, reduction};
use crate::pass::plan::kernel::{INVOCATIONS, Lowered, invocation, pieces, repeat};
use crate::pass::plan::{lanes, reduce};

/// The shader around what subgroups do with rows.
const SUBGROUP: &str = include_str!("../../../../shaders/rows.wgsl");

/// Rows that are no longer are left to one invocation.
const SHORT: i64 = 16;

/// Elements that an invocation keeps at most, while it goes through a row in stages: the text is there for each of them. Where
/// functions are as dear as an exponential, and a stage repeats what another one has computed, more text pays.
const MOST: i64 = 32;
const MOST_IF_DEAR: i64 = 128;
const DEAR: u32 = 5;

/// Who goes through a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    /// One invocation.
    Alone,
    /// The invocations of a subgroup, which are so many.
    Subgroup(usize),
    /// A workgroup.
    Workgroup,
}

impl Sharing {
    fn of(scope: &Scope, frame: &Frame) -> Sharing {
        let capabilities = scope.capabilities;
        let length = frame.length.eval(&scope.graph.hints).unwrap_or_default();
        if length <= SHORT {
            Sharing::Alone
        } else {
            let lanes = capabilities.lanes();
            lanes.map_or(Sharing::Workgroup, Sharing::Subgroup)
        }
    }

    /// Invocations that share a row.
    fn lanes(self) -> usize {
        match self {
            Sharing::Alone => 1,
            Sharing::Subgroup(lanes) => lanes,
            Sharing::Workgroup => 64,
        }
    }
}

/// True if a device has a kernel of rows; others compute one reduction at a time.
pub fn suits(capabilities: &Capabilities) -> bool {
    !capabilities.software || capabilities.lanes().is_some()
}

/// The kernel.
pub fn lower<'a>(mut scope: Scope<'a>, rows: &Rows) -> Result<Lowered<'a>> {
    scope.compute(&rows.computed);
    let (index, surplus) = invocation(&mut scope, &rows.frame.rows);
    let mut row = Row {
        sharing: Sharing::of(&scope, &rows.frame),
        frame: &rows.frame,
        index,
        width: eight::width(scope.capabilities, &rows.frame.length),
        kept: kept(scope.graph, &rows.computed),
        scope,
        statements: vec![surplus],
        names: Vec::new(),
        shares: Vec::new(),
    };
    for stage in &rows.stages {
        row.stage(stage)?;
    }
    row.write(&rows.written)?;
    Ok(row.finish())
}

/// A kernel while it is made.
struct Row<'a, 'r> {
    scope: Scope<'a>,
    frame: &'r Frame,
    sharing: Sharing,
    /// The number of the row.
    index: Index,
    /// Neighbours that an invocation takes at once.
    width: usize,
    /// Elements of which an invocation keeps all at most.
    kept: i64,
    statements: Vec<Statement>,
    /// Names of variables so far, without numbers.
    names: Vec<&'static str>,
    /// Types of numbers that the invocations of a workgroup exchange.
    shares: Vec<Type>,
}

/// A reduction while its stage is made.
struct Running {
    operand: ValueId,
    result: ValueId,
    function: ReduceFunction,
    total: Expr,
    start: Expr,
    /// What some of the elements give, where all of them in one go would lose digits.
    part: Option<Expr>,
}

impl<'a> Row<'a, '_> {
    /// Goes through the row for reductions that need nothing from each other.
    fn stage(&mut self, nodes: &[usize]) -> Result<()> {
        let graph = self.scope.graph;
        let mut running = Vec::new();
        for node in nodes.iter().filter_map(|node| graph.nodes.get(*node)) {
            running.push(self.running(node)?);
        }
        let start = running
            .iter()
            .map(|one| Statement::Declare(one.total, one.start));
        self.statements.extend(start);
        let mut before = Vec::new();
        let mut after = Vec::new();
        for one in &running {
            if let Some(part) = one.part {
                let whole = reduce::combine(&mut self.scope, one.function, one.total, part);
                before.push(Statement::Declare(part, one.start));
                after.push(Statement::Assign(one.total, whole));
            }
        }
        let through = self.each([before, after], |scope, positions| {
            running
                .iter()
                .map(|one| one.take(scope, positions))
                .collect()
        })?;
        self.statements.extend(through);
        for one in &running {
            self.share(one);
            self.statements.push(Statement::Freeze(one.total));
            let dtype = graph.ty(one.result).dtype;
            let value = scalar::narrow(&mut self.scope.pool, one.total, dtype);
            self.scope.set_computed_at(one.result, value, &self.index);
        }
        Ok(())
    }

    fn running(&mut self, node: &Node) -> Result<Running> {
        let (Some(reduce), Some(result)) = (reduction(node), node.results.first()) else {
            return Err(Error::internal("a row is combined by what is no reduction"));
        };
        let operand = operand(node, 0)?;
        let dtype = self.scope.graph.ty(operand).dtype;
        let name = self.named(reduce::name(reduce.function));
        let (total, start) = reduce::accumulator(&mut self.scope, reduce.function, dtype, &name)?;
        let in_parts = reduce.function == ReduceFunction::Sum && dtype.is_float() && self.is_long();
        let ty = self.scope.pool.ty(total);
        let part = in_parts.then(|| self.named("part"));
        let part = part.map(|name| self.scope.pool.variable(&name, ty));
        Ok(Running {
            operand,
            result: *result,
            function: reduce.function,
            total,
            start,
            part,
        })
    }

    /// A name for a variable, with a number if it is not the first one.
    fn named(&mut self, name: &'static str) -> String {
        let known = self.names.iter().filter(|known| **known == name).count();
        self.names.push(name);
        match known {
            0 => name.to_string(),
            _ => format!("{name}{}", known + 1),
        }
    }

    /// Rounds in which the invocations take what is next of the row, and how much that is.
    fn rounds(&self) -> (Dim, Dim) {
        let units = self.frame.length.floor_div(&Dim::from(self.width));
        (pieces(&units, self.sharing.lanes()), units)
    }

    fn is_long(&self) -> bool {
        let rounds = self.rounds().0.as_const();
        rounds.is_none_or(|rounds| rounds > reduce::PARTIAL)
    }

    /// The number of rounds, if the invocations keep their elements from one stage to the next: what they read and what they
    /// compute of it. Then there is no loop.
    fn written_out(&self) -> Option<i64> {
        let rounds = self.rounds().0.as_const()?;
        (rounds * self.width as i64 <= self.kept).then_some(rounds)
    }

    /// Statements for all elements of the row: made for the places of neighbours. Long rows are taken in pieces, with
    /// statements around each, and by several rounds at once where these come in such numbers.
    fn each(
        &mut self,
        [mut before, after]: [Vec<Statement>; 2],
        body: impl Fn(&mut Scope<'a>, &[Position]) -> Result<Vec<Statement>>,
    ) -> Result<Vec<Statement>> {
        if let Some(rounds) = self.written_out() {
            let rounds = (0..rounds).map(|round| self.round(&Dim::from(round).into(), &body));
            return Ok(rounds.collect::<Result<Vec<_>>>()?.concat());
        }
        let rounds = self.rounds().0;
        if !self.is_long() {
            let (_, round) = self.scope.counter("trip", &rounds);
            let body = self.round(&round, &body)?;
            return repeat(&mut self.scope, "trip", &rounds, |_, _| Ok(body));
        }
        let is_cheap = self.kept == MOST;
        let at_once = if is_cheap && quad::is_whole(&rounds) {
            QUAD
        } else {
            1
        };
        let rounds = rounds.floor_div(&Dim::from(at_once));
        let (variable, round) = self.scope.counter("trip", &rounds);
        let first = round.scale(&Dim::from(at_once));
        let numbers = (0..at_once).map(|number| first.add_size(&Dim::from(number)));
        let all = numbers.map(|number| self.round(&number, &body));
        let body = all.collect::<Result<Vec<_>>>()?.concat();
        Ok(reduce::in_parts(
            &mut self.scope,
            (&rounds, reduce::PARTIAL / at_once as i64),
            variable,
            |piece| {
                before.push(piece(body));
                before.extend(after);
                before
            },
        ))
    }

    /// What an invocation does in a round.
    fn round(
        &mut self,
        round: &Index,
        body: &impl Fn(&mut Scope<'a>, &[Position]) -> Result<Vec<Statement>>,
    ) -> Result<Vec<Statement>> {
        let (lanes, lane) = (self.sharing.lanes(), self.lane().1);
        let units = self.rounds().1;
        let scope = &mut self.scope;
        let (unit, inside) = unit(scope, (round, &units), (lanes, &lane));
        let places = eight::neighbours(&self.index.scale(&units).add(&unit), self.width);
        let body = scope.together(self.width, |scope| body(scope, &places))?;
        Ok(match inside {
            Some(inside) => vec![Statement::If(inside, body)],
            None => body,
        })
    }

    /// The number of an invocation among those that share the row.
    fn lane(&mut self) -> (Expr, Index) {
        let name = match self.sharing {
            Sharing::Workgroup => "local",
            Sharing::Alone | Sharing::Subgroup(_) => "lane",
        };
        let lanes = Dim::from(self.sharing.lanes());
        self.scope.counter(name, &lanes)
    }

    /// Combines what the invocations have found, so that all of them know it.
    fn share(&mut self, running: &Running) {
        let (function, total) = (running.function, running.total);
        let scope = &mut self.scope;
        let ty = scope.pool.ty(total);
        match self.sharing {
            Sharing::Alone => {}
            Sharing::Subgroup(lanes) => {
                for step in lanes::distances(lanes) {
                    let exchange = match ty {
                        Type::Bool => format!("subgroupShuffleXor(u32(x), {step}u) != 0u"),
                        _ => format!("subgroupShuffleXor(x, {step}u)"),
                    };
                    let other = scope.pool.call(exchange, ty, &[total]);
                    let both = reduce::combine(scope, function, total, other);
                    self.statements.push(Statement::Assign(total, both));
                }
            }
            Sharing::Workgroup => {
                let shares = shares(ty);
                let (tree, whole) = reduce::tree(scope, function, total, &shares);
                self.statements.extend(tree);
                self.statements.push(Statement::Assign(total, whole));
                let barrier = Statement::Line("workgroupBarrier();".to_string());
                self.statements.push(barrier);
                if !self.shares.contains(&ty) {
                    self.shares.push(ty);
                }
            }
        }
    }

    /// Writes values for each element, and those for each row.
    fn write(&mut self, values: &[ValueId]) -> Result<()> {
        let graph = self.scope.graph;
        let is_wide = |value: &&ValueId| graph.ty(**value).numel() != self.frame.rows;
        let (wide, narrow): (Vec<&ValueId>, Vec<&ValueId>) = values.iter().partition(is_wide);
        if !wide.is_empty() {
            let through = self.each([Vec::new(), Vec::new()], |scope, places| {
                let mut statements = Vec::new();
                for value in &wide {
                    statements.extend(write_each(scope, **value, places)?);
                }
                Ok(statements)
            })?;
            self.statements.extend(through);
        }
        let mut last = Vec::new();
        let place = Position::at(self.index.clone());
        for value in narrow {
            let element = self.scope.element(*value, &place, None)?;
            last.push(write(&mut self.scope, *value, element, &place)?);
        }
        let lane = self.lane().0;
        if !last.is_empty() && self.sharing != Sharing::Alone {
            let zero = self.scope.pool.number(0);
            let is_first = self.scope.pool.call("x == y", Type::Bool, &[lane, zero]);
            last = vec![Statement::If(is_first, last)];
        }
        self.statements.extend(last);
        Ok(())
    }

    fn finish(self) -> Lowered<'a> {
        let rows = &self.frame.rows;
        match self.sharing {
            Sharing::Alone => {
                let workgroups = pieces(rows, INVOCATIONS as usize);
                Lowered::of_workgroups(self.scope, reduce::TEMPLATE, self.statements, workgroups)
            }
            Sharing::Subgroup(lanes) => by_subgroups(self.scope, self.statements, (rows, lanes)),
            Sharing::Workgroup => {
                let memory = self.shares.iter().map(|ty| {
                    let (name, ty) = (shares(*ty), ty.wgsl());
                    format!("var<workgroup> {name}: array<{ty}, {}>;\n", reduce::SHARERS)
                });
                let memory = memory.collect();
                let (scope, statements) = (self.scope, self.statements);
                let mut lowered =
                    Lowered::of_workgroups(scope, reduce::SHARED, statements, rows.clone());
                lowered.holes.push(("memory", memory));
                lowered
            }
        }
    }
}

/// Which of a row's units an invocation takes in a round, and where there is such a one; absent if there always is.
pub fn unit(
    scope: &mut Scope,
    (round, units): (&Index, &Dim),
    (lanes, lane): (usize, &Index),
) -> (Index, Option<Expr>) {
    let unit = round.scale(&Dim::from(lanes)).add(lane);
    let number = unit.emit(&mut scope.pool);
    let inside = (!unit.is_below(units)).then(|| {
        let end = scope.pool.size(units);
        scope.pool.call("x < y", Type::Bool, &[number, end])
    });
    (Index::expr(number, units), inside)
}

/// What subgroups of so many invocations do with a row each.
pub fn by_subgroups<'a>(
    scope: Scope<'a>,
    statements: Vec<Statement>,
    (rows, lanes): (&Dim, usize),
) -> Lowered<'a> {
    let subgroups = lanes::subgroups(lanes, example(scope.graph, rows));
    let workgroups = pieces(rows, subgroups);
    let mut lowered = Lowered::of_workgroups(scope, SUBGROUP, statements, workgroups);
    let size = lanes::size(lanes * subgroups);
    lowered.holes.extend([size, lanes::place(lanes, subgroups)]);
    lowered
}

impl Running {
    /// Takes neighbours in.
    fn take(&self, scope: &mut Scope, places: &[Position]) -> Result<Statement> {
        let mut elements = Vec::new();
        for place in places {
            elements.push(scope.element(self.operand, place, None)?);
        }
        while elements.len() > 1 {
            elements = elements
                .chunks(2)
                .map(|pair| match pair {
                    [x, y] => reduce::combine(scope, self.function, *x, *y),
                    [x, ..] => *x,
                    [] => self.start,
                })
                .collect();
        }
        let target = self.part.unwrap_or(self.total);
        let sum = elements.into_iter().fold(target, |sum, element| {
            reduce::combine(scope, self.function, sum, element)
        });
        Ok(Statement::Assign(target, sum))
    }
}

/// How many elements an invocation keeps, rather than to go through a row for each stage: more where these would repeat what is
/// dear.
fn kept(graph: &Graph, computed: &[ValueId]) -> i64 {
    let is_dear = |value: &ValueId| match graph.value(*value).definition {
        Definition::Node(node, _) => weight_of(&graph.nodes[node]) >= DEAR,
        _ => false,
    };
    if computed.iter().any(is_dear) {
        MOST_IF_DEAR
    } else {
        MOST
    }
}

/// The memory in which a workgroup exchanges numbers of a type.
fn shares(ty: Type) -> String {
    format!("shares_{}", ty.wgsl())
}

/// Writes neighbours.
fn write_each(scope: &mut Scope, value: ValueId, places: &[Position]) -> Result<Vec<Statement>> {
    let mut parts = Vec::new();
    for place in places {
        parts.push((scope.element(value, place, None)?, place.clone()));
    }
    eight::write_all(scope, value, &parts)
}
