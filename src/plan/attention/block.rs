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

/// Softmax weights of one row's scores in a block.
struct SoftmaxWeights {
    /// The weights, by key.
    weights: Vec<Expr>,
    /// Factor that rescales the row's sums of the previous blocks.
    rescale: Expr,
}

impl AttentionTile<'_> {
    /// Adds a block of keys to all rows.
    pub(super) fn add_block(
        &self,
        scope: &mut KernelScope,
        block: &Index,
    ) -> Result<Vec<Statement>> {
        let first_key = block.scale(&Dim::from(self.shape.keys));
        let scores = self.score_variables(&mut scope.pool);
        let mut statements = self.multiply_keys(scope, &first_key, &scores)?;
        let mut weights = Vec::new();
        for (row, scores) in self.rows.iter().zip(&scores) {
            let scores = self.masked_scores(scope, row, &first_key, scores)?;
            let (row_weights, updates) = self.softmax_weights(scope, row, &scores);
            weights.push(row_weights);
            statements.extend(updates);
        }
        statements.extend(self.add_values(scope, &first_key, &weights)?);
        Ok(statements)
    }

    /// Creates variables for the scores, by row and key.
    fn score_variables(&self, pool: &mut ExprPool) -> Vec<Vec<Expr>> {
        let keys = 0..self.shape.keys;
        let mut row_scores = |r: usize| {
            let names = keys.clone().map(|key| format!("score{r}_{key}"));
            names
                .map(|name| pool.variable(&name, WgslType::F32))
                .collect()
        };
        (0..self.rows.len()).map(&mut row_scores).collect()
    }

    /// Computes the scores of a block: the products of queries and keys. `first_key` is the index of the block's first
    /// key.
    fn multiply_keys(
        &self,
        scope: &mut KernelScope,
        first_key: &Index,
        scores: &[Vec<Expr>],
    ) -> Result<Vec<Statement>> {
        let product = self.scores;
        let batch = index::reshape(&self.batch, &self.values.batch, &product.batch);
        let axis = self.vector_axes[0];
        let keys = self.shuffled(
            scope,
            first_key,
            &product.k_size,
            axis,
            "key",
            |scope, key, channel| product.right_element(scope, &batch, channel, key),
        )?;
        let mut statements = Vec::new();
        for (vec4_index, keys) in keys.iter().enumerate() {
            let queries = self.load_queries(scope, &batch, vec4_index)?;
            for (key, numbers) in keys.iter().enumerate() {
                for (query, scores) in queries.iter().zip(scores) {
                    let product = dot_vec4(&mut scope.pool, *query, *numbers);
                    statements.push(match vec4_index {
                        0 => Statement::Declare(scores[key], product),
                        _ => add_to(&mut scope.pool, scores[key], product),
                    });
                }
            }
        }
        statements.extend(scores.iter().flatten().copied().map(Statement::Freeze));
        Ok(statements)
    }

    /// Loads the vec4 of channels with this index from each row's query.
    fn load_queries(
        &self,
        scope: &mut KernelScope,
        batch: &[Index],
        vec4_index: usize,
    ) -> Result<Vec<Expr>> {
        let channels = (0..VEC4_LEN)
            .map(|component| Index::from(Dim::from(vec4_index * VEC4_LEN + component)));
        let channels: Vec<Index> = channels.collect();
        let mut queries = Vec::new();
        for row in &self.rows {
            let row = clamped_index(scope, &row.index, &self.scores.rows);
            let elements = channels.iter();
            let elements =
                elements.map(|channel| (self.scores.left_element(batch, &row, channel), None));
            queries.push(vec4::load_vec4(scope, &elements.collect::<Vec<_>>())?);
        }
        Ok(queries)
    }

    /// Loads the keys (or values) of a block and shuffles them to all invocations. `element` returns the element of a
    /// key and a channel. The result is indexed by vec4 of channels, then by key. If a subgroup has more invocations
    /// than the block has keys, the others read the next vec4 of channels.
    fn shuffled(
        &self,
        scope: &mut KernelScope,
        first: &Index,
        channels: &Dim,
        axis: VectorAxis,
        name: &str,
        element: impl Fn(&mut KernelScope, &Index, &Index) -> (ElementRef, Option<Expr>),
    ) -> Result<Vec<Vec<Expr>>> {
        let vec4s_per_load = self.lanes / self.shape.keys;
        let mut vectors = Vec::new();
        for channel_vec4 in
            (0..example_size(scope.graph, channels) / VEC4_LEN).step_by(vec4s_per_load)
        {
            let positions = match axis {
                VectorAxis::Channels => self.channel_positions(scope, first, channel_vec4),
                VectorAxis::Keys => self.key_positions(scope, first, channel_vec4),
            };
            let elements = positions.map(|[key, channel]| element(scope, &key, &channel));
            let loaded = vec4::load_vec4(scope, &elements)?;
            let lanes: Vec<usize> = (0..self.lanes).collect();
            let shuffled_vectors = shuffle_to_all(&mut scope.pool, loaded, &lanes, name);
            vectors.extend(
                shuffled_vectors
                    .chunks(self.shape.keys)
                    .map(|vec4s| match axis {
                        VectorAxis::Channels => vec4s.to_vec(),
                        VectorAxis::Keys => transpose(&mut scope.pool, vec4s),
                    }),
            );
        }
        Ok(vectors)
    }

    /// Returns positions for [`VectorAxis::Channels`]: four channels of the invocation's key, as `[key, channel]`.
    fn channel_positions(
        &self,
        scope: &mut KernelScope,
        first: &Index,
        channel_vec4: usize,
    ) -> [[Index; 2]; VEC4_LEN] {
        let keys = Dim::from(self.shape.keys);
        let key = clamped_index(
            scope,
            &first.add(&self.lane.rem(&keys)),
            &self.values.k_size,
        );
        let channel_vec4 = self.lane.div(&keys).add_size(&Dim::from(channel_vec4));
        vec4::neighbours(&[channel_vec4], 0)
            .map(|coordinates| [key.clone(), coordinates[0].clone()])
    }

    /// Returns positions for [`VectorAxis::Keys`]: the invocation's channel of four keys, as `[key, channel]`.
    fn key_positions(
        &self,
        scope: &mut KernelScope,
        first: &Index,
        channel_vec4: usize,
    ) -> [[Index; 2]; VEC4_LEN] {
        let vec4_len = Dim::from(VEC4_LEN);
        let (key_vec4s, key_count) = (Dim::from(self.shape.keys / VEC4_LEN), &self.values.k_size);
        let key = first.div(&vec4_len).add(&self.lane.rem(&key_vec4s));
        let key = clamped_index(scope, &key, &key_count.floor_div(&vec4_len));
        let channel = self
            .lane
            .div(&key_vec4s)
            .add_size(&Dim::from(channel_vec4 * VEC4_LEN));
        vec4::neighbours(&[key], 0).map(|coordinates| [coordinates[0].clone(), channel.clone()])
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
        let [softmax_batch @ .., _, _] = scope.graph.ty(value).shape.as_slice() else {
            return Ok(scores.to_vec());
        };
        let mut row_coordinates = index::reshape(&self.batch, &self.values.batch, softmax_batch);
        row_coordinates.push(clamped_index(scope, &row.index, &self.values.rows));
        let mut masked = Vec::new();
        for (key, score) in scores.iter().enumerate() {
            let key_index = first.add_size(&Dim::from(key));
            let key = clamped_index(scope, &key_index, &self.values.k_size);
            let position =
                Position::from_coordinates([row_coordinates.as_slice(), &[key]].concat());
            scope.set_computed(self.scores.result, *score);
            let element = scope.with_vec4(|scope| scope.element(value, &position, None))?;
            masked.push(if key_index.is_less_than(&self.values.k_size) {
                element
            } else {
                let inside = scope.is_below(&key_index, &self.values.k_size);
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
        let new_max = scores.iter().fold(row.running_max, |max, score| {
            reduce::combine(scope, ReduceFunction::Max, max, *score)
        });
        let pool = &mut scope.pool;
        let zero = pool.literal(WgslType::F32, 0.0);
        let is_minus_infinity =
            pool.call("x == y", WgslType::Bool, &[new_max, self.minus_infinity]);
        let reference = pool.select(is_minus_infinity, zero, new_max);
        let mut weight_of = |score: Expr, name: &str| {
            let shifted = pool.call("x - y", WgslType::F32, &[score, reference]);
            let weight = scalar::unary(pool, UnaryFunction::Exp, shifted, DType::F32);
            pool.set_label(weight, name);
            weight
        };
        let rescale = weight_of(row.running_max, "kept");
        let weights: Vec<Expr> = scores
            .iter()
            .map(|score| weight_of(*score, "weight"))
            .collect();
        let shared = [new_max, reference, rescale]
            .into_iter()
            .chain(weights.iter().copied());
        let mut statements: Vec<Statement> = shared.map(Statement::Let).collect();
        pool.set_label(new_max, "next");
        pool.set_label(reference, "base");
        statements.push(Statement::Assign(row.running_max, new_max));
        statements.push(rescale_and_add(
            pool,
            row.running_sum,
            rescale,
            weights.clone(),
        ));
        (SoftmaxWeights { weights, rescale }, statements)
    }

    /// Adds the weighted values to the output of each row.
    fn add_values(
        &self,
        scope: &mut KernelScope,
        first: &Index,
        weights_by_row: &[SoftmaxWeights],
    ) -> Result<Vec<Statement>> {
        let product = self.values;
        let axis = self.vector_axes[1];
        let values = self.shuffled(
            scope,
            first,
            &product.columns,
            axis,
            "value",
            |scope, key, channel| product.right_element(scope, &self.batch, key, channel),
        )?;
        let pool = &mut scope.pool;
        let mut statements = Vec::new();
        for (vec4_index, values) in values.iter().enumerate() {
            for (row, SoftmaxWeights { weights, rescale }) in self.rows.iter().zip(weights_by_row) {
                let pairs = weights.iter().zip(values);
                let terms = pairs.map(|(x, y)| pool.call("x * y", WgslType::F32x4, &[*x, *y]));
                let terms = terms.collect();
                statements.push(rescale_and_add(
                    pool,
                    row.output[vec4_index],
                    *rescale,
                    terms,
                ));
            }
        }
        Ok(statements)
    }
}

/// Transposes vec4s of keys, one per channel, into vec4s of channels, one per key.
fn transpose(pool: &mut ExprPool, vec4s: &[Expr]) -> Vec<Expr> {
    let vec4s_per_channel = vec4s.len() / VEC4_LEN;
    let key_vector = |key: usize| {
        let vec4s =
            (0..VEC4_LEN).map(|channel| vec4s[channel * vec4s_per_channel + key / VEC4_LEN]);
        let components: Vec<Expr> = vec4s
            .map(|vector| vec4::component(pool, vector, key % VEC4_LEN, WgslType::F32))
            .collect();
        vec4::build_vec4(pool, &components, WgslType::F32x4)
    };
    (0..vec4s.len()).map(key_vector).collect()
}

/// Shuffles the vector that each of these lanes has loaded to all lanes. Returns one vector for each lane.
fn shuffle_to_all(pool: &mut ExprPool, loaded: Expr, lanes: &[usize], name: &str) -> Vec<Expr> {
    let shuffle = |lane: &usize| {
        let lane = pool.index(*lane as u32);
        let shuffled = pool.call("subgroupShuffle(x, y)", WgslType::F32x4, &[loaded, lane]);
        pool.set_label(shuffled, name);
        shuffled
    };
    lanes.iter().map(shuffle).collect()
}

/// Returns the dot product of two vec4s.
fn dot_vec4(pool: &mut ExprPool, x: Expr, y: Expr) -> Expr {
    let products = pool.call("x * y", WgslType::F32x4, &[x, y]);
    pool.set_label(products, "products");
    let components =
        (0..VEC4_LEN).map(|component| vec4::component(pool, products, component, WgslType::F32));
    let components = components.collect();
    pairwise_sum(pool, components).unwrap_or(products)
}

/// Adds a term to a sum.
fn add_to(pool: &mut ExprPool, sum: Expr, term: Expr) -> Statement {
    let ty = pool.ty(sum);
    Statement::Assign(sum, pool.call("x + y", ty, &[sum, term]))
}

/// Rescales the running sum and adds new terms (online softmax).
fn rescale_and_add(pool: &mut ExprPool, sum: Expr, factor: Expr, terms: Vec<Expr>) -> Statement {
    let ty = pool.ty(sum);
    let rescaled = pool.call("x * y", ty, &[sum, factor]);
    let terms = pairwise_sum(pool, terms).into_iter();
    let total = terms.fold(rescaled, |rescaled, terms| {
        pool.call("x + y", ty, &[rescaled, terms])
    });
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
