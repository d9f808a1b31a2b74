//! Imported graphs as a program: they are what they are for all inputs.

use super::{ImportOptions, ModuleTensors, Signature, SourceProgram};
use crate::error::Result;
use crate::ir::GraphModule;
use crate::ir::json::VERSION;
use crate::trace::check::{Finding, SubjectKind};

impl SourceProgram for GraphModule {
    fn kind(&self) -> SubjectKind {
        SubjectKind::Graph
    }

    fn format(&self) -> &'static str {
        "graphs"
    }

    fn format_version(&self) -> u64 {
        VERSION
    }

    fn entries(&self) -> Vec<String> {
        self.graphs.iter().map(|graph| graph.name.clone()).collect()
    }

    fn methods(&self) -> Vec<String> {
        self.entries()
    }

    fn signature(&self, method: &str) -> Result<Signature> {
        self.graph(method).map(Signature::of_graph)
    }

    /// Returns all graphs, whatever the options.
    fn import(&self, _: &ImportOptions) -> Result<GraphModule> {
        Ok(self.clone())
    }

    fn can_reimport(&self) -> bool {
        false
    }

    fn inspect(&self) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }

    /// The weights by their names. A graph does not distinguish buffers from parameters.
    fn module_tensors(&self) -> ModuleTensors {
        let mut root = ModuleTensors::default();
        for (name, tensor) in &self.weights {
            let (path, _) = name.rsplit_once('.').unwrap_or_default();
            let module = path.split('.').filter(|part| !part.is_empty());
            let module = module.fold(&mut root, ModuleTensors::submodule);
            module.parameters.push(tensor.tensor_type());
        }
        root
    }
}
