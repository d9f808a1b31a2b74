//! Keys by their names in JavaScript.

/// Names, codes and Windows' numbers of keys that write nothing, and of Enter.
const NAMED: [(&str, u32); 14] = [
    ("Backspace", 8),
    ("Tab", 9),
    ("Enter", 13),
    ("Escape", 27),
    ("PageUp", 33),
    ("PageDown", 34),
    ("End", 35),
    ("Home", 36),
    ("ArrowLeft", 37),
    ("ArrowUp", 38),
    ("ArrowRight", 39),
    ("ArrowDown", 40),
    ("Insert", 45),
    ("Delete", 46),
];

/// Modifiers with their bits in the protocol.
const MODIFIERS: [(&str, u32); 4] = [("Alt", 1), ("Control", 2), ("Meta", 4), ("Shift", 8)];

/// A key that is pressed, as the DevTools protocol describes it.
pub struct Key {
    pub name: String,
    /// Place on the keyboard.
    pub code: String,
    pub virtual_code: u32,
    pub modifiers: u32,
    /// Characters that it writes.
    pub text: Option<String>,
}

impl Key {
    /// Returns the key of a text such as `a`, `Enter` or `Control+Shift+z`.
    #[track_caller]
    pub fn parse(text: &str) -> Key {
        let (modifiers, name) = match text.strip_suffix('+') {
            Some(modifiers) => (modifiers.trim_end_matches('+'), "+"),
            None => text.rsplit_once('+').unwrap_or(("", text)),
        };
        let mut key = Key::of_name(name);
        for modifier in modifiers.split('+').filter(|name| !name.is_empty()) {
            key.modifiers |= modifier_bit(modifier);
        }
        if key.modifiers & !modifier_bit("Shift") != 0 {
            key.text = None;
        }
        key
    }

    #[track_caller]
    fn of_name(name: &str) -> Key {
        let mut chars = name.chars();
        if let (Some(c), None) = (chars.next(), chars.next()) {
            return Key::of_char(c);
        }
        let Some((_, number)) = NAMED.iter().find(|(named, _)| *named == name) else {
            panic!("{name} is no key; add it to NAMED");
        };
        Key {
            name: name.to_string(),
            code: name.to_string(),
            virtual_code: *number,
            modifiers: 0,
            text: (name == "Enter").then(|| String::from("\r")),
        }
    }

    /// Returns the key that writes a character.
    pub fn of_char(c: char) -> Key {
        let upper = c.to_ascii_uppercase();
        let (code, virtual_code) = match upper {
            'A'..='Z' => (format!("Key{upper}"), u32::from(upper)),
            '0'..='9' => (format!("Digit{upper}"), u32::from(upper)),
            ' ' => (String::from("Space"), 32),
            _ => (String::new(), 0),
        };
        Key {
            name: c.to_string(),
            code,
            virtual_code,
            modifiers: if c.is_ascii_uppercase() {
                modifier_bit("Shift")
            } else {
                0
            },
            text: Some(c.to_string()),
        }
    }
}

/// Returns the bit of a modifier in the protocol.
#[track_caller]
pub fn modifier_bit(modifier: &str) -> u32 {
    match MODIFIERS.iter().find(|(name, _)| *name == modifier) {
        Some((_, bit)) => *bit,
        None => panic!("{modifier} is no modifier"),
    }
}
