//! Numbers of tiles times matrices, written out: factors of 0 and 1 are left out, and what differs by a sign only is shared.

use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, Pool, Type};
use crate::kernel::winograd::Matrix;

/// Vectors by row and column.
pub(super) type Square = Vec<Vec<Expr>>;

/// A term of a sum: a vector and its factor.
type Term = (f64, Expr);

/// The numbers of a tile times a matrix from both sides.
pub(super) struct Transformed {
    /// Columns one after the other: the numbers, and what they are times the matrix from one side.
    pub(super) columns: Vec<Statement>,
    /// By row and column.
    pub(super) numbers: Square,
    /// Operations on vectors that make them.
    operations: usize,
}

impl Transformed {
    pub(super) fn new(pool: &mut Pool, by: Matrix, numbers: &Square) -> Transformed {
        let mut writer = Writer {
            pool,
            operations: 0,
        };
        let (mut columns, mut half) = (Vec::new(), vec![Vec::new(); by.len()]);
        for x in 0..numbers.len() {
            let column: Vec<Expr> = numbers.iter().map(|row| row[x]).collect();
            let sums = writer.times(by, &column);
            for (y, (row, sum)) in half.iter_mut().zip(&sums).enumerate() {
                writer.pool.set_label(*sum, &format!("half{y}{x}"));
                row.push(*sum);
            }
            columns.extend(column.into_iter().chain(sums).map(Statement::Let));
        }
        Transformed {
            columns,
            numbers: half.iter().map(|row| writer.times(by, row)).collect(),
            operations: writer.operations,
        }
    }

    /// The operations on vectors that a tile's numbers times a matrix from both sides take.
    pub(super) fn operations(by: Matrix) -> usize {
        let mut pool = Pool::default();
        let side = by.first().map_or(0, |row| row.len());
        let mut number = |y, x| pool.variable(&format!("d{y}{x}"), Type::F32x4);
        let mut row = |y| (0..side).map(|x| number(y, x)).collect();
        let numbers: Square = (0..side).map(&mut row).collect();
        Transformed::new(&mut pool, by, &numbers).operations
    }
}

/// Writes sums of vectors, and counts the operations on them.
struct Writer<'p> {
    pool: &'p mut Pool,
    operations: usize,
}

impl Writer<'_> {
    /// A matrix times vectors. Neighbouring columns that differ by signs only are columns of the sum and the difference of
    /// their vectors; such rows are the sum and the difference of what they have in common and what differs.
    fn times(&mut self, by: Matrix, vectors: &[Expr]) -> Vec<Expr> {
        let mut rows: Vec<Vec<Term>> = by
            .iter()
            .map(|row| row.iter().copied().zip(vectors.iter().copied()).collect())
            .collect();
        for k in 1..vectors.len() {
            if are_mirrored(by.iter().map(|row| (row[k - 1], row[k]))) {
                self.halve(&mut rows, k);
            }
        }
        let mut sums: Vec<Expr> = Vec::new();
        while let Some(row) = rows.get(sums.len()) {
            match rows.get(sums.len() + 1) {
                Some(next) if are_mirrored(factors(row, next)) => sums.extend(self.both(row, next)),
                _ => sums.push(self.sum(row)),
            }
        }
        sums
    }

    /// Puts the sum and the difference of two vectors in their place.
    fn halve(&mut self, rows: &mut [Vec<Term>], k: usize) {
        for row in rows {
            let ((a, x), (b, y)) = (row[k - 1], row[k]);
            if a != 0.0 {
                let template = if a == b { "x + y" } else { "x - y" };
                row[k - 1] = (a, self.call(template, [x, y]));
                row[k] = (0.0, y);
            }
        }
    }

    /// Two rows that differ by signs only.
    fn both(&mut self, row: &[Term], next: &[Term]) -> [Expr; 2] {
        let pairs = || row.iter().zip(next);
        let common: Vec<Term> = pairs()
            .filter(|(a, b)| a.0 == b.0)
            .map(|(a, _)| *a)
            .collect();
        let other: Vec<Term> = pairs()
            .filter(|(a, b)| a.0 != b.0)
            .map(|(a, _)| *a)
            .collect();
        let (common, other) = (self.sum(&common), self.sum(&other));
        self.pool.set_label(common, "even");
        self.pool.set_label(other, "odd");
        ["x + y", "x - y"].map(|template| self.call(template, [common, other]))
    }

    /// A sum, its positive terms first.
    fn sum(&mut self, terms: &[Term]) -> Expr {
        let with = |sign: f64| terms.iter().filter(move |term| sign * term.0 > 0.0);
        let mut sum = None;
        for (factor, vector) in with(1.0).chain(with(-1.0)).copied() {
            sum = Some(match sum {
                None => self.scaled(vector, factor),
                Some(sum) => {
                    let term = self.scaled(vector, factor.abs());
                    let template = if factor > 0.0 { "x + y" } else { "x - y" };
                    self.call(template, [sum, term])
                }
            });
        }
        sum.unwrap_or_else(|| self.pool.call("vec4<f32>()", Type::F32x4, &[]))
    }

    fn scaled(&mut self, vector: Expr, factor: f64) -> Expr {
        if factor == 1.0 {
            return vector;
        }
        let factor = self.pool.literal(Type::F32, factor);
        self.call("x * y", [factor, vector])
    }

    fn call(&mut self, template: &'static str, operands: [Expr; 2]) -> Expr {
        self.operations += 1;
        self.pool.call(template, Type::F32x4, &operands)
    }
}

/// The factors of two rows.
fn factors<'t>(row: &'t [Term], next: &'t [Term]) -> impl Iterator<Item = (f64, f64)> + 't {
    row.iter().zip(next).map(|(a, b)| (a.0, b.0))
}

/// True for factors that differ by signs only, some and not all of them.
fn are_mirrored(mut pairs: impl Iterator<Item = (f64, f64)>) -> bool {
    let (mut some_equal, mut some_opposite) = (false, false);
    let differ_by_signs = pairs.all(|(a, b)| {
        some_equal |= a == b && a != 0.0;
        some_opposite |= a == -b && a != 0.0;
        a.abs() == b.abs()
    });
    differ_by_signs && some_equal && some_opposite
}
