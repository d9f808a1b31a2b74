//! Limits on the bytes, values, steps and nesting that reading a file may use. Each is charged while the file is read, so that
//! a small file cannot unfold without bound.

mod json_text;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::interrupt;

/// Limits for reading one file and importing its program. The defaults are ten times what known models need, or more;
/// `docs/security.md` lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that are made of a file beyond its own size: inflated records, gathered tensors.
    pub bytes: u64,
    /// Values that are made: those of pickles, and elements of lists, tuples and dicts of the program.
    pub values: u64,
    /// Steps of an import: values that are visited; a statement counts as [`Limits::STEPS_OF_STATEMENT`].
    pub steps: u64,
    /// Nesting: of values, of expressions and blocks, and of calls, which add up.
    pub depth: u64,
    /// Characters of a string, and elements of a list.
    pub length: u64,
}

impl Limits {
    /// Steps that a statement counts as.
    pub const STEPS_OF_STATEMENT: u64 = 32;
    /// Steps that an unrolled iteration of a loop counts as. It may add nodes, which take memory.
    pub const STEPS_OF_ITERATION: u64 = 640;

    /// Limits that no file exceeds.
    pub fn none() -> Limits {
        Limits {
            bytes: u64::MAX,
            values: u64::MAX,
            steps: u64::MAX,
            length: u64::MAX,
            // More overflows the stack of a thread.
            depth: Limits::default().depth,
        }
    }

    /// Sets a limit by its name.
    ///
    /// # Errors
    /// No limit has this name, or the limit of nesting would exceed its default, which the stack bounds.
    pub fn set(&mut self, name: &str, value: u64) -> Result<()> {
        let resource = Resource::ALL.into_iter().find(|known| known.name() == name);
        let Some(resource) = resource else {
            let names: Vec<&str> = Resource::ALL.iter().map(|known| known.name()).collect();
            let message = format!("there is no limit {name:?}");
            return Err(Error::usage(message).help(format!("limits are {}", names.join(", "))));
        };
        let largest = Limits::default().depth;
        if resource == Resource::Depth && largest < value {
            let message = format!("the limit of nesting is at most {largest}");
            return Err(Error::usage(message).help("more overflows the stack of a thread"));
        }
        *self.limit_mut(resource) = value;
        Ok(())
    }

    fn limit(&self, resource: Resource) -> u64 {
        match resource {
            Resource::Bytes => self.bytes,
            Resource::Values => self.values,
            Resource::Steps => self.steps,
            Resource::Depth => self.depth,
            Resource::Length => self.length,
        }
    }

    fn limit_mut(&mut self, resource: Resource) -> &mut u64 {
        match resource {
            Resource::Bytes => &mut self.bytes,
            Resource::Values => &mut self.values,
            Resource::Steps => &mut self.steps,
            Resource::Depth => &mut self.depth,
            Resource::Length => &mut self.length,
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bytes: 512 << 20,
            values: 4 << 20,
            steps: 64 << 20,
            depth: 256,
            length: 1 << 20,
        }
    }
}

/// A quantity that a limit bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resource {
    /// [`Limits::bytes`]
    Bytes,
    /// [`Limits::values`]
    Values,
    /// [`Limits::steps`]
    Steps,
    /// [`Limits::depth`]
    Depth,
    /// [`Limits::length`]
    Length,
}

impl Resource {
    const ALL: [Resource; 5] = [
        Resource::Bytes,
        Resource::Values,
        Resource::Steps,
        Resource::Depth,
        Resource::Length,
    ];

    fn name(self) -> &'static str {
        match self {
            Resource::Bytes => "bytes",
            Resource::Values => "values",
            Resource::Steps => "steps",
            Resource::Depth => "depth",
            Resource::Length => "length",
        }
    }

    /// The error of a file that exceeds a limit.
    fn exceeded(self, limit: u64) -> Error {
        let message = match self {
            Resource::Bytes => format!("the file unfolds to more than {limit} bytes"),
            Resource::Values => format!("the file makes more than {limit} values"),
            Resource::Steps => format!("the import takes more than {limit} steps"),
            Resource::Depth => {
                format!("values, expressions or calls are nested more than {limit} deep")
            }
            Resource::Length => format!("a string or list has more than {limit} elements"),
        };
        let error = Error::unsupported(message);
        match self {
            Resource::Depth => error.help("a value may contain itself, or a function call itself"),
            _ => error.help(format!(
                "if you trust the file, raise the limit: --limit {name}=N, or Limits::{name} in the library",
                name = self.name()
            )),
        }
    }
}

/// Limits with what is used of them. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Budget {
    limits: Limits,
    used: Arc<Used>,
}

#[derive(Debug, Default)]
struct Used {
    bytes: AtomicU64,
    values: AtomicU64,
    steps: AtomicU64,
}

impl Budget {
    /// A budget of which nothing is used.
    pub fn new(limits: Limits) -> Budget {
        let used = Arc::default();
        Budget { limits, used }
    }

    /// A budget for work on a file, which may make as many bytes as the file has in addition to the limit.
    pub fn for_file(limits: &Limits, file_size: usize) -> Budget {
        let bytes = limits.bytes.saturating_add(file_size as u64);
        Budget::new(Limits {
            bytes,
            ..limits.clone()
        })
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Adds to what is made beyond the file's own bytes.
    pub fn charge_bytes(&self, count: u64) -> Result<()> {
        self.charge(Resource::Bytes, &self.used.bytes, count)
    }

    /// Adds to the values that are made.
    pub fn charge_values(&self, count: usize) -> Result<()> {
        self.charge(Resource::Values, &self.used.values, count as u64)
    }

    /// Checks a number of values that is not made, but visited.
    pub fn check_values(&self, count: usize) -> Result<()> {
        self.check(Resource::Values, count as u64)
    }

    /// Adds to the steps of the import.
    pub fn charge_steps(&self, count: u64) -> Result<()> {
        self.charge(Resource::Steps, &self.used.steps, count)
    }

    /// Adds to what is used. Work that is charged ends at a limit of its call, too.
    fn charge(&self, resource: Resource, used: &AtomicU64, count: u64) -> Result<()> {
        interrupt::check()?;
        // A sum that wrapped would be a new budget.
        let add = |used: u64| Some(used.saturating_add(count));
        let before = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        self.check(resource, before.unwrap_or(u64::MAX).saturating_add(count))
    }

    /// Checks a nesting depth.
    pub fn check_depth(&self, depth: usize) -> Result<()> {
        self.check(Resource::Depth, depth as u64)
    }

    /// Checks the length of a string or list before it is made.
    pub fn check_length(&self, length: usize) -> Result<()> {
        self.check(Resource::Length, length as u64)
    }

    /// Runs work during which symbolic sizes of this thread are charged to the budget: by `charge_sizes` and
    /// `may_compute_size`.
    ///
    /// # Errors
    /// As the work. [`ErrorKind::Unsupported`](crate::error::ErrorKind::Unsupported) if a size exceeded a limit: the work then
    /// had other numbers in place of sizes.
    pub fn scope<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let active = SizeBudget {
            budget: self.clone(),
            failure: None,
        };
        let outer = OuterBudget(ACTIVE.replace(Some(active)));
        let result = work();
        let failure = ACTIVE.with_borrow_mut(|active| active.as_mut()?.failure.take());
        drop(outer);
        failure.map_or(result, Err)
    }

    fn check(&self, resource: Resource, amount: u64) -> Result<()> {
        let limit = self.limits.limit(resource);
        match amount <= limit {
            true => Ok(()),
            false => Err(resource.exceeded(limit)),
        }
    }
}

/// The budget for symbolic sizes, and the first error of an operator on them, which cannot return it.
struct SizeBudget {
    budget: Budget,
    failure: Option<Error>,
}

thread_local! {
    /// The budget for sizes. Neither the parser of a document nor operators on sizes are passed one.
    static ACTIVE: RefCell<Option<SizeBudget>> = const { RefCell::new(None) };
}

/// The budget to which the thread charged before a scope.
struct OuterBudget(Option<SizeBudget>);

impl Drop for OuterBudget {
    fn drop(&mut self) {
        ACTIVE.replace(self.0.take());
    }
}

/// Charges terms and factors of a size to the budget of the innermost [`Budget::scope`] of the thread, if there is one.
pub(crate) fn charge_sizes(count: usize) -> Result<()> {
    ACTIVE.with_borrow(|active| {
        let budget = active.as_ref().map(|active| &active.budget);
        budget.map_or(Ok(()), |budget| budget.charge_values(count))
    })
}

/// Charges an operator on sizes, like [`charge_sizes`], and checks the nesting of its result. False if a limit is exceeded:
/// the scope fails then, so that the operator may return any size.
pub(crate) fn may_compute_size(count: usize, depth: usize) -> bool {
    ACTIVE.with_borrow_mut(|active| {
        let Some(SizeBudget { budget, failure }) = active else {
            return true;
        };
        if failure.is_none() {
            let charged = budget.charge_values(count);
            *failure = charged.and_then(|()| budget.check_depth(depth)).err();
        }
        failure.is_none()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_limit_and_its_option() {
        let mut limits = Limits::default();
        limits.set("values", 3).unwrap();
        let budget = Budget::new(limits);
        budget.charge_values(3).unwrap();
        let error = budget.clone().charge_values(1).unwrap_err();
        assert_eq!(error.message(), "the file makes more than 3 values");
        assert!(error.advice().unwrap().contains("--limit values=N"));
        assert!(Budget::default().check_depth(257).is_err());
    }

    #[test]
    fn a_huge_charge_leaves_nothing() {
        let budget = Budget::default();
        budget.charge_bytes(1).unwrap();
        assert!(budget.charge_bytes(u64::MAX).is_err());
        assert!(budget.charge_bytes(1).is_err());
    }

    #[test]
    fn limits_are_set_by_name() {
        let mut limits = Limits::default();
        assert!(limits.set("atoms", 1).is_err());
        assert!(limits.set("depth", 1 << 30).is_err());
        assert!(limits.set("steps", 1 << 40).is_ok());
        assert_eq!(limits.steps, 1 << 40);
    }
}
