//! Rewrites of whole graphs. A pass is a function from graph to graph that replays into a fresh builder.

mod decompose;

pub use decompose::decompose;
