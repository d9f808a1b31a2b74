//! The first few of each row: an invocation walks along a row and keeps those that come first so far, in order. Rows that are
//! long and few are cut into parts, see [`crate::pass::plan::fuse::selection`].

use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, Literal, Type};
use crate::kernel::index::{self, Index};
use crate::pass::plan::element::{Scope, scalar, write};
use crate::pass::plan::kernel::{Lowered, invocation, repeat};
use crate::pass::plan::sort::Sorting;

const TEMPLATE: &str = include_str!("../../../../shaders/topk.wgsl");

/// So many are kept at most: each takes two registers, and some lines of text.
pub const MOST: usize = 64;

/// A place among the first: what the element there is compared by, and its index.
struct Place {
    key: Expr,
    index: Expr,
}

/// An element that may come among the first.
struct Candidate {
    key: Expr,
    index: Expr,
    /// For each place whether the element comes before what is there, or nothing is.
    comes_before: Vec<Expr>,
}

impl Sorting {
    /// The first elements of each row, in order.
    pub(super) fn first<'a>(&self, mut scope: Scope<'a>, k: usize) -> Result<Lowered<'a>> {
        let (number, surplus) = invocation(&mut scope, &self.rows.count);
        let row = index::coordinates(&number, &self.rows.others);
        let ty = match scope.register(scope.graph.ty(self.x).dtype) {
            Type::F32 => Type::I32,
            ty => ty,
        };
        let places: Vec<Place> = (0..k).map(|i| Place::new(&mut scope, i, ty)).collect();
        let mut statements = vec![surplus];
        for place in &places {
            statements.extend(place.declare(&mut scope));
        }
        statements.extend(repeat(&mut scope, "k", &self.size, |scope, along| {
            let candidate = self.candidate(scope, &row, &along, &places)?;
            Ok(candidate.take_place(scope, &places))
        })?);
        for (rank, place) in places.iter().enumerate() {
            statements.push(Statement::Freeze(place.index));
            statements.extend(self.write_place(&mut scope, &row, rank, place)?);
        }
        let mut lowered = Lowered::new(scope, TEMPLATE, statements, &self.rows.count);
        lowered.title = Some("topk");
        Ok(lowered)
    }

    /// What an element is compared by: numbers of single precision by whole numbers, which takes one comparison.
    fn key(&self, scope: &mut Scope, element: Expr) -> Expr {
        let key = match scope.pool.ty(element) {
            Type::F32 => scope.pool.call("order_of(x)", Type::I32, &[element]),
            _ => element,
        };
        scope.pool.set_label(key, "key");
        key
    }

    /// The element at a place of a row, compared with all that have a place so far.
    fn candidate(
        &self,
        scope: &mut Scope,
        row: &[Index],
        along: &Index,
        places: &[Place],
    ) -> Result<Candidate> {
        let element = scope.element(self.x, &self.rows.at(row, along), None)?;
        let key = self.key(scope, element);
        let index = along.emit(&mut scope.pool);
        let mut comes_before = Vec::new();
        for (rank, place) in (0..).zip(places) {
            let is_before = self.is_before(scope, key, place.key);
            let pool = &mut scope.pool;
            let rank = pool.number(rank);
            let is_free = pool.call("x <= y", Type::Bool, &[index, rank]);
            comes_before.push(pool.call("x || y", Type::Bool, &[is_before, is_free]));
        }
        Ok(Candidate {
            key,
            index,
            comes_before,
        })
    }

    /// Writes the element at a place among the first, and its index.
    fn write_place(
        &self,
        scope: &mut Scope,
        row: &[Index],
        rank: usize,
        place: &Place,
    ) -> Result<[Statement; 2]> {
        let [values, indices] = self.results;
        let target = self.rows.at(row, &Index::from(rank));
        let found = self.rows.at(row, &Index::expr(place.index, &self.size));
        let element = scope.element(self.x, &found, None)?;
        let number = scalar::size(&mut scope.pool, place.index, DType::I64, scope.capabilities);
        Ok([
            write(scope, values, element, &target)?,
            write(scope, indices, number, &target)?,
        ])
    }
}

impl Place {
    fn new(scope: &mut Scope, rank: usize, key: Type) -> Place {
        Place {
            key: scope.pool.variable(&format!("key{rank}"), key),
            index: scope.pool.variable(&format!("index{rank}"), Type::U32),
        }
    }

    fn declare(&self, scope: &mut Scope) -> [Statement; 2] {
        let pool = &mut scope.pool;
        let nothing = match pool.ty(self.key) {
            Type::Bool => pool.literal(Type::Bool, Literal::Bool(false)),
            ty @ (Type::F32 | Type::F64) => pool.literal(ty, 0.0),
            ty => pool.literal(ty, Literal::Integer(0)),
        };
        let zero = pool.number(0);
        [
            Statement::Declare(self.key, nothing),
            Statement::Declare(self.index, zero),
        ]
    }
}

impl Candidate {
    /// The element takes the first place that it comes before, and what was there and behind moves on by one.
    fn take_place(&self, scope: &mut Scope, places: &[Place]) -> Vec<Statement> {
        let pool = &mut scope.pool;
        let all = self.comes_before.iter();
        let mut statements: Vec<Statement> = all.map(|before| Statement::Let(*before)).collect();
        for (rank, place) in places.iter().enumerate().rev() {
            let (mut key, mut index) = (self.key, self.index);
            if let Some(before) = rank.checked_sub(1) {
                let moves = self.comes_before[before];
                key = pool.select(moves, places[before].key, key);
                index = pool.select(moves, places[before].index, index);
            }
            let takes = self.comes_before[rank];
            key = pool.select(takes, key, place.key);
            index = pool.select(takes, index, place.index);
            statements.push(Statement::Assign(place.key, key));
            statements.push(Statement::Assign(place.index, index));
        }
        statements
    }
}
