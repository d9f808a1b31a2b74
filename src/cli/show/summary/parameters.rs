//! Parameters and buffers by module: elements, bytes and classes.

use std::collections::HashSet;

use serde::Serialize;

use crate::Model;
use crate::archive::{Pickled, PickledObject, TensorRecord};
use crate::cli::output::grouped;
use crate::ir::GraphModule;
use crate::trace::torchscript::Archive;
use crate::units::amount;

/// Number of elements and bytes of tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct TensorAmount {
    pub(super) count: u64,
    pub(super) bytes: u64,
}

impl TensorAmount {
    fn add(&mut self, other: TensorAmount) {
        self.count += other.count;
        self.bytes += other.bytes;
    }
}

/// A module with its submodules. Amounts include those of the submodules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct ModuleTree {
    /// Name in the enclosing module; empty for the root.
    name: String,
    /// Class without its package; empty if the file does not name it.
    #[serde(skip_serializing_if = "String::is_empty")]
    class: String,
    pub(super) parameters: TensorAmount,
    pub(super) buffers: TensorAmount,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    modules: Vec<ModuleTree>,
}

impl ModuleTree {
    /// Builds the tree of a model. A tensor that several modules share counts in the first of them.
    pub(super) fn of(model: &Model, module: Option<&GraphModule>) -> ModuleTree {
        match (model.archive(), module) {
            (Some(archive), _) => of_archive(archive),
            (None, Some(module)) => of_names(module),
            (None, None) => ModuleTree::default(),
        }
    }

    /// Returns all elements and bytes.
    pub(super) fn total(&self) -> TensorAmount {
        let mut total = self.parameters;
        total.add(self.buffers);
        total
    }

    fn add(&mut self, branch: ModuleTree) {
        self.parameters.add(branch.parameters);
        self.buffers.add(branch.buffers);
        self.modules.push(branch);
    }

    /// True for modules of the same class and size with the same submodules.
    fn has_same_structure(&self, other: &ModuleTree) -> bool {
        let of = |branch: &ModuleTree| (branch.class.clone(), branch.parameters, branch.buffers);
        of(self) == of(other)
            && self.modules.len() == other.modules.len()
            && self
                .modules
                .iter()
                .zip(&other.modules)
                .all(|(a, b)| a.name == b.name && a.has_same_structure(b))
    }

    /// Formats a table of the parameters, without buffers, down to a depth.
    pub(super) fn lines(&self, depth: usize) -> Vec<String> {
        let mut rows = vec![self.row(0, 1, "model")];
        self.rows(1, depth, &mut rows);
        let widths = [0, 1, 2].map(|column| {
            let texts = rows.iter().map(|row| row[column].chars().count());
            texts.max().unwrap_or_default()
        });
        let line = |[name, class, count, bytes]: &[String; 4]| {
            let [first, second, third] = widths;
            format!("{name:<first$}  {class:<second$}  {count:>third$}  {bytes:>8}")
        };
        rows.iter().map(line).collect()
    }

    fn row(&self, level: usize, repeats: u64, title: &str) -> [String; 4] {
        let class = match repeats {
            1 => self.class.clone(),
            repeats => format!("{repeats} × {}", self.class)
                .trim_end_matches(" × ")
                .to_string(),
        };
        let TensorAmount { count, bytes } = self.parameters;
        [
            format!("{:indent$}{title}", "", indent = 2 * level),
            class,
            grouped(count * repeats),
            amount((bytes * repeats) as f64, "B"),
        ]
    }

    fn rows(&self, level: usize, depth: usize, rows: &mut Vec<[String; 4]>) {
        if level > depth {
            return;
        }
        let all = self.modules.iter();
        let all: Vec<&ModuleTree> = all.filter(|module| module.parameters.count > 0).collect();
        let mut rest = all.as_slice();
        while let [first, others @ ..] = rest {
            let alike = others
                .iter()
                .take_while(|other| first.has_same_structure(other))
                .count();
            let (same, next) = others.split_at(alike);
            let title = match same.last() {
                Some(last) => format!("{} … {}", first.name, last.name),
                None => first.name.clone(),
            };
            rows.push(first.row(level, 1 + alike as u64, &title));
            first.rows(level + 1, depth, rows);
            rest = next;
        }
    }
}

/// `Bottleneck` for `__torch__.torchvision.models.resnet.Bottleneck`.
fn class_name(qualified: &str) -> &str {
    qualified.rsplit('.').next().unwrap_or(qualified)
}

fn of_archive(archive: &Archive) -> ModuleTree {
    let mut known = HashSet::new();
    match archive.root().as_object() {
        Some(root) => of_object(archive, "", root, &mut known),
        None => ModuleTree::default(),
    }
}

fn of_object<'a>(
    archive: &Archive,
    name: &str,
    object: &'a PickledObject,
    known: &mut HashSet<&'a TensorRecord>,
) -> ModuleTree {
    let mut branch = ModuleTree {
        name: name.to_string(),
        class: class_name(&object.class).to_string(),
        ..ModuleTree::default()
    };
    let class = archive.source().class(&object.class).ok();
    let is_buffer = |name: &str| class.is_some_and(|class| class.buffers.iter().any(|b| b == name));
    for (name, value) in &object.attributes {
        match value {
            Pickled::Tensor(record) if known.insert(record) => {
                let own = match is_buffer(name) {
                    true => &mut branch.buffers,
                    false => &mut branch.parameters,
                };
                own.add(of_record(record));
            }
            Pickled::Object(object) => {
                let module = of_object(archive, name, object, known);
                branch.add(module);
            }
            _ => {}
        }
    }
    branch
}

fn of_record(record: &TensorRecord) -> TensorAmount {
    let count = record.numel().unwrap_or_default();
    TensorAmount {
        count: count as u64,
        bytes: (count * record.dtype.size()) as u64,
    }
}

/// Builds the tree of a graph's weights from their names. A graph does not distinguish buffers from parameters.
fn of_names(module: &GraphModule) -> ModuleTree {
    let mut root = ModuleTree::default();
    for (name, tensor) in &module.weights {
        let own = TensorAmount {
            count: tensor.shape().iter().product::<usize>() as u64,
            bytes: tensor.bytes().len() as u64,
        };
        let mut branch = &mut root;
        branch.parameters.add(own);
        let modules = name.split('.').collect::<Vec<&str>>();
        for part in modules.iter().take(modules.len().saturating_sub(1)) {
            branch = branch.module(part);
            branch.parameters.add(own);
        }
    }
    root
}

impl ModuleTree {
    /// Returns the submodule of a name, and adds it if it is new.
    fn module(&mut self, name: &str) -> &mut ModuleTree {
        let place = self.modules.iter().position(|module| module.name == name);
        let place = place.unwrap_or_else(|| {
            self.modules.push(ModuleTree {
                name: name.to_string(),
                ..ModuleTree::default()
            });
            self.modules.len() - 1
        });
        &mut self.modules[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch(name: &str, class: &str, count: u64, modules: Vec<ModuleTree>) -> ModuleTree {
        let mut branch = ModuleTree {
            name: name.to_string(),
            class: class.to_string(),
            ..ModuleTree::default()
        };
        branch.parameters = TensorAmount {
            count,
            bytes: 4 * count,
        };
        modules.into_iter().for_each(|module| branch.add(module));
        branch
    }

    #[test]
    fn modules_alike_are_one_line_and_empty_ones_none() {
        let layer =
            |name: &str| branch(name, "Layer", 0, vec![branch("fc", "Linear", 1000, vec![])]);
        let layers = branch(
            "layer",
            "ModuleList",
            0,
            vec![layer("0"), layer("1"), layer("2")],
        );
        let last = branch("head", "Linear", 10, vec![]);
        let root = branch(
            "",
            "Net",
            5,
            vec![layers, branch("act", "ReLU", 0, vec![]), last],
        );
        let open = root.lines(3);
        let expected = [
            "model      Net         3,015   12.1 kB",
            "  layer    ModuleList  3,000   12.0 kB",
            "    0 … 2  3 × Layer   3,000   12.0 kB",
            "      fc   Linear      1,000    4.0 kB",
            "  head     Linear         10      40 B",
        ];
        assert_eq!(open, expected);
        assert_eq!(root.lines(1).len(), 3);
        assert_eq!(root.total().bytes, 12060);
    }
}
