//! Helpers of both macros: a struct's fields, and bounds for type parameters.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Data, DataStruct, DeriveInput, Error, Fields, Generics, Index, Member, Result};
use syn::{GenericParam, TypeParamBound, parse_quote};

/// Returns the struct's data.
///
/// # Errors
/// The type is an enum or a union. The error points to its keyword and gives `advice`.
pub fn struct_data<'a>(
    input: &'a DeriveInput,
    trait_name: &str,
    advice: &str,
) -> Result<&'a DataStruct> {
    let (keyword, kind): (&dyn ToTokens, &str) = match &input.data {
        Data::Struct(data) => return Ok(data),
        Data::Enum(data) => (&data.enum_token, "an enum"),
        Data::Union(data) => (&data.union_token, "a union"),
    };
    let message = format!(
        "{trait_name} is derived for structs, and {} is {kind}: {advice}",
        input.ident
    );
    Err(Error::new_spanned(keyword, message))
}

/// The members of the fields, by name or by index.
pub fn members(fields: &Fields) -> Vec<Member> {
    let numbered = fields.iter().enumerate();
    let member = numbered.map(|(index, field)| match &field.ident {
        Some(name) => Member::Named(name.clone()),
        None => Member::Unnamed(Index::from(index)),
    });
    member.collect()
}

/// A field's name in paths: without `r#`, or the index of an unnamed field.
pub fn label(member: &Member) -> String {
    let text = member.to_token_stream().to_string();
    text.strip_prefix("r#").map_or(text.clone(), str::to_string)
}

/// Adds a bound to each type parameter.
pub fn with_bound(generics: &Generics, bound: &TokenStream) -> Generics {
    let mut generics = generics.clone();
    let bound: TypeParamBound = parse_quote!(#bound);
    for parameter in &mut generics.params {
        if let GenericParam::Type(parameter) = parameter {
            parameter.bounds.push(bound.clone());
        }
    }
    generics
}
