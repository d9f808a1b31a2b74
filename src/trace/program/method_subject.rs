//! A program's method as the subject of [`trace::check`](crate::trace::check).

use super::{EntryMethod, ImportOptions, InputSpec, SourceProgram};
use crate::error::Result;
use crate::ir::GraphModule;
use crate::item::Item;
use crate::trace::check::{Subject, SubjectKind, Traced, evaluate};

/// A method of a program, as the checker's subject. The traced Python function is unavailable, so that calls import the
/// method for their arguments and run the graph.
#[derive(Debug)]
pub struct MethodSubject<'a> {
    /// The program.
    pub program: &'a dyn SourceProgram,
    /// `forward`, or another method's name.
    pub name: &'a str,
}

impl MethodSubject<'_> {
    fn import(&self, arguments: &[Item]) -> Result<GraphModule> {
        let entry = EntryMethod {
            method: self.name.to_string(),
            inputs: Some(arguments.iter().map(InputSpec::from).collect()),
        };
        // Its weights are read when a run uses them: many checks need none.
        self.program.import(&ImportOptions {
            entries: vec![entry],
            ..ImportOptions::default()
        })
    }
}

impl Subject for MethodSubject<'_> {
    fn trace(&self, arguments: &[Item]) -> Result<Traced> {
        Ok(Traced {
            module: self.import(arguments)?,
            warnings: Vec::new(),
        })
    }

    fn call(&self, arguments: &[Item]) -> Result<Item> {
        let module = self.import(arguments)?;
        evaluate(module.graph(self.name)?, &module, arguments)
    }

    fn kind(&self) -> SubjectKind {
        self.program.kind()
    }
}
