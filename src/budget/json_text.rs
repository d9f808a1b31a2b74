//! Charges for JSON before it is parsed: a walk over the text that keeps nothing.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::Budget;
use crate::error::{Error, Result};

/// Bytes that an object takes in addition to its values.
const OBJECT_BYTES: u64 = 512;

impl Budget {
    /// Charges what parsing a JSON text takes: its values, the bytes of its strings and objects. Checks nesting and lengths.
    ///
    /// # Errors
    /// The text exceeds a limit, or is not JSON.
    pub fn charge_json(&self, text: &[u8]) -> Result<()> {
        let failure = RefCell::new(None);
        let walk = JsonWalk {
            budget: self,
            failure: &failure,
            depth: 0,
        };
        let walked = walk.deserialize(&mut serde_json::Deserializer::from_slice(text));
        walked.map_err(|error| {
            let failure = failure.take();
            failure.unwrap_or_else(|| Error::format(error.to_string()))
        })
    }
}

/// A walk over a value and the values in it.
#[derive(Clone, Copy)]
struct JsonWalk<'a> {
    budget: &'a Budget,
    /// The error of the budget: that of the parser is a text only.
    failure: &'a RefCell<Option<Error>>,
    /// Number of arrays and objects around the value.
    depth: usize,
}

impl JsonWalk<'_> {
    /// Passes a result of the budget on to the parser.
    fn ensure<E: serde::de::Error>(&self, result: Result<()>) -> Result<(), E> {
        result.map_err(|error| {
            let text = E::custom(error.message());
            self.failure.replace(Some(error));
            text
        })
    }

    /// The walk over the elements of an array or object.
    fn inner<E: serde::de::Error>(self) -> Result<Self, E> {
        let depth = self.depth + 1;
        self.ensure(self.budget.check_depth(depth))?;
        Ok(JsonWalk { depth, ..self })
    }

    fn charge_string(&self, text: &str) -> Result<()> {
        self.budget.check_length(text.len())?;
        self.budget.charge_bytes(text.len() as u64)
    }
}

impl<'de> DeserializeSeed<'de> for JsonWalk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.ensure(self.budget.charge_values(1))?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonWalk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        self.ensure(self.charge_string(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        let mut length = 0;
        while items.next_element_seed(inner)?.is_some() {
            length += 1;
            self.ensure(self.budget.check_length(length))?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        self.ensure(self.budget.charge_bytes(OBJECT_BYTES))?;
        let mut length = 0;
        while entries.next_key_seed(inner)?.is_some() {
            entries.next_value_seed(inner)?;
            length += 1;
            self.ensure(self.budget.check_length(length))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Limits;

    fn charge(text: &str, limit: &str, value: u64) -> Result<()> {
        let mut limits = Limits::default();
        limits.set(limit, value).unwrap();
        Budget::new(limits).charge_json(text.as_bytes())
    }

    #[test]
    fn each_limit_is_exact() {
        let text = r#"{"a": [1, null, {"b": true}], "cde": "fghi\n"}"#;
        // Keys and values: 3 objects and arrays, 5 strings, 3 others.
        for (limit, needed) in [("values", 10), ("depth", 3), ("length", 5)] {
            assert!(charge(text, limit, needed).is_ok(), "{limit}");
            let error = charge(text, limit, needed - 1).unwrap_err();
            assert!(
                error.message().contains(&format!("{}", needed - 1)),
                "{error}"
            );
        }
        let bytes = 2 * OBJECT_BYTES + 10;
        assert!(charge(text, "bytes", bytes).is_ok());
        let error = charge(text, "bytes", bytes - 1).unwrap_err();
        assert!(error.advice().unwrap().contains("--limit bytes=N"));
    }

    #[test]
    fn errors_of_syntax_keep_their_place() {
        let error = Budget::default().charge_json(b"[1,\n2").unwrap_err();
        assert!(error.message().contains("line 2"), "{error}");
    }
}
