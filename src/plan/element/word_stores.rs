//! 64-bit words of two numbers, in which a software rasteriser stores vectors of single precision.
//!
//! Mesa's rasteriser stores a vector lane by lane, and takes each number that it needs out of a vector in memory. LLVM
//! assembles a word after that, out of two numbers. With vectors of 512 bits, pairs of lanes store together: see
//! [`lane_pairs`](crate::plan::kernel::lane_pairs).

use crate::kernel::capabilities::StorageType;
use crate::kernel::expr::{Expr, ExprNode, ExprPool, WgslType};
use crate::plan::element::KernelScope;
use crate::plan::element::vec4::build_vec4;
use crate::plan::kernel::lane_pairs;

/// Template of eight numbers, the even ones and the odd ones, as four words.
const WORDS_OF_EIGHT: &str = "words_of(x, y)";
/// Template of four numbers as two words.
const WORDS_OF_FOUR: &str = "words_of_four(x)";

/// Returns whether an expression is words to be stored.
pub fn is_words(pool: &ExprPool, expr: Expr) -> bool {
    let templates = [WORDS_OF_EIGHT, WORDS_OF_FOUR];
    matches!(pool.node(expr), ExprNode::Call { template, .. } if templates.contains(&template.as_ref()))
}

/// Returns words of the same kind, assembled of other numbers: see the operands of [`is_words`].
pub fn with_numbers(pool: &mut ExprPool, words: Expr, numbers: &[Expr]) -> Expr {
    let ty = pool.ty(words);
    match pool.node(words).clone() {
        ExprNode::Call { template, .. } => pool.call(template, ty, numbers),
        _ => words,
    }
}

impl KernelScope<'_> {
    /// Returns whether vectors of four numbers are stored as 64-bit words of two numbers: if they have single precision
    /// and the device writes words faster.
    pub fn stores_words(&self, storage: StorageType) -> bool {
        self.capabilities.software && self.capabilities.int64 && storage == StorageType::F32
    }

    /// Returns whether pairs of lanes store their words together.
    pub fn pairs_lanes(&self) -> bool {
        self.capabilities.simd_lanes() == Some(lane_pairs::LANES as usize)
    }

    /// Returns eight numbers as four words. `None` if such a store is not worthwhile.
    pub fn words_of_eight(&mut self, numbers: &[Expr]) -> Option<Expr> {
        let numbers = self.storable(numbers)?;
        let every_other = |first: usize| numbers.iter().skip(first).step_by(2).copied();
        let (low, high): (Vec<Expr>, Vec<Expr>) =
            (every_other(0).collect(), every_other(1).collect());
        let halves = [low, high].map(|half| build_vec4(&mut self.pool, &half, WgslType::F32x4));
        Some(self.pool.call(WORDS_OF_EIGHT, WgslType::U64x4, &halves))
    }

    /// Returns four numbers as two words. `None` if such a store is not worthwhile.
    pub fn words_of_four(&mut self, numbers: &[Expr]) -> Option<Expr> {
        let numbers = self.storable(numbers)?;
        let vector = build_vec4(&mut self.pool, &numbers, WgslType::F32x4);
        Some(self.words_of_vec4(vector))
    }

    /// Returns a vector of four numbers as two words.
    pub fn words_of_vec4(&mut self, vector: Expr) -> Expr {
        self.pool.call(WORDS_OF_FOUR, WgslType::U64x2, &[vector])
    }

    /// Rewrites numbers so that they can be stored as words.
    fn storable(&mut self, numbers: &[Expr]) -> Option<Vec<Expr>> {
        if self.pairs_lanes() {
            return Some(numbers.to_vec());
        }
        let numbers = numbers.iter();
        numbers
            .map(|number| storable(&mut self.pool, *number))
            .collect()
    }
}

/// Rewrites an expression so that it can be stored in words. `None` if such a store is not worthwhile.
/// LLVM scalarises the store of a select with a constant, and of arithmetic on such a select and a constant. Hence a bound
/// is computed on both sides of its select.
fn storable(pool: &mut ExprPool, expr: Expr) -> Option<Expr> {
    let ExprNode::Call { template, operands } = pool.node(expr) else {
        return Some(expr);
    };
    let (template, operands) = (template.clone(), operands.clone());
    let is_constant = |pool: &ExprPool, expr: &Expr| pool.as_literal(*expr).is_some();
    let has_constant = operands.iter().any(|expr| is_constant(pool, expr));
    let is_storable = |expr: &Expr| is_constant(pool, expr) || storable(pool, *expr) == Some(*expr);
    match template.as_ref() {
        "select(x, y, x < y)" => {
            Some(pool.call("select(x, max(x, y), x < y)", WgslType::F32, &operands))
        }
        "select(x, y, x > y)" => {
            Some(pool.call("select(x, min(x, y), x > y)", WgslType::F32, &operands))
        }
        template if template.starts_with("select(") => (!has_constant).then_some(expr),
        template if template.contains('(') => None,
        _ => (!has_constant || operands.iter().all(is_storable)).then_some(expr),
    }
}
