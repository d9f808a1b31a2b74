//! Storage of values: layout, storage type, and operands of concatenations that are stored within the result.

pub mod concat;
pub mod layout;
pub mod padding;
pub mod panels;
pub mod precision;
pub mod texture_aliases;
pub mod tile_shapes;
