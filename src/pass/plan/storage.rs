//! How values lie in memory: the layout of each, what its numbers are stored in, and which are parts of others.

pub mod concat;
pub mod layout;
pub mod padding;
pub mod panels;
pub mod precision;
pub mod texels;
pub mod tiles;
