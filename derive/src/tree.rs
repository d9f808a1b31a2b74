//! Implementation of `#[derive(Tree)]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{DeriveInput, Fields, Result};

use crate::fields::{label, members, struct_data, with_bound};

/// Help in the error for an enum or union.
const ADVICE: &str = "a trace fixes which variant a value is; \
                      use a struct, with Option fields for values that may be absent";

/// Returns the implementation of `Tree` for a struct.
pub fn implement(input: &DeriveInput) -> Result<TokenStream> {
    let fields = &struct_data(input, "Tree", ADVICE)?.fields;
    let name = &input.ident;
    let bound = quote!(::onionskin::trace::Tree);
    let generics = with_bound(&input.generics, &bound);
    let (parameters, arguments, conditions) = generics.split_for_impl();
    let inputs = inputs(input);
    let (flatten, rebuild) = (flatten(name, fields), rebuild(name, fields));
    Ok(quote! {
        #[automatically_derived]
        impl #parameters #bound for #name #arguments #conditions {
            fn flatten(
                &self,
                path: &str,
                leaves: &mut ::std::vec::Vec<::onionskin::trace::TracedTensor>,
            ) -> ::onionskin::error::Result<::onionskin::ir::TreeSpec> {
                #flatten
            }

            fn rebuild(
                spec: &::onionskin::ir::TreeSpec,
                leaves: &[::onionskin::trace::TracedTensor],
                path: &str,
            ) -> ::onionskin::error::Result<Self> {
                #rebuild
            }
        }

        #inputs
    })
}

/// Returns the implementation of `NetworkInputs`: a network takes the struct by reference.
fn inputs(input: &DeriveInput) -> TokenStream {
    let name = &input.ident;
    let generics = with_bound(&input.generics, &quote!(::onionskin::trace::Tree));
    let generics = with_bound(&generics, &quote!('static));
    let (parameters, arguments, conditions) = generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #parameters ::onionskin::trace::NetworkInputs for #name #arguments #conditions {
            type Borrowed<'inputs> = &'inputs Self;

            fn borrowed(&self) -> &Self {
                self
            }
        }
    }
}

/// The path suffix of each field.
fn path_suffixes(fields: &Fields) -> Vec<String> {
    let members = members(fields);
    let labels = members.iter().map(label);
    match fields {
        Fields::Named(_) => labels.map(|label| format!(".{label}")).collect(),
        _ => labels.map(|label| format!("[{label}]")).collect(),
    }
}

/// The body of `Tree::flatten`.
fn flatten(name: &syn::Ident, fields: &Fields) -> TokenStream {
    let members = members(fields);
    let calls = fields.iter().zip(&members).zip(path_suffixes(fields)).map(|((field, member), suffix)| {
        // The span makes the error for a field that is not a tree point to its type.
        quote_spanned! {field.ty.span()=>
            ::onionskin::trace::Tree::flatten(&self.#member, &::std::format!("{path}{}", #suffix), leaves)?
        }
    });
    let name = name.to_string();
    match fields {
        Fields::Named(_) => {
            let labels = members.iter().map(label);
            quote! {
                ::std::result::Result::Ok(::onionskin::ir::TreeSpec::NamedTuple(
                    ::std::string::String::from(#name),
                    ::std::vec![#((::std::string::String::from(#labels), #calls)),*],
                ))
            }
        }
        _ => quote! {
            ::std::result::Result::Ok(::onionskin::ir::TreeSpec::Tuple(::std::vec![#(#calls),*]))
        },
    }
}

/// The body of `Tree::rebuild`.
fn rebuild(name: &syn::Ident, fields: &Fields) -> TokenStream {
    let members = members(fields);
    let specs: Vec<_> = (0..fields.len())
        .map(|index| format_ident!("spec_{index}"))
        .collect();
    let initializers = fields
        .iter()
        .zip(&members)
        .zip(&specs)
        .zip(path_suffixes(fields));
    let initializers = initializers.map(|(((field, member), spec), suffix)| {
        let value = quote_spanned! {field.ty.span()=>
            ::onionskin::trace::Tree::rebuild(#spec, leaves, &::std::format!("{path}{}", #suffix))?
        };
        quote!(#member: #value)
    });
    let (name, texts) = (name.to_string(), members.iter().map(label));
    let items = match fields {
        Fields::Named(_) => quote!(named_items(spec, #name, [#(#texts),*], path)),
        _ => quote!(items(spec, #name, path)),
    };
    quote! {
        let [#(#specs),*] = ::onionskin::trace::derived::#items?;
        ::std::result::Result::Ok(Self { #(#initializers),* })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    #[test]
    fn an_enum_is_told_what_to_do_instead() {
        let error = implement(&parse_quote! { enum Shape { Circle(Tensor), Square(Tensor) } });
        assert_eq!(
            error.unwrap_err().to_string(),
            "Tree is derived for structs, and Shape is an enum: a trace fixes which variant a value is; use a struct, with \
             Option fields for values that may be absent"
        );
    }

    #[test]
    fn type_parameters_are_bound() {
        let tokens = implement(&parse_quote! { struct Pair<T: Copy, const N: usize>([T; N]); });
        let text = tokens.unwrap().to_string();
        let wanted = quote! {
            impl<T: Copy + ::onionskin::trace::Tree, const N: usize> ::onionskin::trace::Tree for Pair<T, N>
        };
        assert!(text.contains(&wanted.to_string()), "{text}");
    }
}
