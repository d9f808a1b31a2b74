//! Pictures of models.

mod layout;
