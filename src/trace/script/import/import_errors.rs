//! Errors of an import. All unsupported parts of a program are listed in one error.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind, Result, SourcePlace};

/// Errors by message: the first of each, and how often it occurred.
#[derive(Default)]
pub struct ImportErrors {
    errors: BTreeMap<String, (Error, usize)>,
}

impl ImportErrors {
    /// Adds an error, or counts it if its message is known already.
    pub fn add(&mut self, error: Error, place: &SourcePlace) {
        let key = error.message().to_string();
        let entry = self.errors.entry(key);
        entry.or_insert_with(|| (error.at_place(place), 0)).1 += 1;
    }

    /// Returns the result, or all errors if there were any, the most frequent first.
    pub fn finish<T>(&mut self, result: Result<T>) -> Result<T> {
        let mut counted: Vec<(Error, usize)> =
            std::mem::take(&mut self.errors).into_values().collect();
        if counted.is_empty() {
            return result;
        }
        counted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let errors = counted.into_iter().map(|(error, count)| match count {
            1 => error,
            count => error.at(format!("{} more places", count - 1)),
        });
        // An error of another kind may follow from the unsupported parts, so it is not listed.
        let final_error = result
            .err()
            .filter(|error| error.kind() == ErrorKind::Unsupported);
        let errors = errors.chain(final_error).collect();
        Err(Error::all(errors)
            .unwrap_or_else(|| Error::internal("the import failed without an error")))
    }
}
