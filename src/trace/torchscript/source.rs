//! The program of an archive. Each source file is parsed on first use.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::archive::Container;
use crate::archive::debug::DebugMap;
use crate::error::{Location, Result};
use crate::tensor::TensorStorage;
use crate::trace::script::Declaration;
use crate::trace::torchscript::parser::{self, SourceFile};

/// All source files of an archive by module name.
#[derive(Debug)]
pub struct ArchiveSource {
    container: Arc<Container>,
    modules: BTreeMap<String, SourceModule>,
}

/// A source file.
#[derive(Debug)]
struct SourceModule {
    /// Name of the record, `code/__torch__.py`.
    record: String,
    /// Its declarations, once it is parsed.
    file: OnceLock<SourceFile>,
    /// Its debug record, once it is read; `None` if there is none that can be read.
    debug: OnceLock<Option<DebugMap>>,
}

impl ArchiveSource {
    /// Lists the source files of an archive without reading them.
    pub fn new(container: Arc<Container>) -> ArchiveSource {
        let records = container.names().filter_map(|record| {
            let module = module_name(record)?;
            let record = record.to_owned();
            let (file, debug) = Default::default();
            Some((
                module,
                SourceModule {
                    record,
                    file,
                    debug,
                },
            ))
        });
        let modules = records.collect();
        ArchiveSource { container, modules }
    }

    /// Names of all modules, `__torch__.torch.nn.modules.linear`.
    pub fn modules(&self) -> impl Iterator<Item = &str> {
        self.modules.keys().map(String::as_str)
    }

    /// Returns the declarations of a module; none if there is no such module, an error if its file does not parse.
    pub fn module(&self, name: &str) -> Result<Option<&SourceFile>> {
        let Some(module) = self.modules.get(name) else {
            return Ok(None);
        };
        if let Some(file) = module.file.get() {
            return Ok(Some(file));
        }
        let text = self.container.text(&module.record)?;
        let file = parser::parse_file(&module.record, name, &text, self.container.budget())?;
        Ok(Some(module.file.get_or_init(|| file)))
    }

    /// Looks up a qualified name; none if it is not declared.
    pub fn declaration(&self, name: &str) -> Result<Option<Declaration<'_>>> {
        let Some((module, _)) = name.rsplit_once('.') else {
            return Ok(None);
        };
        let Some(file) = self.module(module)? else {
            return Ok(None);
        };
        let class = file.classes.iter().find(|class| class.name == name);
        let function = file.functions.iter().find(|function| function.name == name);
        Ok(class
            .map(Declaration::Class)
            .or(function.map(Declaration::Function)))
    }

    /// Returns the location in the user's own source that a byte of a source file comes from, if it was recorded.
    /// `record` is the name of the file, `code/__torch__.py`.
    pub fn location(&self, record: &str, offset: usize) -> Option<Location> {
        self.debug_map(record)?.location(offset)
    }

    /// Returns the first location in the user's own source that is recorded at or after a byte of a source file. For
    /// the offset of a function, this is a line of its body.
    pub fn first_location(&self, record: &str, offset: usize) -> Option<Location> {
        self.debug_map(record)?.first_location(offset)
    }

    /// Returns the debug record of a source file, which is read on first use.
    fn debug_map(&self, record: &str) -> Option<&DebugMap> {
        let module = self.modules.get(&module_name(record)?)?;
        let debug = module.debug.get_or_init(|| {
            let bytes = self.container.record(&format!("{record}.debug_pkl")).ok()?;
            DebugMap::read(bytes.bytes(), self.container.limits()).ok()
        });
        debug.as_ref()
    }
}

/// The module of a source file: `__torch__.m` for `code/__torch__/m.py`; none for other records.
fn module_name(record: &str) -> Option<String> {
    let path = record.strip_prefix("code/")?.strip_suffix(".py")?;
    Some(path.replace('/', "."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Limits;
    use std::path::Path;

    fn source() -> ArchiveSource {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/archives");
        let container =
            Container::open(&Path::new(folder).join("scripted.pt"), &Limits::default()).unwrap();
        ArchiveSource::new(Arc::new(container))
    }

    #[test]
    fn declarations_are_found_by_qualified_name() {
        let source = source();
        let class = |name| match source.declaration(name).unwrap() {
            Some(Declaration::Class(class)) => Some(class),
            _ => None,
        };
        assert_eq!(class("__torch__.Scripted").unwrap().methods.len(), 1);
        assert!(class("__torch__.Point").is_some());
        assert!(source.declaration("__torch__.Nothing").unwrap().is_none());
        let linear = "__torch__.torch.nn.modules.linear.___torch_mangle_6.Linear";
        assert_eq!(class(linear).unwrap().parameters, ["weight", "bias"]);
    }
}
