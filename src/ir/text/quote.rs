//! Names, texts and sizes of the text form, quoted where the parser would read something else.

use serde_json::Value as Json;

use super::{KEYWORDS, is_plain};
use crate::dim::Dim;

/// A size as an argument; a symbol that would be parsed otherwise is marked.
pub(super) fn size(dim: &Dim, is_taken: &dyn Fn(&str) -> bool) -> String {
    match dim.as_symbol() {
        Some(name) if KEYWORDS.contains(&&**name) || is_taken(name) => format!("size({name})"),
        _ => dim.to_string(),
    }
}

/// A name, quoted unless it is one word.
pub(super) fn quoted(name: &str) -> String {
    if is_plain(name) {
        name.to_string()
    } else {
        json_string(name)
    }
}

/// A text in the quotes and escapes of JSON.
pub(super) fn json_string(text: &str) -> String {
    Json::String(text.to_string()).to_string()
}
