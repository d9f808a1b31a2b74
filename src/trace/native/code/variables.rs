//! Variables of generated source.

use std::collections::BTreeSet;

/// Names that no variable gets, separated by spaces: Rust's keywords, and names that the generated functions use.
const RESERVED_NAMES: &str = " w ops kw cond while_loop as async await become box break const continue crate do dyn else enum \
    extern false final fn for gen if impl in let loop macro match mod move mut override priv pub ref return self static \
    struct super trait true try type typeof unsafe unsized use virtual where while yield abstract ";

/// Variable names in use.
#[derive(Default)]
pub(super) struct VariableNames(BTreeSet<String>);

impl VariableNames {
    /// Reserves and returns an unused identifier, `wanted` if possible.
    pub fn unique(&mut self, wanted: &str) -> String {
        let wanted = identifier(wanted);
        let numbered = (1..).map(|number| format!("{wanted}_{number}"));
        let mut names = std::iter::once(wanted.clone()).chain(numbered);
        let is_taken =
            |name: &str| RESERVED_NAMES.contains(&format!(" {name} ")) || self.0.contains(name);
        let name = names.find(|name| !is_taken(name)).unwrap_or_default();
        self.0.insert(name.clone());
        name
    }
}

/// Converts a name to a Rust identifier.
pub(super) fn identifier(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = name.chars().map(letter).collect();
    match name.chars().next() {
        Some(first) if !first.is_ascii_digit() && !name.trim_matches('_').is_empty() => name,
        _ => format!("_{name}v"),
    }
}

/// A source expression for a tensor.
#[derive(Clone)]
pub(super) struct TensorExpr {
    /// A variable, an item of a list, or a call that returns a weight.
    pub text: String,
    /// True for a variable of type `&TracedTensor`.
    is_reference: bool,
}

impl TensorExpr {
    /// A variable of type `&TracedTensor`.
    pub fn reference(text: &str) -> TensorExpr {
        TensorExpr {
            text: text.to_string(),
            is_reference: true,
        }
    }

    /// An expression of type `TracedTensor`.
    pub fn owned(text: impl Into<String>) -> TensorExpr {
        TensorExpr {
            text: text.into(),
            is_reference: false,
        }
    }

    /// The source of a `&TracedTensor`.
    pub fn borrowed(&self) -> String {
        match self.is_reference {
            true => self.text.clone(),
            false => format!("&{}", self.text),
        }
    }
}
