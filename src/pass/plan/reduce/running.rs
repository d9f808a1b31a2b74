//! A result of a reduction while its elements are gone through.

use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::emit::Statement;
use crate::kernel::expr::Expr;
use crate::op::ReduceFunction;
use crate::pass::plan::element::Scope;
use crate::pass::plan::reduce::{accumulator, combine};

/// A result while its elements are gone through.
pub struct Running {
    /// How elements are combined.
    pub function: ReduceFunction,
    /// What they have given so far.
    pub total: Expr,
    start: Expr,
    /// What some of the elements give, where all of them in one go would lose digits.
    part: Option<Expr>,
}

impl Running {
    /// Of elements of a dtype, in a variable of this name; with another one for parts, if there are to be some.
    pub fn new(
        scope: &mut Scope,
        (function, dtype): (ReduceFunction, DType),
        name: &str,
        part: Option<&str>,
    ) -> Result<Running> {
        let (total, start) = accumulator(scope, function, dtype, name)?;
        let ty = scope.pool.ty(total);
        let part = part.map(|name| scope.pool.variable(name, ty));
        Ok(Running {
            function,
            total,
            start,
            part,
        })
    }

    /// What comes first.
    pub fn declare(&self) -> Statement {
        Statement::Declare(self.total, self.start)
    }

    /// Takes elements in: those of a piece where there are parts.
    pub fn take(&self, scope: &mut Scope, mut elements: Vec<Expr>) -> Statement {
        while elements.len() > 1 {
            elements = elements
                .chunks(2)
                .map(|pair| match pair {
                    [x, y] => combine(scope, self.function, *x, *y),
                    [x, ..] => *x,
                    [] => self.start,
                })
                .collect();
        }
        let target = self.part.unwrap_or(self.total);
        let sum = elements.into_iter().fold(target, |sum, element| {
            combine(scope, self.function, sum, element)
        });
        Statement::Assign(target, sum)
    }

    /// What others have found, too.
    pub fn combined(&self, scope: &mut Scope, other: Expr) -> Expr {
        combine(scope, self.function, self.total, other)
    }
}

/// What comes before and behind each piece where there are parts.
pub fn around<'r>(
    scope: &mut Scope,
    running: impl Iterator<Item = &'r Running>,
) -> [Vec<Statement>; 2] {
    let [mut before, mut after] = [Vec::new(), Vec::new()];
    for one in running {
        let Some(part) = one.part else { continue };
        before.push(Statement::Declare(part, one.start));
        let whole = one.combined(scope, part);
        after.push(Statement::Assign(one.total, whole));
    }
    [before, after]
}
