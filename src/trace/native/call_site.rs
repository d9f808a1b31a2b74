//! The line of the user's program that called into this library.

use std::cell::RefCell;
use std::iter;
use std::panic::Location as Caller;

use crate::error::{Location, SourcePlace};

use super::recorder;

thread_local! {
    /// Call sites of the running modules, the innermost last.
    static CALL_SITES: RefCell<Vec<&'static Caller<'static>>> = const { RefCell::new(Vec::new()) };
}

/// Folders in paths of the standard library: as it was built, and as a toolchain with the component `rust-src` names
/// it. A function such as `TracedTensor::relu` that is passed to the standard library is called from a line there.
const STANDARD_LIBRARY: [&str; 3] = ["/rustc/", "/rustlib/src/rust/", "\\rustlib\\src\\rust\\"];

/// The folder of this crate's `trace` module, as it occurs in paths of callers.
fn library_folder() -> &'static str {
    let file = file!();
    let folder = file.len().checked_sub("native/call_site.rs".len());
    folder.and_then(|end| file.get(..end)).unwrap_or(file)
}

/// The source line of the user's program that called into this library, with the path of the module call in progress.
#[track_caller]
pub(super) fn caller() -> SourcePlace {
    let caller = innermost_user_line(Caller::caller());
    let location = Location::new(caller.file(), caller.line());
    SourcePlace {
        module: recorder::active()
            .map(|recorder| recorder.module())
            .unwrap_or_default(),
        location: Some(location),
    }
}

/// The innermost call site in the user's code. Modules of this library report the line that calls them.
fn innermost_user_line(innermost: &'static Caller<'static>) -> &'static Caller<'static> {
    let is_user_line = |line: &&Caller<'_>| {
        let file = line.file();
        let is_standard = STANDARD_LIBRARY.iter().any(|folder| file.contains(folder));
        !is_standard && !file.starts_with(library_folder())
    };
    CALL_SITES.with_borrow(|sites| {
        let mut outwards = iter::once(&innermost).chain(sites.iter().rev()).copied();
        outwards.find(is_user_line).unwrap_or(innermost)
    })
}

/// Pushes the call site of a module; [`pop_call`] removes it.
pub(super) fn push_call(site: &'static Caller<'static>) {
    CALL_SITES.with_borrow_mut(|sites| sites.push(site));
}

/// Pops the call site of the module that returns.
pub(super) fn pop_call() {
    CALL_SITES.with_borrow_mut(Vec::pop);
}
