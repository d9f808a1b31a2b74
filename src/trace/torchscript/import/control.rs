//! Conditions.

use crate::error::{Error, Result};
use crate::trace::torchscript::ast::Statement;

use super::Importer;
use super::datum::Datum;
use super::evaluate::Frame;

impl Importer<'_> {
    /// Runs the branch that is taken, if that is known.
    pub(super) fn if_statement(
        &mut self,
        frame: &mut Frame,
        condition: Datum,
        then: &[Statement],
        otherwise: &[Statement],
    ) -> Result<Option<Datum>> {
        match &condition {
            Datum::Number(number) => {
                let taken = number.truth(self.builder().symbols())?;
                self.block(frame, if taken { then } else { otherwise })
            }
            Datum::Unknown => {
                let result = self.block(frame, then)?;
                self.block(frame, otherwise)?;
                Ok(result.map(|_| Datum::Unknown))
            }
            _ => Err(Error::unsupported("a condition that depends on tensors")),
        }
    }
}
