//! Stores of 64-bit words by pairs of lanes, for vectors of sixteen lanes.
//!
//! Mesa's rasteriser stores a vector lane by lane, and takes each number that it needs out of a vector in memory. Memory
//! does not hand on at once what was just stored in the upper half of 512 bits (measured on an Intel Xeon with AVX-512: 8
//! instead of 0.6 ns per number). So the lanes of the lower half store their own words, and then those of the lanes of the
//! upper half, which they get by a shuffle.

use std::collections::BTreeSet;

use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, ExprNode, ExprPool, Literal, WgslType};
use crate::plan::element::word_stores;

/// Lanes of the vectors whose stores are rewritten: those of 512 bits.
pub const LANES: u32 = 16;
/// Template of the value that an expression has in the other lane of a pair: half of the lanes above or below.
const OF_OTHER_LANE: &str = "subgroupShuffleXor(x, 8u)";

/// Rewrites the stores of words in a kernel's body. `has_uniform_index` is true if the variable `index` is equal in all
/// lanes; otherwise neighbouring lanes have neighbouring indices.
pub fn pair_lanes(
    pool: &mut ExprPool,
    statements: Vec<Statement>,
    has_uniform_index: bool,
) -> Vec<Statement> {
    if !statements
        .iter()
        .any(|statement| has_words(pool, statement))
    {
        return statements;
    }
    let index = pool.variable("index", WgslType::U32);
    let mut pairing = LanePairing {
        index,
        uniform_variables: has_uniform_index.then_some(index).into_iter().collect(),
        pool,
    };
    pairing.block(statements, None)
}

/// True if a statement stores words, itself or in a block.
fn has_words(pool: &ExprPool, statement: &Statement) -> bool {
    let mut blocks = statement.blocks();
    is_store_of_words(pool, statement)
        || blocks.any(|block| block.iter().any(|statement| has_words(pool, statement)))
}

fn is_store_of_words(pool: &ExprPool, statement: &Statement) -> bool {
    matches!(statement, Statement::Store { value, .. } if word_stores::is_words(pool, *value))
}

/// The rewrite of a kernel's body.
struct LanePairing<'p> {
    pool: &'p mut ExprPool,
    /// The variable `index`.
    index: Expr,
    /// Variables that are equal in all lanes.
    uniform_variables: BTreeSet<Expr>,
}

impl LanePairing<'_> {
    /// Rewrites a block. `other_runs` is the condition that the other lane of the pair runs it; `None` if it does whenever
    /// this one does.
    fn block(
        &mut self,
        statements: Vec<Statement>,
        mut other_runs: Option<Expr>,
    ) -> Vec<Statement> {
        let mut paired = Vec::new();
        for statement in statements {
            if let Statement::ReturnIf(condition) = statement {
                let negated = self.not(condition);
                paired.extend(self.narrow(&mut other_runs, negated));
            }
            paired.extend(self.statement(statement, other_runs));
        }
        paired
    }

    fn statement(&mut self, statement: Statement, other_runs: Option<Expr>) -> Vec<Statement> {
        if !has_words(self.pool, &statement) {
            return vec![statement];
        }
        match statement {
            Statement::Store {
                buffer,
                index,
                value,
            } => self.store(buffer, [index, value], other_runs),
            Statement::If(condition, body) => {
                let mut body_runs = other_runs;
                let narrowed = self.narrow(&mut body_runs, condition);
                let body = self.block(body, body_runs);
                let guarded = Statement::If(condition, body);
                narrowed.into_iter().chain([guarded]).collect()
            }
            Statement::Loop {
                variable,
                from,
                to,
                step,
                body,
            } if self.is_uniform(from) && self.is_uniform(to) => {
                self.uniform_variables.insert(variable);
                let body = self.block(body, other_runs);
                vec![Statement::Loop {
                    variable,
                    from,
                    to,
                    step,
                    body,
                }]
            }
            // Some lanes of a pair may run another block alone.
            statement => vec![statement],
        }
    }

    /// Adds a condition to those under which the other lane runs a block. Returns the statement that computes it, which must
    /// precede the block.
    fn narrow(&mut self, other_runs: &mut Option<Expr>, condition: Expr) -> Option<Statement> {
        if self.is_uniform(condition) {
            return None;
        }
        let pool = &mut *self.pool;
        let number = pool.call("u32(x)", WgslType::U32, &[condition]);
        let number = pool.call(OF_OTHER_LANE, WgslType::U32, &[number]);
        let one = pool.index(1);
        let is_true = pool.call("x == y", WgslType::Bool, &[number, one]);
        let both = pool.and(*other_runs, is_true);
        pool.set_label(both, "other_lane_runs");
        *other_runs = Some(both);
        Some(Statement::Let(both))
    }

    /// Stores the words of both lanes of a pair by the lower one. A lane whose other lane does not run stores its own twice,
    /// which takes less time than a second condition.
    fn store(
        &mut self,
        buffer: usize,
        [index, words]: [Expr; 2],
        other_runs: Option<Expr>,
    ) -> Vec<Statement> {
        let mut exchanged = Vec::new();
        let operands = self.pool.operands(words).to_vec().into_iter();
        let other_numbers: Vec<Expr> = operands
            .map(|numbers| self.of_other_lane(numbers, other_runs, &mut exchanged))
            .collect();
        let other_index = self.of_other_lane(index, other_runs, &mut exchanged);
        let other_words = word_stores::with_numbers(self.pool, words, &other_numbers);
        let stores = [(index, words), (other_index, other_words)];
        let stores = stores.map(|(index, value)| Statement::Store {
            buffer,
            index,
            value,
        });
        let guarded = Statement::If(self.storing_lanes(other_runs), stores.to_vec());
        exchanged.into_iter().chain([guarded]).collect()
    }

    /// The value of an expression in the other lane, or in this one if the other does not run. Adds the statement that
    /// computes it, which both lanes must execute.
    fn of_other_lane(
        &mut self,
        expr: Expr,
        other_runs: Option<Expr>,
        exchanged: &mut Vec<Statement>,
    ) -> Expr {
        let pool = &mut *self.pool;
        let other = pool.call(OF_OTHER_LANE, pool.ty(expr), &[expr]);
        let value = match other_runs {
            Some(other_runs) => pool.select(other_runs, other, expr),
            None => other,
        };
        pool.set_label(value, "of_other_lane");
        exchanged.push(Statement::Let(value));
        value
    }

    /// The condition that a lane stores: it is the lower one of a pair, or the only one that runs.
    fn storing_lanes(&mut self, other_runs: Option<Expr>) -> Expr {
        let pool = &mut *self.pool;
        let local = pool.variable("local", WgslType::U32);
        let [lanes, half] = [LANES, LANES / 2].map(|count| pool.index(count));
        let lane = pool.call("x % y", WgslType::U32, &[local, lanes]);
        let is_lower = pool.call("x < y", WgslType::Bool, &[lane, half]);
        pool.set_label(is_lower, "is_lower_lane");
        let Some(other_runs) = other_runs else {
            return is_lower;
        };
        let is_alone = self.not(other_runs);
        let stores = self
            .pool
            .call("x | y", WgslType::Bool, &[is_lower, is_alone]);
        self.pool.set_label(stores, "lane_stores");
        stores
    }

    fn not(&mut self, condition: Expr) -> Expr {
        self.pool.call("!x", WgslType::Bool, &[condition])
    }

    /// True if an expression is known to be equal in all lanes.
    fn is_uniform(&self, expr: Expr) -> bool {
        if self.ends_with_whole_vectors(expr) {
            return true;
        }
        match self.pool.node(expr) {
            ExprNode::Variable(_) => self.uniform_variables.contains(&expr),
            _ => {
                let mut operands = self.pool.operands(expr).iter();
                operands.all(|operand| self.is_uniform(*operand))
            }
        }
    }

    /// True for the comparison of `index` with a multiple of the number of lanes: either all lanes are below it, or none.
    fn ends_with_whole_vectors(&self, expr: Expr) -> bool {
        let ExprNode::Call { template, operands } = self.pool.node(expr) else {
            return false;
        };
        let end = operands.get(1).and_then(|end| self.pool.as_literal(*end));
        template == "x >= y"
            && operands[0] == self.index
            && matches!(end, Some(Literal::Integer(end)) if end % i64::from(LANES) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel with a store of words at `index`, in the block that `around` puts around it.
    fn paired(
        has_uniform_index: bool,
        around: impl FnOnce(&mut ExprPool, Statement) -> Vec<Statement>,
    ) -> (ExprPool, Vec<Statement>) {
        let mut pool = ExprPool::default();
        let index = pool.variable("index", WgslType::U32);
        let numbers = pool.call("vec4(f32(x))", WgslType::F32x4, &[index]);
        let value = pool.call("words_of_four(x)", WgslType::U64x2, &[numbers]);
        let store = Statement::Store {
            buffer: 0,
            index,
            value,
        };
        let statements = around(&mut pool, store);
        let statements = pair_lanes(&mut pool, statements, has_uniform_index);
        (pool, statements)
    }

    fn compare(pool: &mut ExprPool, template: &'static str, name: &str, end: u32) -> Expr {
        let (variable, end) = (pool.variable(name, WgslType::U32), pool.index(end));
        pool.call(template, WgslType::Bool, &[variable, end])
    }

    fn stores(statements: &[Statement]) -> usize {
        let count = |statement: &Statement| match statement {
            Statement::Store { .. } => 1,
            other => other.blocks().map(stores).sum(),
        };
        statements.iter().map(count).sum()
    }

    /// True if a statement tells whether the other lane of a pair runs.
    fn asks_other_lane(pool: &ExprPool, statements: &[Statement]) -> bool {
        statements.iter().any(|statement| match statement {
            Statement::Let(expr) => pool.label(*expr) == Some("other_lane_runs"),
            other => other.blocks().any(|block| asks_other_lane(pool, block)),
        })
    }

    #[test]
    fn lower_lanes_store_the_words_of_both() {
        let (pool, statements) = paired(true, |_, store| vec![store]);
        assert_eq!(stores(&statements), 2);
        assert!(!asks_other_lane(&pool, &statements));
    }

    #[test]
    fn surplus_lanes_are_told_unless_whole_vectors_end() {
        for (end, has_uniform_index, asks) in
            [(64, false, false), (65, false, true), (65, true, false)]
        {
            let (pool, statements) = paired(has_uniform_index, |pool, store| {
                let surplus = compare(pool, "x >= y", "index", end);
                vec![Statement::ReturnIf(surplus), store]
            });
            assert_eq!(stores(&statements), 2, "{end}");
            assert_eq!(asks_other_lane(&pool, &statements), asks, "{end}");
        }
    }

    #[test]
    fn lanes_ask_for_the_condition_of_a_block() {
        let (pool, statements) = paired(true, |pool, store| {
            let inside = compare(pool, "x < y", "local", 5);
            vec![Statement::If(inside, vec![store])]
        });
        assert_eq!(stores(&statements), 2);
        assert!(asks_other_lane(&pool, &statements));
        assert!(matches!(&statements[0], Statement::Let(_)));
    }

    #[test]
    fn loops_are_rewritten_if_all_lanes_run_them_equally_often() {
        for (end, count) in [("lane_dependent", 1), ("index", 2)] {
            let (_, statements) = paired(true, |pool, store| {
                let [variable, to] = ["trip", end].map(|name| pool.variable(name, WgslType::U32));
                vec![Statement::Loop {
                    variable,
                    from: pool.index(0),
                    to,
                    step: 1,
                    body: vec![store],
                }]
            });
            assert_eq!(stores(&statements), count, "{end}");
        }
    }
}
