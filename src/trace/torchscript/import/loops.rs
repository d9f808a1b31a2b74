//! Loops.

use crate::error::{Error, Result};
use crate::trace::torchscript::ast::{Expr, Statement};

use super::Importer;
use super::datum::Datum;
use super::evaluate::Frame;

/// Loops of known length are unrolled up to this many iterations in all.
const MOST_ITERATIONS: usize = 100_000;

impl Importer<'_> {
    pub(super) fn for_loop(
        &mut self,
        frame: &mut Frame,
        variable: &str,
        count: &Expr,
        body: &[Statement],
    ) -> Result<()> {
        let count = self.eval(frame, count)?;
        match &count {
            Datum::Number(number) => {
                let dim = number.to_int(self.builder().symbols())?;
                let trips = self.builder().symbols().concrete(&dim)?;
                for trip in 0..trips {
                    self.count_iteration()?;
                    frame.locals.insert(variable.to_string(), Datum::int(trip));
                    self.block(frame, body)?;
                }
                Ok(())
            }
            Datum::Unknown => {
                frame.locals.insert(variable.to_string(), Datum::Unknown);
                self.block(frame, body)?;
                Ok(())
            }
            _ => Err(Error::unsupported("a loop whose length depends on tensors")),
        }
    }

    pub(super) fn while_loop(
        &mut self,
        frame: &mut Frame,
        condition: &Expr,
        body: &[Statement],
    ) -> Result<()> {
        loop {
            match self.eval(frame, condition)? {
                Datum::Number(number) => {
                    if !number.truth(self.builder().symbols())? {
                        return Ok(());
                    }
                    self.count_iteration()?;
                    self.block(frame, body)?;
                }
                Datum::Unknown => {
                    self.block(frame, body)?;
                    return Ok(());
                }
                _ => return Err(Error::unsupported("a loop that ends depending on tensors")),
            }
        }
    }

    fn count_iteration(&mut self) -> Result<()> {
        self.unrolled += 1;
        if MOST_ITERATIONS < self.unrolled {
            let message = format!("loops of more than {MOST_ITERATIONS} iterations");
            return Err(Error::unsupported(message));
        }
        Ok(())
    }
}
