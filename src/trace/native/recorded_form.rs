//! The nodes of calls that are not recorded as they are.

use crate::aten::Operator;
use crate::error::Result;
use crate::ir::{Argument, Builder, Value};

/// Adds the nodes of a call to a graph. A conversion of the element type is the primitive `cast`, as in imported graphs,
/// and no node if nothing changes. Every other call is one node.
pub(super) fn add_call<'g>(
    operator: &'static Operator,
    builder: &'g Builder,
    arguments: Vec<Argument>,
) -> Result<Vec<Value<'g>>> {
    match operator.schema.name.as_str() {
        "to" | "_to_copy" | "type_as" => operator.expand(builder, &arguments),
        _ => operator.call(builder, arguments),
    }
}
