//! Patterns of several nodes with loops that one kernel computes. They are found by the structure of the graph, not by
//! names of a model.

pub mod attention;
pub mod rows;
