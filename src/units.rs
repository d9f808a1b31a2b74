//! Amounts and times as people read them.

/// Formats an amount with a unit and an SI prefix: `12.3 MB`.
pub fn amount(number: f64, unit: &str) -> String {
    let prefixes = ["", "k", "M", "G", "T", "P"];
    let (mut scaled, mut prefix) = (number, 0);
    while scaled.abs() >= 1000.0 && prefix + 1 < prefixes.len() {
        (scaled, prefix) = (scaled / 1000.0, prefix + 1);
    }
    match prefix {
        0 => format!("{number:.0} {unit}"),
        _ => format!("{scaled:.1} {}{unit}", prefixes[prefix]),
    }
}

/// Formats nanoseconds: `12.3 µs`.
pub fn duration(nanoseconds: f64) -> String {
    match nanoseconds {
        few if few < 1e3 => format!("{few:.0} ns"),
        some if some < 1e6 => format!("{:.1} µs", some / 1e3),
        many if many < 1e9 => format!("{:.1} ms", many / 1e6),
        most => format!("{:.2} s", most / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_largest_unit_that_fits() {
        assert_eq!(amount(999.4, "B"), "999 B");
        assert_eq!(amount(25_557_032.0, "MAC"), "25.6 MMAC");
        assert_eq!(duration(12_340.0), "12.3 µs");
        assert_eq!(duration(2e9), "2.00 s");
    }
}
