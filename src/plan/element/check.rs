//! Checks. A check passes the elements of its operand through unchanged, and records a failure in a word of
//! [`RuntimeChecks`](crate::kernel::plan::RuntimeChecks). Each check has a flag of its own.

use super::{KernelBinding, KernelScope, operand, scalar};
use crate::dim::Dim;
use crate::error::Result;
use crate::ir::{Node, ValueId};
use crate::kernel::emit::BindingDecl;
use crate::kernel::expr::{Expr, Literal, WgslType};
use crate::kernel::layout::Layout;
use crate::kernel::plan::Access;
use crate::op::{Check, Requirement};
use crate::plan::element::position::Position;

/// Name of the buffer of check flags, which the shader library uses too.
const CHECK_FLAGS: &str = "faults";
/// Name of the symbol for the flag index of a step's first check. Symbols of graphs contain no spaces.
const FIRST_CHECK: &str = "first site";

/// Returns the symbolic size for the flag index of a step's first check.
pub fn first_check() -> Dim {
    Dim::symbol(FIRST_CHECK)
}

impl<'a> KernelScope<'a> {
    /// Makes this the scope of a kernel that performs no checks.
    pub fn without_checks(self) -> KernelScope<'a> {
        KernelScope {
            checks: None,
            ..self
        }
    }

    /// Returns whether the kernel performs checks.
    pub fn makes_checks(&self) -> bool {
        self.checks
            .as_ref()
            .is_some_and(|checks| !checks.is_empty())
    }

    /// Returns an element of a check's result. The kernel records a failure. Positions that a kernel computes without
    /// using them are not checked.
    pub(super) fn check(
        &mut self,
        check: &Check,
        node: &Node,
        value: ValueId,
        position: &Position,
        guard: Option<Expr>,
    ) -> Result<Expr> {
        let element = self.element(operand(node, 0)?, position, guard)?;
        let Some(flag) = self.flag_index(value) else {
            return Ok(element);
        };
        let dtype = self.graph.ty(value).dtype;
        let mut bounds = Vec::new();
        for bound in &node.arguments[1..] {
            bounds.push(self.number(bound, dtype)?);
        }
        let guard = self.in_bounds(value, position, guard);
        let harmless = self.passing_element(check.require, self.pool.ty(element), &bounds);
        let element = match guard {
            Some(guard) => self.pool.select(guard, element, harmless),
            None => element,
        };
        let template = match check.require {
            Requirement::Holds => "check_holds(x, y)",
            Requirement::Nonzero => "check_nonzero(x, y)",
            Requirement::Within => "check_within(x, y, z, w)",
        };
        let ty = self.pool.ty(element);
        let operands = [&[element], bounds.as_slice(), &[flag]].concat();
        let checked = self.pool.call(scalar::typed(template, ty), ty, &operands);
        self.pool.set_label(checked, "checked");
        Ok(checked)
    }

    /// Returns the index of a check's flag. `None` if the kernel performs no checks.
    fn flag_index(&mut self, value: ValueId) -> Option<Expr> {
        let checks = self.checks.as_mut()?;
        let known = checks.iter().position(|known| *known == value);
        let check_index = known.unwrap_or_else(|| {
            checks.push(value);
            checks.len() - 1
        });
        self.bind_check_flags(value);
        let first = self.pool.size(&first_check());
        if check_index == 0 {
            return Some(first);
        }
        let check_index = self
            .pool
            .index(u32::try_from(check_index).unwrap_or(u32::MAX));
        Some(
            self.pool
                .call("x + y", WgslType::U32, &[first, check_index]),
        )
    }

    /// Binds the buffer of check flags, if it is not bound yet.
    fn bind_check_flags(&mut self, value: ValueId) {
        let mut buffers = self.buffers.iter();
        if buffers.all(|binding| binding.buffer.access != Access::CheckFlags) {
            self.buffers.push(KernelBinding {
                value,
                is_copy: false,
                layout: Layout::Linear,
                buffer: BindingDecl {
                    name: CHECK_FLAGS.to_string(),
                    element: WgslType::U32,
                    access: Access::CheckFlags,
                    vectors: None,
                    alias_of: None,
                },
            });
        }
    }

    /// Extends the guard of a position by a test for each coordinate that may lie beyond its axis.
    fn in_bounds(
        &mut self,
        value: ValueId,
        position: &Position,
        mut guard: Option<Expr>,
    ) -> Option<Expr> {
        let shape = &self.graph.ty(value).shape;
        for (coordinate, size) in position.coordinates(shape).iter().zip(shape) {
            if !coordinate.is_less_than(size) {
                let inside = self.is_below(coordinate, size);
                guard = Some(self.pool.and(guard, inside));
            }
        }
        guard
    }

    /// Returns an element that passes a check.
    fn passing_element(&mut self, require: Requirement, ty: WgslType, bounds: &[Expr]) -> Expr {
        match (require, bounds) {
            (Requirement::Within, [low, ..]) => *low,
            (Requirement::Holds, _) => self.pool.literal(ty, Literal::Bool(true)),
            _ => self.pool.literal(ty, Literal::Integer(1)),
        }
    }
}
