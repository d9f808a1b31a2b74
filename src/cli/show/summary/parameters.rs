//! Parameters and buffers by module: elements, bytes and classes.

use serde::Serialize;

use crate::cli::output::grouped;
use crate::dim::Bindings;
use crate::shape::TensorType;
use crate::trace::program::ModuleTensors;
use crate::units::amount;

/// Number of elements and bytes of tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct TensorAmount {
    pub(super) count: u64,
    pub(super) bytes: u64,
}

impl TensorAmount {
    /// The amount of tensors of these types.
    fn of(types: &[TensorType]) -> TensorAmount {
        let mut total = TensorAmount::default();
        for ty in types {
            let sizes = ty.sizes(&Bindings::new()).unwrap_or_default();
            let sizes = sizes.iter().map(|size| *size as u64);
            let count = sizes.fold(1, u64::saturating_mul);
            let bytes = count.saturating_mul(ty.dtype.size() as u64);
            total.add(TensorAmount { count, bytes });
        }
        total
    }

    fn add(&mut self, other: TensorAmount) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
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
    /// Builds the tree of a program's modules.
    pub(super) fn of(module: ModuleTensors) -> ModuleTree {
        let mut tree = ModuleTree {
            name: module.name,
            class: module.class,
            parameters: TensorAmount::of(&module.parameters),
            buffers: TensorAmount::of(&module.buffers),
            modules: Vec::new(),
        };
        let modules = module.modules.into_iter().map(ModuleTree::of);
        modules.for_each(|module| tree.add(module));
        tree
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
