//! Symbols for the sizes of example inputs.

use std::collections::BTreeSet;

use crate::dim::Dim;
use crate::shape::Shape;
use crate::symbols::Symbols;

/// The sizes of the inputs that become symbols.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SymbolicSizes {
    /// All sizes except those that are 0.
    #[default]
    All,
    /// No size.
    None,
    /// Only the listed sizes, each by the name of its input and its axis.
    Only(Vec<(String, usize)>),
}

impl SymbolicSizes {
    fn is_symbolic(&self, name: &str, axis: usize) -> bool {
        match self {
            SymbolicSizes::All => true,
            SymbolicSizes::None => false,
            SymbolicSizes::Only(list) => list
                .iter()
                .any(|(input, symbolic_axis)| input == name && *symbolic_axis == axis),
        }
    }
}

/// Symbols for the sizes of the inputs of one graph. No symbol has the name of an input.
#[derive(Clone, Debug, Default)]
pub struct InputSizes {
    sizes: SymbolicSizes,
    /// Names of inputs.
    inputs: BTreeSet<String>,
}

impl InputSizes {
    /// Makes symbols for these sizes.
    pub fn new(sizes: SymbolicSizes) -> InputSizes {
        InputSizes {
            sizes,
            inputs: BTreeSet::new(),
        }
    }

    /// Adds names of inputs.
    pub fn reserve<'n>(&mut self, inputs: impl IntoIterator<Item = &'n str>) {
        self.inputs.extend(inputs.into_iter().map(str::to_string));
    }

    /// Returns the shape of the input `name`, whose sizes in the example are `example`, with a symbol (`x_0`) for each
    /// size that may vary. Sizes of 0 are fixed, since symbols stand for positive sizes.
    pub fn symbolic_shape(&self, symbols: &Symbols, name: &str, example: &[usize]) -> Shape {
        let size = |(axis, size): (usize, &usize)| {
            let hint = i64::try_from(*size).unwrap_or(i64::MAX);
            if hint == 0 || !self.sizes.is_symbolic(name, axis) {
                return Dim::from(hint);
            }
            let dim = Dim::symbol(self.symbol_name(symbols, name, axis));
            if let Some(symbol) = dim.as_symbol() {
                symbols.declare(symbol, hint);
            }
            dim
        };
        example.iter().enumerate().map(size).collect()
    }

    /// A name for the size of an axis that no input and no other size has: `x_0`, or `x_size_0`, or that with a number.
    fn symbol_name(&self, symbols: &Symbols, input: &str, axis: usize) -> String {
        let second = format!("{input}_size_{axis}");
        let numbered = (1..).map(|number| format!("{second}_{number}"));
        let mut names = [format!("{input}_{axis}"), second.clone()]
            .into_iter()
            .chain(numbered);
        let is_free = |name: &String| !self.inputs.contains(name) && !symbols.is_declared(name);
        names.find(is_free).unwrap_or(second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_names_of_their_own() {
        let mut sizes = InputSizes::new(SymbolicSizes::All);
        sizes.reserve(["x", "x_1"]);
        let symbols = Symbols::default();
        let shape = |name: &str| {
            let shape = sizes.symbolic_shape(&symbols, name, &[2, 3]);
            shape.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(shape("x"), ["x_0", "x_size_1"]);
        assert_eq!(shape("x_1"), ["x_1_0", "x_1_1"]);
        assert_eq!(shape("x_1"), ["x_1_size_0", "x_1_size_1"]);
    }
}
