//! Names for expressions and sizes without a label, derived from the arrays that they index and the operations
//! that compute them.

use std::collections::HashMap;

use super::{BindingDecl, Statement, roots};
use crate::dim::Dim;
use crate::kernel::expr::{Expr, ExprNode, ExprPool, WgslType};

/// Maximum length of a name that is derived from a size's formula.
const MAX_SIZE_NAME_LENGTH: usize = 32;

/// Role of an expression in addressing a buffer, texture or workgroup array.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IndexRole {
    /// Index of an element.
    Index,
    /// Term of a sum that is an index.
    Offset,
    /// Texel coordinate, or a term of one.
    Coordinate(&'static str),
}

/// Roles of expressions, with the name of the buffer or array if there is only one.
#[derive(Default)]
pub(super) struct IndexRoles {
    roles: HashMap<Expr, (IndexRole, Option<String>)>,
}

impl IndexRoles {
    /// Collects the roles of all expressions that statements read.
    pub(super) fn of(
        pool: &ExprPool,
        buffers: &[BindingDecl],
        statements: &[Statement],
    ) -> IndexRoles {
        let mut found = IndexRoles::default();
        found.collect_stores(pool, buffers, statements);
        for expr in pool.reachable(roots(statements)) {
            found.collect_loads(pool, buffers, expr);
        }
        found
    }

    fn collect_loads(&mut self, pool: &ExprPool, buffers: &[BindingDecl], expr: Expr) {
        match pool.node(expr) {
            ExprNode::Load { buffer, index } => {
                self.add_role(pool, *index, IndexRole::Index, &buffers[*buffer].name);
            }
            ExprNode::TextureLoad { texture, at } => {
                for (place, name) in at.iter().zip(["x", "y", "layer"]) {
                    self.add_role(
                        pool,
                        *place,
                        IndexRole::Coordinate(name),
                        &buffers[*texture].name,
                    );
                }
            }
            ExprNode::Call { template, operands } => {
                if let Some(array) = template.strip_suffix("[x]") {
                    self.add_role(pool, operands[0], IndexRole::Index, array);
                }
            }
            _ => {}
        }
    }

    fn collect_stores(
        &mut self,
        pool: &ExprPool,
        buffers: &[BindingDecl],
        statements: &[Statement],
    ) {
        for statement in statements {
            match statement {
                Statement::Store { buffer, index, .. } => {
                    self.add_role(pool, *index, IndexRole::Index, &buffers[*buffer].name);
                }
                Statement::WorkgroupStore { array, index, .. } => {
                    self.add_role(pool, *index, IndexRole::Index, array)
                }
                _ => {}
            }
            for block in statement.blocks() {
                self.collect_stores(pool, buffers, block);
            }
        }
    }

    /// Records a role of an expression, and those of its terms.
    fn add_role(&mut self, pool: &ExprPool, expr: Expr, role: IndexRole, buffer: &str) {
        match self.roles.get_mut(&expr) {
            None => _ = self.roles.insert(expr, (role, Some(buffer.to_string()))),
            Some((_, known)) if known.as_deref().is_some_and(|name| name != buffer) => {
                *known = None
            }
            Some(_) => return,
        }
        let ExprNode::Call { template, operands } = pool.node(expr) else {
            return;
        };
        let part = match role {
            IndexRole::Index => IndexRole::Offset,
            other => other,
        };
        match template.as_ref() {
            "x + y" | "x - y" => {
                for operand in operands.clone() {
                    self.add_role(pool, operand, part, buffer);
                }
            }
            "select(x, y, z)" => self.add_role(pool, operands[1], role, buffer),
            "min(x, y)" => self.add_role(pool, operands[0], part, buffer),
            _ => {}
        }
    }

    /// A name for an expression.
    pub(super) fn name(&self, pool: &ExprPool, expr: Expr) -> String {
        if let Some(label) = pool.label(expr) {
            return label.to_string();
        }
        match pool.ty(expr) {
            WgslType::U32 => self.integer(pool, expr),
            WgslType::Bool => String::from("inside"),
            _ => String::from("value"),
        }
    }

    fn integer(&self, pool: &ExprPool, expr: Expr) -> String {
        let Some((role, buffer)) = self.roles.get(&expr) else {
            return String::from(arithmetic(pool, expr));
        };
        let kind = match role {
            IndexRole::Index => "index",
            IndexRole::Offset => "offset",
            IndexRole::Coordinate(axis) => axis,
        };
        match buffer {
            Some(buffer) => format!("{}_{kind}", buffer.trim_end_matches('_')),
            None => String::from(kind),
        }
    }
}

/// The name of an integer that is not part of an index.
fn arithmetic(pool: &ExprPool, expr: Expr) -> &'static str {
    let ExprNode::Call { template, .. } = pool.node(expr) else {
        return "number";
    };
    match template.as_ref() {
        "x / y" | "x % y" => "coordinate",
        "min(x, y)" | "max(x, y)" => "clamped",
        _ => "offset",
    }
}

/// The name of a size: its symbol, or its formula if that is short.
pub(super) fn size_name(dim: &Dim) -> String {
    let name = dim.as_symbol().map(|symbol| symbol.to_string());
    name.or_else(|| formula(&dim.to_string()))
        .filter(|name| name.len() <= MAX_SIZE_NAME_LENGTH)
        .unwrap_or_else(|| String::from("size"))
}

/// `2*n + 1` as `n_times_2_plus_1`; none if it contains functions other than a division.
fn formula(text: &str) -> Option<String> {
    if let Some((sum, constant)) = text.rsplit_once(" - ").filter(|(_, last)| is_number(last)) {
        return Some(format!("{}_minus_{constant}", formula(sum)?));
    }
    if let Some((sum, constant)) = text.rsplit_once(" + ").filter(|(_, last)| is_number(last)) {
        return Some(format!("{}_plus_{constant}", formula(sum)?));
    }
    if let Some(inner) = text.strip_prefix("floordiv(") {
        return quotient(inner.strip_suffix(')')?);
    }
    let (numbers, factors): (Vec<&str>, Vec<&str>) =
        text.split('*').partition(|factor| is_number(factor));
    let is_symbol = |factor: &&str| {
        factor
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let named = !factors.is_empty() && factors.iter().all(is_symbol);
    named.then(|| [factors, numbers].concat().join("_times_"))
}

/// `n + 3, 4` as `n_ceil_div_4`, `n, 4` as `n_div_4`.
fn quotient(arguments: &str) -> Option<String> {
    let (dividend, divisor) = arguments.rsplit_once(", ")?;
    let number: u64 = divisor.parse().ok()?;
    match dividend.rsplit_once(" + ") {
        Some((rest, last)) if last.parse() == Ok(number.saturating_sub(1)) => {
            Some(format!("{}_ceil_div_{number}", formula(rest)?))
        }
        _ => Some(format!("{}_div_{number}", formula(dividend)?)),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_named_by_their_formulas() {
        let name = |text: &str| size_name(&text.parse().unwrap());
        assert_eq!(name("n"), "n");
        assert_eq!(name("n - 1"), "n_minus_1");
        assert_eq!(name("2*n + 1"), "n_times_2_plus_1");
        assert_eq!(name("4*n*m"), "m_times_n_times_4");
        assert_eq!(name("floordiv(n + 31, 32)"), "n_ceil_div_32");
        assert_eq!(name("floordiv(n, 2)"), "n_div_2");
    }

    #[test]
    fn long_and_other_formulas_are_sizes() {
        let name = |text: &str| size_name(&text.parse().unwrap());
        assert_eq!(name("floordiv(n + 1, 2)*floordiv(m + 1, 2)"), "size");
        assert_eq!(name("n + m"), "size");
        assert_eq!(name("-n"), "size");
        assert_eq!(name("attention_mask_0*attention_mask_1"), "size");
    }
}
