//! The devices on which sessions are tested, and how many bytes cross to them.

use onionskin::{Device, Session};

/// The host, and an adapter if there is one.
pub fn devices() -> Vec<Device> {
    let required = std::env::var("REQUIRE_GPU").is_ok_and(|value| value == "1");
    match Device::open("gpu").or_else(|_| Device::open("software")) {
        Ok(device) => vec![Device::Host, device],
        Err(error) => {
            assert!(!required, "no adapter: {error}");
            println!("host only: no adapter: {error}");
            vec![Device::Host]
        }
    }
}

/// Bytes that crossed between host and device in all runs of a session.
pub fn transferred(session: &Session) -> u64 {
    let graphs = session.compiled_graphs();
    let programs = graphs.iter().filter_map(|graph| graph.program.as_ref());
    let statistics = programs.map(|program| program.statistics());
    statistics
        .map(|statistics| statistics.bytes_uploaded + statistics.bytes_downloaded)
        .sum()
}
