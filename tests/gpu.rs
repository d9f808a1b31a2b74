//! Handwritten plans on the available adapter.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may panic, and prints the checks that it skips"
)]

mod samples;

mod gpu {
    mod buffer_textures;
    mod conversions;
    mod devices;
    mod errors;
    mod plans;
    mod random;
    mod runs;
}
