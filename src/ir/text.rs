//! The text form of graphs.
//!
//! ```text
//! weight fc1.weight: f32[128, 784]
//! weight fc1.bias: f32[128]
//!
//! graph mlp(x: f32[B, 784]) -> f32[B, 1] {
//!   size B = 2
//!   guard B <= 4*S  @ model.py:9 (mlp)
//!   argument pair = (#0, none)
//!   result {"out": #0}
//!   h: f32[B, 128] = aten.linear x, $fc1.weight, $fc1.bias  @ model.py:12 (mlp.fc1)
//!   y: f32[B, 1] = reduce h, function=sum, axes=[1]
//!   z: f32[B, 1] = if c, y {
//!     graph then(…) -> … { … }
//!     graph otherwise(…) -> … { … }
//!   }
//!   s, t = call y, x {
//!     graph "encoder.layer.0"(…) -> (…, …) { … }
//!   }
//!   return z
//! }
//! ```
//!
//! - `size` gives a symbol its example value, `guard` is a condition under which the graph holds. `argument` and `result`
//!   define the structure of the user's arguments and result in terms of the graph's inputs and outputs, numbered `#0`,
//!   `#1`. Without such lines, every input is an argument of its name, and the outputs are the result.
//! - Arguments of a call are positional, in the order of its schema, or `name=value`; absent ones have their defaults.
//!   Attributes of a primitive are `name=value`.
//! - `x` is a value, `$x` a weight, `2`, `-0.5`, `nan`, `inf` and `true` are numbers, `2*B + 1` is a size, `"x"` is text.
//!   `%nan` is a value whose name is a keyword, `size(B)` a size whose name is also that of a value.
//! - Names with other characters than letters, digits, `_` and `.` are quoted as in JSON. `//` begins a comment.
//! - Types of results may be left out where a graph is written by hand; they are inferred.

mod operands;
mod parse;
mod print;
mod quote;
mod scan;
mod tree;

pub use parse::{parse_graph, parse_module};
pub(super) use print::attribute as attribute_text;
pub use print::{print_graph, print_module, print_node};

/// Arguments that are keywords.
const KEYWORDS: [&str; 5] = ["none", "true", "false", "nan", "inf"];

/// True for names that are written without quotes.
fn is_plain(name: &str) -> bool {
    let legal = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    name.starts_with(|c: char| c.is_alphabetic() || c == '_') && name.chars().all(legal)
}

/// True for paths of files and modules that need no quotes.
fn is_plain_path(path: &str) -> bool {
    let odd = |c: char| c.is_whitespace() || c.is_control() || "\"(){}@".contains(c);
    !path.is_empty() && !path.contains(odd)
}
