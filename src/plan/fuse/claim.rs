//! Patterns of several nodes with loops that one kernel computes. They are found by structure, not by a model's names.

pub mod attention;
pub mod rows;
