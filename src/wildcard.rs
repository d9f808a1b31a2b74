//! Patterns of names in which `*` stands for any text.

/// True if a name is a pattern.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(rest) = name.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    let Some(mut rest) = rest.strip_suffix(last) else {
        return false;
    };
    parts.all(|part| match rest.find(part) {
        Some(index) => {
            rest = rest.get(index + part.len()..).unwrap_or_default();
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        let names = ["fc.weight", "head.fc.weight", "fc.bias"];
        let matching = |pattern: &str| names.map(|name| matches(pattern, name));
        assert_eq!(matching("fc.weight"), [true, false, false]);
        assert_eq!(matching("*.weight"), [true, true, false]);
        assert_eq!(matching("*fc*"), [true, true, true]);
        assert_eq!(matching("fc.*"), [true, false, true]);
    }
}
