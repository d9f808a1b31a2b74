//! Paths of module calls: `relu` is the first call of a module, `relu#1` its second call within one call of its caller.

use std::collections::BTreeMap;

use crate::error::without_call_numbers;

/// Number of calls of each module, by the path of its first call.
#[derive(Clone, Debug, Default)]
pub struct ModuleCalls {
    counts: BTreeMap<String, usize>,
}

impl ModuleCalls {
    /// Returns the path of a call of the module at `path`, made within the call at `caller`. A module that calls one of its
    /// own methods stays in its call.
    pub fn enter(&mut self, caller: &str, path: &str) -> String {
        let caller_module = without_call_numbers(caller);
        if caller_module == path {
            return caller.to_string();
        }
        let relative_path = path.strip_prefix(&caller_module);
        let relative_path = relative_path.and_then(|rest| rest.strip_prefix('.'));
        // A module that is not a submodule of its caller counts its calls over all callers.
        let first_call = match relative_path {
            Some(relative_path) => format!("{caller}.{relative_path}"),
            None => path.to_string(),
        };
        let count = self.counts.entry(first_call.clone()).or_default();
        *count += 1;
        match *count - 1 {
            0 => first_call,
            number => format!("{first_call}#{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_per_call_of_the_caller() {
        let mut calls = ModuleCalls::default();
        let paths = [
            ("", "block", "block"),
            ("block", "block.relu", "block.relu"),
            ("block", "block.relu", "block.relu#1"),
            ("", "block", "block#1"),
            ("block#1", "block.relu", "block#1.relu"),
            ("block#1", "block", "block#1"),
            ("block#1", "other", "other"),
            ("block", "other", "other#1"),
        ];
        for (caller, path, call) in paths {
            assert_eq!(calls.enter(caller, path), call);
            assert_eq!(without_call_numbers(call), path);
        }
    }
}
