//! Rewrites of whole graphs. A pass is a function from graph to graph that replays into a fresh builder.

mod decompose;
pub mod plan;

pub use decompose::decompose;
pub use plan::plan;
