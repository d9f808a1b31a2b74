//! Which nodes with loops of their own one kernel computes. Patterns are found by structure, not by what a model calls them.

pub mod attention;
pub mod rows;
