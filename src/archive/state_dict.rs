//! Named tensors of files: the weights of modules in archives, and the contents of plain `torch.save` files, which are
//! tensors, or tuples, lists and dicts of tensors such as state dicts.

use std::path::Path;

use super::Container;
use super::Pickled;
use crate::budget::{Budget, Limits};
use crate::error::{Error, ErrorContext, Result};
use crate::tensor::Tensor;

/// Reads all tensors of a file in order, with their names. A name is the path to the tensor: attributes of modules, keys of
/// dicts, and indices in lists and tuples, joined by dots. If the file is a single tensor, its name is `0`. Other values are
/// left out.
pub fn read_tensors(path: impl AsRef<Path>) -> Result<Vec<(String, Tensor)>> {
    read_tensors_with(path.as_ref(), &Limits::default())
}

/// Like [`read_tensors`], with other limits.
pub(crate) fn read_tensors_with(path: &Path, limits: &Limits) -> Result<Vec<(String, Tensor)>> {
    let container = Container::open(path, limits)?;
    tensors(&container).at(|| path.display().to_string())
}

/// Like [`read_tensors`], for a ZIP file that is open already.
pub fn tensors(container: &Container) -> Result<Vec<(String, Tensor)>> {
    container.check_byte_order()?;
    let mut reader = Reader {
        container,
        budget: container.new_budget(),
        tensors: Vec::new(),
    };
    match container.pickle("data")? {
        Pickled::Tensor(record) => {
            let tensor = record.read(container, &reader.budget)?;
            reader.tensors.push(("0".into(), tensor));
        }
        value => reader.collect("", &value)?,
    }
    Ok(reader.tensors)
}

/// Collects the tensors of a value.
struct Reader<'a> {
    container: &'a Container,
    budget: Budget,
    /// Names and tensors so far.
    tensors: Vec<(String, Tensor)>,
}

impl Reader<'_> {
    /// Reads the tensors in a value, whose name is `name`.
    fn collect(&mut self, name: &str, value: &Pickled) -> Result<()> {
        if let Pickled::Unsupported(what) = value {
            return Err(Error::unsupported(format!("{name} is {what}")));
        }
        if let Pickled::Tensor(record) = value {
            let tensor = record
                .read(self.container, &self.budget)
                .at(|| name.to_owned())?;
            self.tensors.push((name.to_owned(), tensor));
        }
        for (index, item) in value.as_items().unwrap_or_default().iter().enumerate() {
            self.collect(&join_path(name, &index.to_string()), item)?;
        }
        for (attribute, item) in value
            .as_object()
            .map_or(&[][..], |object| &object.attributes)
        {
            self.collect(&join_path(name, attribute), item)?;
        }
        for (key, item) in value.as_dict().map_or(&[][..], |dict| &dict.entries) {
            self.collect(&join_path(name, &key_text(key)), item)?;
        }
        Ok(())
    }
}

fn join_path(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    }
}

/// The text of a dict's key in a name.
fn key_text(key: &Pickled) -> String {
    match key {
        Pickled::Str(text) => text.to_string(),
        Pickled::Int(number) => number.to_string(),
        other => other.describe().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(file: &str) -> Vec<String> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/archives");
        let tensors = read_tensors(Path::new(folder).join(file)).unwrap();
        let named = tensors
            .iter()
            .map(|(name, tensor)| format!("{name}: {}", tensor.tensor_type()));
        named.collect()
    }

    #[test]
    fn state_dicts_and_nested_tensors() {
        let expected = [
            "offset: f16[2]",
            "first.weight: f32[3, 4]",
            "first.bias: f32[3]",
            "second.weight: f32[3, 3]",
            "tied.weight: f32[3, 3]",
        ];
        assert_eq!(names("state_dict.pt"), expected);
        assert_eq!(
            names("nested_tensors.pt"),
            ["0: i64[3]", "1.mask: bool[1, 2]", "1.list.0: bf16[]"]
        );
    }
}
