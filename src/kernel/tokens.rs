//! Tokens of WGSL source.

/// Identifiers and numbers of a text.
pub(super) fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

/// Length of the name or number at the start of the text; 0 if it starts with neither.
pub(super) fn token_length(text: &str) -> usize {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit());
    let has_exponent = is_number && !text.starts_with("0x");
    let mut before = ' ';
    let end = text.find(|c: char| {
        let is_sign = has_exponent && before == 'e' && matches!(c, '-' | '+');
        before = c;
        !(c.is_ascii_alphanumeric() || c == '_' || is_number && c == '.' || is_sign)
    });
    end.unwrap_or(text.len())
}
