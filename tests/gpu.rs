//! Plans written by hand, run on whatever adapter there is.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod gpu {
    mod conversions;
    mod devices;
    mod errors;
    mod plans;
    mod runs;
}
