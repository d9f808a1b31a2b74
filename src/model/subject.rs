//! A model's method as the subject of [`trace::check`](crate::trace::check).

use crate::error::Result;
use crate::item::Item;
use crate::trace::check::{Subject, SubjectKind, Traced, evaluate, has_control_flow};

use super::Model;

/// A method of a model, as the checker's subject. The traced Python function is unavailable, so that calls import the
/// method for their arguments and run the graph.
#[derive(Debug)]
pub struct MethodSubject<'a> {
    /// The model.
    pub model: &'a Model,
    /// `forward`, or another method's name.
    pub name: &'a str,
}

impl Subject for MethodSubject<'_> {
    fn trace(&self, arguments: &[Item]) -> Result<Traced> {
        let module = self.model.import_method(self.name, Some(arguments))?;
        Ok(Traced {
            module,
            warnings: Vec::new(),
        })
    }

    fn call(&self, arguments: &[Item]) -> Result<Item> {
        let module = self.model.import_method(self.name, Some(arguments))?;
        evaluate(module.graph(self.name)?, &module, arguments)
    }

    fn kind(&self) -> SubjectKind {
        match self.model.archive() {
            None => SubjectKind::Graph,
            Some(archive) if archive.traced_inputs().is_some() => SubjectKind::Trace,
            // The archive of a traced function is not marked as a trace, but it never branches.
            Some(archive) if has_control_flow(archive).unwrap_or(false) => SubjectKind::Script,
            Some(_) => SubjectKind::Trace,
        }
    }
}
