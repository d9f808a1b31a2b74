//! Symbols for the sizes of example inputs.

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

    /// Returns the shape of the input `name`, whose sizes in the example are `example`, with a symbol (`x_0`) for each
    /// size that may vary. Sizes of 0 are fixed, since symbols stand for positive sizes.
    pub fn symbolic_shape(&self, symbols: &Symbols, name: &str, example: &[usize]) -> Shape {
        let size = |(axis, size): (usize, &usize)| {
            let hint = i64::try_from(*size).unwrap_or(i64::MAX);
            if hint == 0 || !self.is_symbolic(name, axis) {
                return Dim::from(hint);
            }
            let dim = Dim::symbol(format!("{name}_{axis}"));
            if let Some(symbol) = dim.as_symbol() {
                symbols.declare(symbol, hint);
            }
            dim
        };
        example.iter().enumerate().map(size).collect()
    }
}
