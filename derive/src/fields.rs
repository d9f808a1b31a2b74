//! What both macros ask of a type: its fields, and bounds of its parameters.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Data, DataStruct, DeriveInput, Error, Fields, Generics, Index, Member, Result};
use syn::{GenericParam, TypeParamBound, parse_quote};

/// The struct's contents. The error for another type stands at its keyword, and says what to do instead.
pub fn of_struct<'a>(input: &'a DeriveInput, wanted: &str, advice: &str) -> Result<&'a DataStruct> {
    let (keyword, kind): (&dyn ToTokens, &str) = match &input.data {
        Data::Struct(data) => return Ok(data),
        Data::Enum(data) => (&data.enum_token, "an enum"),
        Data::Union(data) => (&data.union_token, "a union"),
    };
    let message = format!(
        "{wanted} is derived for structs, and {} is {kind}: {advice}",
        input.ident
    );
    Err(Error::new_spanned(keyword, message))
}

/// How each field is accessed, by name or by number.
pub fn members(fields: &Fields) -> Vec<Member> {
    let numbered = fields.iter().enumerate();
    let member = numbered.map(|(index, field)| match &field.ident {
        Some(name) => Member::Named(name.clone()),
        None => Member::Unnamed(Index::from(index)),
    });
    member.collect()
}

/// A field as paths call it: without `r#`, and by its number if it has no name.
pub fn label(member: &Member) -> String {
    let text = member.to_token_stream().to_string();
    text.strip_prefix("r#").map_or(text.clone(), str::to_string)
}

/// The generics with a bound for each type parameter.
pub fn bounded(generics: &Generics, bound: &TokenStream) -> Generics {
    let mut generics = generics.clone();
    let bound: TypeParamBound = parse_quote!(#bound);
    for parameter in &mut generics.params {
        if let GenericParam::Type(parameter) = parameter {
            parameter.bounds.push(bound.clone());
        }
    }
    generics
}
