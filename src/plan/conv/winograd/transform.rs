//! Winograd transforms as straight-line code: tiles times constant matrices. Factors of 0 and 1 cost nothing, and terms
//! that differ by sign only are shared.

use crate::error::Result;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, ExprPool, WgslType};

/// A matrix of vec4s, by row and column.
pub(super) type ExprMatrix = Vec<Vec<Expr>>;

/// A term of a sum: a vector and the factor in front of it.
type ScaledVector = (f64, Expr);

/// A tile multiplied by a matrix from the left and by its transpose from the right.
pub(super) struct TileTransform {
    /// Statements, one column after the other: the column's inputs, and their products with the matrix from one side.
    pub(super) statements: Vec<Statement>,
    /// Results by row and column.
    pub(super) results: ExprMatrix,
    /// Vector operations that compute the results.
    operations: usize,
}

impl TileTransform {
    /// Computes `M T Mᵀ` for a matrix `M` and a tile `T`.
    pub(super) fn new(
        pool: &mut ExprPool,
        matrix: &[impl AsRef<[f64]>],
        tile: &ExprMatrix,
    ) -> TileTransform {
        let mut writer = SumWriter {
            pool,
            operations: 0,
        };
        let (mut statements, mut products) = (Vec::new(), vec![Vec::new(); matrix.len()]);
        for x in 0..tile.len() {
            let column: Vec<Expr> = tile.iter().map(|row| row[x]).collect();
            let column_products = writer.multiply(matrix, &column);
            for (y, (row, product)) in products.iter_mut().zip(&column_products).enumerate() {
                writer.pool.set_label(*product, &format!("half{y}{x}"));
                row.push(*product);
            }
            statements.extend(
                column
                    .into_iter()
                    .chain(column_products)
                    .map(Statement::Let),
            );
        }
        TileTransform {
            statements,
            results: products
                .iter()
                .map(|row| writer.multiply(matrix, row))
                .collect(),
            operations: writer.operations,
        }
    }

    /// Returns the number of vector operations of the transform by a matrix.
    pub(super) fn operations(matrix: &[impl AsRef<[f64]>]) -> usize {
        let mut pool = ExprPool::default();
        let side = matrix.first().map_or(0, |row| row.as_ref().len());
        let mut vector = |y, x| pool.variable(&format!("d{y}{x}"), WgslType::F32x4);
        let mut row = |y| (0..side).map(|x| vector(y, x)).collect();
        let tile: ExprMatrix = (0..side).map(&mut row).collect();
        TileTransform::new(&mut pool, matrix, &tile).operations
    }
}

/// Builds a square matrix. `make` returns the element of a row and a column.
pub(super) fn try_matrix(
    side: usize,
    mut make: impl FnMut(usize, usize) -> Result<Expr>,
) -> Result<ExprMatrix> {
    let row = |y| (0..side).map(|x| make(y, x)).collect();
    (0..side).map(row).collect()
}

/// Iterates over vectors with their rows and columns.
pub(super) fn enumerate_matrix(
    vectors: &ExprMatrix,
) -> impl Iterator<Item = (usize, usize, Expr)> + '_ {
    let rows = vectors.iter().enumerate();
    rows.flat_map(|(y, row)| {
        row.iter()
            .enumerate()
            .map(move |(x, vector)| (y, x, *vector))
    })
}

/// Emits sums of vectors and counts the operations.
struct SumWriter<'p> {
    pool: &'p mut ExprPool,
    operations: usize,
}

impl SumWriter<'_> {
    /// Multiplies a matrix by a vector of vectors. Neighbouring columns that differ in signs only are replaced by the
    /// sum and the difference of their vectors. Neighbouring rows that differ in signs only are computed as sum and
    /// difference of their common and their differing terms.
    fn multiply(&mut self, matrix: &[impl AsRef<[f64]>], vectors: &[Expr]) -> Vec<Expr> {
        let factors = || matrix.iter().map(|row| row.as_ref());
        let mut rows: Vec<Vec<ScaledVector>> = factors()
            .map(|row| row.iter().copied().zip(vectors.iter().copied()).collect())
            .collect();
        for k in 1..vectors.len() {
            if differ_in_some_signs(factors().map(|row| (row[k - 1], row[k]))) {
                self.fold_mirrored_columns(&mut rows, k);
            }
        }
        let mut sums: Vec<Expr> = Vec::new();
        while let Some(row) = rows.get(sums.len()) {
            match rows.get(sums.len() + 1) {
                Some(next) if differ_in_some_signs(factor_pairs(row, next)) => {
                    sums.extend(self.fold_mirrored_rows(row, next))
                }
                _ => sums.push(self.sum(row)),
            }
        }
        sums
    }

    /// Replaces vectors `k - 1` and `k` by their sum in rows where their factors are equal, and by their difference in
    /// the others.
    fn fold_mirrored_columns(&mut self, rows: &mut [Vec<ScaledVector>], k: usize) {
        for row in rows {
            let ((left_factor, left), (right_factor, right)) = (row[k - 1], row[k]);
            if left_factor != 0.0 {
                let template = if left_factor == right_factor {
                    "x + y"
                } else {
                    "x - y"
                };
                row[k - 1] = (left_factor, self.call(template, [left, right]));
                row[k] = (0.0, right);
            }
        }
    }

    /// Computes two rows that differ in signs only.
    fn fold_mirrored_rows(&mut self, row: &[ScaledVector], next: &[ScaledVector]) -> [Expr; 2] {
        let pairs = || row.iter().zip(next);
        let common: Vec<ScaledVector> = pairs()
            .filter(|(a, b)| a.0 == b.0)
            .map(|(a, _)| *a)
            .collect();
        let opposite: Vec<ScaledVector> = pairs()
            .filter(|(a, b)| a.0 != b.0)
            .map(|(a, _)| *a)
            .collect();
        let (common, opposite) = (self.sum(&common), self.sum(&opposite));
        self.pool.set_label(common, "even");
        self.pool.set_label(opposite, "odd");
        ["x + y", "x - y"].map(|template| self.call(template, [common, opposite]))
    }

    /// Sums terms, positive ones first.
    fn sum(&mut self, terms: &[ScaledVector]) -> Expr {
        let with_sign = |sign: f64| terms.iter().filter(move |term| sign * term.0 > 0.0);
        let mut sum = None;
        for (factor, vector) in with_sign(1.0).chain(with_sign(-1.0)).copied() {
            sum = Some(match sum {
                None => self.scaled(vector, factor),
                Some(sum) => {
                    let term = self.scaled(vector, factor.abs());
                    let template = if factor > 0.0 { "x + y" } else { "x - y" };
                    self.call(template, [sum, term])
                }
            });
        }
        sum.unwrap_or_else(|| self.pool.call("vec4<f32>()", WgslType::F32x4, &[]))
    }

    /// Multiplies a vector by a factor.
    fn scaled(&mut self, vector: Expr, factor: f64) -> Expr {
        if factor == 1.0 {
            return vector;
        }
        let factor = self.pool.literal(WgslType::F32, factor);
        self.call("x * y", [factor, vector])
    }

    /// Emits a vector operation and counts it.
    fn call(&mut self, template: &'static str, operands: [Expr; 2]) -> Expr {
        self.operations += 1;
        self.pool.call(template, WgslType::F32x4, &operands)
    }
}

/// Pairs the factors of two rows.
fn factor_pairs<'t>(
    row: &'t [ScaledVector],
    next: &'t [ScaledVector],
) -> impl Iterator<Item = (f64, f64)> + 't {
    row.iter().zip(next).map(|(a, b)| (a.0, b.0))
}

/// Returns whether factors differ in signs only, and some but not all of them do.
fn differ_in_some_signs(mut pairs: impl Iterator<Item = (f64, f64)>) -> bool {
    let (mut some_equal, mut some_opposite) = (false, false);
    let differ_by_signs = pairs.all(|(a, b)| {
        some_equal |= a == b && a != 0.0;
        some_opposite |= a == -b && a != 0.0;
        a.abs() == b.abs()
    });
    differ_by_signs && some_equal && some_opposite
}
