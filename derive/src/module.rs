//! Implementation of `#[derive(Module)]`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{DeriveInput, Field, Result};

use crate::fields::{label, members, struct_data, with_bound};

/// Help in the error for an enum or union.
const ADVICE: &str = "implement `visit` with a match that visits the fields of each variant";

/// The error for another attribute.
const UNKNOWN: &str = "there is only `#[module(skip)]`";

/// Returns the implementation of `Module` for a struct.
pub fn implement(input: &DeriveInput) -> Result<TokenStream> {
    let fields = &struct_data(input, "Module", ADVICE)?.fields;
    let mut visits = Vec::new();
    for (field, member) in fields.iter().zip(members(fields)) {
        if is_skipped(field)? {
            continue;
        }
        let label = label(&member);
        // The span makes the error for a field that is not a module point to its type.
        visits.push(quote_spanned! {field.ty.span()=>
            visitor.field(#label, &self.#member);
        });
    }
    let name = &input.ident;
    let bound = quote!(::onionskin::trace::Module);
    let generics = with_bound(&input.generics, &bound);
    let (parameters, arguments, conditions) = generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #parameters #bound for #name #arguments #conditions {
            fn visit(&self, visitor: &mut ::onionskin::trace::Visitor<'_>) {
                visitor.module(self);
                #(#visits)*
            }
        }
    })
}

/// True for a field with `#[module(skip)]`.
fn is_skipped(field: &Field) -> Result<bool> {
    let mut skipped = false;
    let attributes = field.attrs.iter();
    for attribute in attributes.filter(|attribute| attribute.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            skipped = meta.path.is_ident("skip");
            match skipped {
                true => Ok(()),
                false => Err(meta.error(UNKNOWN)),
            }
        })?;
    }
    Ok(skipped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    #[test]
    fn fields_are_visited_unless_they_are_skipped() {
        let tokens = implement(&parse_quote! {
            struct Net { r#type: Linear, #[module(skip)] log: Log, mean: Buffer }
        });
        let text = tokens.unwrap().to_string();
        let visit = quote! {
            visitor.module(self);
            visitor.field("type", &self.r#type);
            visitor.field("mean", &self.mean);
        };
        assert!(text.contains(&visit.to_string()), "{text}");
        assert!(!text.contains("log"), "{text}");
    }

    #[test]
    fn an_unknown_attribute_is_refused() {
        let tokens = implement(&parse_quote! { struct Net { #[module(skipp)] log: Log } });
        assert_eq!(tokens.unwrap_err().to_string(), UNKNOWN);
    }

    #[test]
    fn an_enum_is_told_what_to_do_instead() {
        let tokens = implement(&parse_quote! { enum Layer { Linear(Linear) } });
        assert_eq!(
            tokens.unwrap_err().to_string(),
            "Module is derived for structs, and Layer is an enum: implement `visit` with a match that visits the fields of each variant"
        );
    }
}
