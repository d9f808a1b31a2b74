//! Decodes base64, in which the browser sends files.

/// Returns the bytes of a text with the standard alphabet.
#[track_caller]
pub fn decode(text: &str) -> Vec<u8> {
    let digits = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        let first = group
            .iter()
            .fold(0u32, |bits, digit| bits << 6 | value_of(*digit));
        let bits = first << (6 * (4 - group.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    bytes
}

#[track_caller]
fn value_of(digit: u8) -> u32 {
    u32::from(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        other => panic!("{other} is no digit of base64"),
    })
}
