//! `#[derive(Tree)]` and `#[derive(Module)]` of onionskin. It re-exports them as `onionskin::trace::{Tree, Module}` beside
//! the traits that they implement.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod fields;
mod module;
mod tree;

use proc_macro::TokenStream;
use syn::{DeriveInput, Error, Result, parse_macro_input};

/// Implements `onionskin::trace::Tree` for a struct whose fields implement it, and `onionskin::trace::NetworkInputs`: a network takes
/// the struct by reference.
///
/// A struct with named fields becomes a named tuple with the fields' names, one with unnamed fields a tuple. Type parameters
/// must implement `Tree`.
#[proc_macro_derive(Tree)]
pub fn derive_tree(input: TokenStream) -> TokenStream {
    implement(&parse_macro_input!(input as DeriveInput), tree::implement)
}

/// Implements `onionskin::trace::Module` for a struct whose fields are parameters, modules and settings.
///
/// A field's name is part of the paths of its parameters; an unnamed field has its index. `#[module(skip)]` leaves out a
/// field of any other type. Type parameters must implement `Module`.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: TokenStream) -> TokenStream {
    implement(&parse_macro_input!(input as DeriveInput), module::implement)
}

/// Returns the tokens of an implementation, or those of a compile error.
fn implement(
    input: &DeriveInput,
    implement: fn(&DeriveInput) -> Result<proc_macro2::TokenStream>,
) -> TokenStream {
    let tokens = implement(input).unwrap_or_else(Error::into_compile_error);
    tokens.into()
}
