//! Limits of the loops that a thread runs.
//!
//! The checker runs programs with inputs of its own, for which a loop may never end.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result, SourcePlace};

/// Limits of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopLimit {
    /// Largest number of rounds of one loop.
    pub rounds: i64,
    /// Longest time of the program. Loops and operators of traced functions check it.
    pub time: Duration,
}

impl LoopLimit {
    /// No limit.
    pub const NONE: LoopLimit = LoopLimit {
        rounds: i64::MAX,
        time: Duration::MAX,
    };
}

/// Rounds and time that a program took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopUse {
    /// Rounds of the longest loop.
    pub rounds: i64,
    /// Duration of the program.
    pub time: Duration,
}

/// The limit that a program exceeded, and the place of the loop or operator that exceeded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExceededLimit {
    /// Says which limit was exceeded.
    pub message: String,
    /// Place in the user's program.
    pub place: SourcePlace,
}

thread_local! {
    static ACTIVE: RefCell<Option<LimitedRun>> = const { RefCell::new(None) };
}

/// A program that runs under a limit.
struct LimitedRun {
    limit: LoopLimit,
    start: Instant,
    /// Rounds of the longest loop so far.
    rounds: i64,
    exceeded: Option<ExceededLimit>,
}

/// Puts the outer run back when dropped, even by a panic.
struct OuterRun(Option<LimitedRun>);

impl Drop for OuterRun {
    fn drop(&mut self) {
        ACTIVE.set(self.0.take());
    }
}

/// Runs a program under a limit. Loops of graphs fail and traced functions are unwound
/// once they exceed it.
pub fn with_limit<T>(limit: LoopLimit, program: impl FnOnce() -> T) -> (T, LoopUse) {
    let start = Instant::now();
    let run = LimitedRun {
        limit,
        start,
        rounds: 0,
        exceeded: None,
    };
    let outer = OuterRun(ACTIVE.replace(Some(run)));
    let result = program();
    let rounds = ACTIVE.with_borrow(|run| run.as_ref().map_or(0, |run| run.rounds));
    drop(outer);
    let time = start.elapsed();
    (result, LoopUse { rounds, time })
}

/// The first limit that the running program exceeded.
pub fn exceeded() -> Option<ExceededLimit> {
    ACTIVE.with_borrow(|run| run.as_ref()?.exceeded.clone())
}

/// Begins a round of a graph's loop at `place`, counted from 0.
///
/// # Errors
/// The round exceeds a limit.
pub fn begin_round(round: i64, place: &SourcePlace) -> Result<()> {
    with_run(|run| run.begin_round(round, place))
}

/// [`begin_round`] for a loop of a program that is called or traced. A program that exceeds a limit is unwound.
///
/// # Errors
/// The round exceeds a limit, and panics abort.
pub fn begin_program_round(round: i64, place: &SourcePlace) -> Result<()> {
    unwind(begin_round(round, place))
}

/// Checks the time before an operator of a program that is called or traced. A program that exceeds its time is unwound.
///
/// # Errors
/// The time is over, and panics abort.
pub fn check_program_time(place: &SourcePlace) -> Result<()> {
    unwind(with_run(|run| run.check_time(place)))
}

/// Unwinds the program if a limit is exceeded, since programs may ignore errors. Unlike a panic, this prints nothing.
fn unwind(checked: Result<()>) -> Result<()> {
    match checked {
        Err(error) if cfg!(panic = "unwind") => {
            resume_unwind(Box::new(error.message().to_string()))
        }
        checked => checked,
    }
}

/// Applies a check to the running program, if there is a limit.
fn with_run(check: impl FnOnce(&mut LimitedRun) -> Result<()>) -> Result<()> {
    ACTIVE.with_borrow_mut(|run| run.as_mut().map_or(Ok(()), check))
}

impl LimitedRun {
    fn begin_round(&mut self, round: i64, place: &SourcePlace) -> Result<()> {
        let limit = self.limit.rounds;
        if round >= limit {
            return self.exceed(format!("loop did not end after {limit} rounds"), place);
        }
        self.rounds = self.rounds.max(round + 1);
        self.check_time(place)
    }

    fn check_time(&mut self, place: &SourcePlace) -> Result<()> {
        let limit = self.limit.time;
        if self.start.elapsed() <= limit {
            return Ok(());
        }
        self.exceed(format!("did not end within {limit:.1?}"), place)
    }

    /// Records the first exceeded limit, and returns it as an error.
    fn exceed(&mut self, message: String, place: &SourcePlace) -> Result<()> {
        let place = place.clone();
        let exceeded = ExceededLimit { message, place };
        let exceeded = self.exceeded.get_or_insert(exceeded);
        Err(Error::new(ErrorKind::Raised, exceeded.message.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_to(rounds: i64) -> Result<()> {
        (0..rounds).try_for_each(|round| begin_round(round, &SourcePlace::default()))
    }

    #[test]
    fn rounds_are_limited_and_counted() {
        assert!(count_to(10).is_ok());
        let limit = LoopLimit {
            rounds: 3,
            ..LoopLimit::NONE
        };
        let (results, used) = with_limit(limit, || (count_to(2), exceeded(), count_to(4)));
        assert!(results.0.is_ok() && results.1.is_none());
        let message = results.2.unwrap_err().message().to_string();
        assert_eq!(message, "loop did not end after 3 rounds");
        assert_eq!((used.rounds, exceeded()), (3, None));
    }

    #[test]
    fn a_program_that_ignores_errors_is_unwound() {
        let limit = LoopLimit {
            time: Duration::from_millis(5),
            ..LoopLimit::NONE
        };
        let endless = || loop {
            let _ = check_program_time(&SourcePlace::default());
        };
        let run = std::panic::catch_unwind(|| with_limit(limit, endless));
        let payload = run.unwrap_err();
        let message = crate::error::panic_message(&*payload);
        assert_eq!(message, "did not end within 5.0ms");
        assert!(check_program_time(&SourcePlace::default()).is_ok());
    }
}
