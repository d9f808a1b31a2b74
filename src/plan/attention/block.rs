//! One block of keys: its scores, their softmax weights, and the weighted sum of its values.

use super::{AttentionTile, QueryRow, VectorAxis};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, ExprPool, WgslType};
use crate::kernel::index::{self, Index};
use crate::op::{ReduceFunction, UnaryFunction};
use crate::plan::cost::example_size;
use crate::plan::element::position::Position;
use crate::plan::element::vec4::{self, ElementRef, VEC4_LEN};
use crate::plan::element::{KernelScope, scalar};
use crate::plan::kernel::clamped_index;
use crate::plan::reduce;

/// Softmax weights of one row's scores in a block, and the factor that rescales the row's previous sums.
struct SoftmaxWeights {
    weights: Vec<Expr>,
    rescale: Expr,
}

impl AttentionTile<'_> {
    /// Adds a block of keys to all rows.
    pub(super) fn add_block(
        &self,
        scope: &mut KernelScope,
        block: &Index,
    ) -> Result<Vec<Statement>> {
        let first = block.scale(&Dim::from(self.shape.keys));
        let scores = self.score_variables(&mut scope.pool);
        let mut statements = self.multiply_keys(scope, &first, &scores)?;
        let mut weights = Vec::new();
        for (row, scores) in self.rows.iter().zip(&scores) {
            let scores = self.masked_scores(scope, row, &first, scores)?;
            let (of_row, updates) = self.softmax_weights(scope, row, &scores);
            weights.push(of_row);
            statements.extend(updates);
        }
        statements.extend(self.add_values(scope, &first, &weights)?);
        Ok(statements)
    }

    /// Creates variables for the scores, by row and key.
    fn score_variables(&self, pool: &mut ExprPool) -> Vec<Vec<Expr>> {
        let keys = 0..self.shape.keys;
        let mut of_row = |r: usize| {
            let names = keys.clone().map(|key| format!("score{r}_{key}"));
            names
                .map(|name| pool.variable(&name, WgslType::F32))
                .collect()
        };
        (0..self.rows.len()).map(&mut of_row).collect()
    }

    /// Multiplies queries and keys.
    fn multiply_keys(
        &self,
        scope: &mut KernelScope,
        first: &Index,
        scores: &[Vec<Expr>],
    ) -> Result<Vec<Statement>> {
        let product = self.scores;
        let outer = index::reshape(&self.batch, &self.values.batch, &product.batch);
        let axis = self.vector_axes[0];
        let keys = self.shuffled(
            scope,
            first,
            &product.k_size,
            axis,
            "key",
            |scope, key, at| product.right_element(scope, &outer, at, key),
        )?;
        let mut statements = Vec::new();
        for (quad, keys) in keys.iter().enumerate() {
            let queries = self.load_queries(scope, &outer, quad)?;
            for (key, numbers) in keys.iter().enumerate() {
                for (query, scores) in queries.iter().zip(scores) {
                    let product = dot_vec4(&mut scope.pool, *query, *numbers);
                    statements.push(match quad {
                        0 => Statement::Declare(scores[key], product),
                        _ => add_to(&mut scope.pool, scores[key], product),
                    });
                }
            }
        }
        statements.extend(scores.iter().flatten().copied().map(Statement::Freeze));
        Ok(statements)
    }

    /// Loads four channels of each row's query.
    fn load_queries(
        &self,
        scope: &mut KernelScope,
        outer: &[Index],
        quad: usize,
    ) -> Result<Vec<Expr>> {
        let steps = (0..VEC4_LEN).map(|part| Index::from(Dim::from(quad * VEC4_LEN + part)));
        let steps: Vec<Index> = steps.collect();
        let mut queries = Vec::new();
        for row in &self.rows {
            let row = clamped_index(scope, &row.index, &self.scores.rows);
            let factors = steps.iter();
            let factors = factors.map(|step| (self.scores.left_element(outer, &row, step), None));
            queries.push(vec4::load_vec4(scope, &factors.collect::<Vec<_>>())?);
        }
        Ok(queries)
    }

    /// Loads the keys (or values) of a block and shuffles them to all invocations. The result is indexed by vec4 of
    /// channels, then by key. Where a subgroup has more invocations than the block has keys, the others read the next
    /// vec4 of channels.
    fn shuffled(
        &self,
        scope: &mut KernelScope,
        first: &Index,
        channels: &Dim,
        axis: VectorAxis,
        name: &str,
        factor: impl Fn(&mut KernelScope, &Index, &Index) -> (ElementRef, Option<Expr>),
    ) -> Result<Vec<Vec<Expr>>> {
        let vec4s_per_load = self.lanes / self.shape.keys;
        let mut handed = Vec::new();
        for quad in (0..example_size(scope.graph, channels) / VEC4_LEN).step_by(vec4s_per_load) {
            let factors = match axis {
                VectorAxis::Channels => self.channel_positions(scope, first, quad),
                VectorAxis::Keys => self.key_positions(scope, first, quad),
            };
            let factors = factors.map(|[key, channel]| factor(scope, &key, &channel));
            let read = vec4::load_vec4(scope, &factors)?;
            let lanes: Vec<usize> = (0..self.lanes).collect();
            let all = shuffle_to_all(&mut scope.pool, read, &lanes, name);
            handed.extend(all.chunks(self.shape.keys).map(|quads| match axis {
                VectorAxis::Channels => quads.to_vec(),
                VectorAxis::Keys => transpose(&mut scope.pool, quads),
            }));
        }
        Ok(handed)
    }

    /// Returns positions for [`VectorAxis::Channels`]: four channels of the invocation's key, as `[key, channel]`.
    fn channel_positions(
        &self,
        scope: &mut KernelScope,
        first: &Index,
        quad: usize,
    ) -> [[Index; 2]; VEC4_LEN] {
        let keys = Dim::from(self.shape.keys);
        let key = clamped_index(
            scope,
            &first.add(&self.lane.rem(&keys)),
            &self.values.k_size,
        );
        let quad = self.lane.div(&keys).add_size(&Dim::from(quad));
        vec4::neighbours(&[quad], 0).map(|at| [key.clone(), at[0].clone()])
    }

    /// Returns positions for [`VectorAxis::Keys`]: the invocation's channel of four keys, as `[key, channel]`.
    fn key_positions(
        &self,
        scope: &mut KernelScope,
        first: &Index,
        quad: usize,
    ) -> [[Index; 2]; VEC4_LEN] {
        let whole = Dim::from(VEC4_LEN);
        let (quads, all) = (Dim::from(self.shape.keys / VEC4_LEN), &self.values.k_size);
        let key = first.div(&whole).add(&self.lane.rem(&quads));
        let key = clamped_index(scope, &key, &all.floor_div(&whole));
        let channel = self.lane.div(&quads).add_size(&Dim::from(quad * VEC4_LEN));
        vec4::neighbours(&[key], 0).map(|at| [at[0].clone(), channel.clone()])
    }

    /// Computes the input of the softmax (scale, mask) from the scores of a row. Keys beyond the last one get minus
    /// infinity.
    fn masked_scores(
        &self,
        scope: &mut KernelScope,
        row: &QueryRow,
        first: &Index,
        scores: &[Expr],
    ) -> Result<Vec<Expr>> {
        let value = self.attention.softmax_of;
        let [outer @ .., _, _] = scope.graph.ty(value).shape.as_slice() else {
            return Ok(scores.to_vec());
        };
        let mut at = index::reshape(&self.batch, &self.values.batch, outer);
        at.push(clamped_index(scope, &row.index, &self.values.rows));
        let mut masked = Vec::new();
        for (key, score) in scores.iter().enumerate() {
            let number = first.add_size(&Dim::from(key));
            let key = clamped_index(scope, &number, &self.values.k_size);
            let at = Position::from_coordinates([at.as_slice(), &[key]].concat());
            scope.set_computed(self.scores.result, *score);
            let element = scope.with_vec4(|scope| scope.element(value, &at, None))?;
            masked.push(if number.is_less_than(&self.values.k_size) {
                element
            } else {
                let inside = scope.is_below(&number, &self.values.k_size);
                scope.pool.select(inside, element, self.minus_infinity)
            });
        }
        Ok(masked)
    }

    /// Computes the softmax weights of scores relative to the largest score so far. All weights are zero where that is
    /// minus infinity.
    fn softmax_weights(
        &self,
        scope: &mut KernelScope,
        row: &QueryRow,
        scores: &[Expr],
    ) -> (SoftmaxWeights, Vec<Statement>) {
        let next = scores.iter().fold(row.running_max, |largest, score| {
            reduce::combine(scope, ReduceFunction::Max, largest, *score)
        });
        let pool = &mut scope.pool;
        let zero = pool.literal(WgslType::F32, 0.0);
        let is_lowest = pool.call("x == y", WgslType::Bool, &[next, self.minus_infinity]);
        let base = pool.select(is_lowest, zero, next);
        let mut weigh = |score: Expr, name: &str| {
            let shifted = pool.call("x - y", WgslType::F32, &[score, base]);
            let weight = scalar::unary(pool, UnaryFunction::Exp, shifted, DType::F32);
            pool.set_label(weight, name);
            weight
        };
        let kept = weigh(row.running_max, "kept");
        let weights: Vec<Expr> = scores.iter().map(|score| weigh(*score, "weight")).collect();
        let named = [next, base, kept]
            .into_iter()
            .chain(weights.iter().copied());
        let mut statements: Vec<Statement> = named.map(Statement::Let).collect();
        pool.set_label(next, "next");
        pool.set_label(base, "base");
        statements.push(Statement::Assign(row.running_max, next));
        statements.push(rescale_and_add(
            pool,
            row.running_sum,
            kept,
            weights.clone(),
        ));
        (
            SoftmaxWeights {
                weights,
                rescale: kept,
            },
            statements,
        )
    }

    /// Adds the weighted values to the output of each row.
    fn add_values(
        &self,
        scope: &mut KernelScope,
        first: &Index,
        weighed: &[SoftmaxWeights],
    ) -> Result<Vec<Statement>> {
        let product = self.values;
        let axis = self.vector_axes[1];
        let values = self.shuffled(
            scope,
            first,
            &product.columns,
            axis,
            "value",
            |scope, key, at| product.right_element(scope, &self.batch, key, at),
        )?;
        let pool = &mut scope.pool;
        let mut statements = Vec::new();
        for (quad, values) in values.iter().enumerate() {
            for (
                row,
                SoftmaxWeights {
                    weights,
                    rescale: kept,
                },
            ) in self.rows.iter().zip(weighed)
            {
                let pairs = weights.iter().zip(values);
                let terms = pairs.map(|(x, y)| pool.call("x * y", WgslType::F32x4, &[*x, *y]));
                let terms = terms.collect();
                statements.push(rescale_and_add(pool, row.output[quad], *kept, terms));
            }
        }
        Ok(statements)
    }
}

/// Transposes vec4s of keys, one per channel, into vec4s of channels, one per key.
fn transpose(pool: &mut ExprPool, quads: &[Expr]) -> Vec<Expr> {
    let of_channel = quads.len() / VEC4_LEN;
    let of_key = |key: usize| {
        let quads = (0..VEC4_LEN).map(|channel| quads[channel * of_channel + key / VEC4_LEN]);
        let parts: Vec<Expr> = quads
            .map(|quad| vec4::component(pool, quad, key % VEC4_LEN, WgslType::F32))
            .collect();
        vec4::build_vec4(pool, &parts, WgslType::F32x4)
    };
    (0..quads.len()).map(of_key).collect()
}

/// Shuffles a loaded vector from each of some lanes to all lanes.
fn shuffle_to_all(pool: &mut ExprPool, read: Expr, lanes: &[usize], name: &str) -> Vec<Expr> {
    let hand = |lane: &usize| {
        let lane = pool.index(*lane as u32);
        let handed = pool.call("subgroupShuffle(x, y)", WgslType::F32x4, &[read, lane]);
        pool.set_label(handed, name);
        handed
    };
    lanes.iter().map(hand).collect()
}

/// Returns the dot product of two vec4s.
fn dot_vec4(pool: &mut ExprPool, x: Expr, y: Expr) -> Expr {
    let products = pool.call("x * y", WgslType::F32x4, &[x, y]);
    pool.set_label(products, "products");
    let parts = (0..VEC4_LEN).map(|part| vec4::component(pool, products, part, WgslType::F32));
    let parts = parts.collect();
    pairwise_sum(pool, parts).unwrap_or(products)
}

fn add_to(pool: &mut ExprPool, sum: Expr, term: Expr) -> Statement {
    let ty = pool.ty(sum);
    Statement::Assign(sum, pool.call("x + y", ty, &[sum, term]))
}

/// Rescales the running sum and adds new terms (online softmax).
fn rescale_and_add(pool: &mut ExprPool, sum: Expr, factor: Expr, terms: Vec<Expr>) -> Statement {
    let ty = pool.ty(sum);
    let kept = pool.call("x * y", ty, &[sum, factor]);
    let terms = pairwise_sum(pool, terms).into_iter();
    let total = terms.fold(kept, |kept, terms| pool.call("x + y", ty, &[kept, terms]));
    Statement::Assign(sum, total)
}

/// Sums terms pairwise as a tree. `None` if there are no terms.
fn pairwise_sum(pool: &mut ExprPool, mut terms: Vec<Expr>) -> Option<Expr> {
    while terms.len() > 1 {
        let pairs = terms.chunks(2).map(|pair| match pair {
            [x, y] => pool.call("x + y", pool.ty(*x), &[*x, *y]),
            _ => pair[0],
        });
        terms = pairs.collect();
    }
    terms.pop()
}
