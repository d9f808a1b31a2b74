//! Merges two kernels that differ in numbers only. The differing numbers become sizes.

use std::collections::HashMap;

use crate::dim::Dim;
use crate::kernel::emit::{BindingDecl, Statement, roots};
use crate::kernel::expr::{Expr, ExprNode, ExprPool, Literal, WgslType};
use crate::plan::kernel::KernelSource;

/// Most iterations of a loop of constant length that drivers unroll.
const MAX_UNROLLED_ITERATIONS: i64 = 32;
/// Most expressions in all iterations of such a loop.
const MAX_UNROLLED_EXPRESSIONS: usize = 1_600;
/// Expression of a size as an `f32`.
const SIZE_AS_F32: &str = "f32(x)";
/// Largest number up to which all integers are exact in `f32`.
const MAX_EXACT_INTEGER: i64 = 1 << 24;

/// A number in the source of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SizeValue {
    /// Constant.
    Constant(i64),
    /// Size that the kernel receives.
    Size(Dim),
}

/// One kernel in place of two.
pub(super) struct MergedKernel {
    /// Source of the merged kernel.
    pub(super) source: KernelSource,
    /// Value of each size of the merged kernel in either of the two.
    pub(super) size_values: Vec<(Dim, [SizeValue; 2])>,
}

impl MergedKernel {
    /// Merges two kernels; the result has the label of the first one. `None` if they differ in more than numbers.
    pub(super) fn of(sides: [&KernelSource; 2]) -> Option<MergedKernel> {
        let [a, b] = sides;
        let are_compatible = a.template == b.template
            && a.template_values == b.template_values
            && a.sizes_in == b.sizes_in
            && all_pairs(&a.buffers, &b.buffers, has_same_type_and_access);
        let mut merger = KernelMerger {
            pools: are_compatible.then_some([&a.pool, &b.pool])?,
            pool: ExprPool::default(),
            merged: HashMap::new(),
            size_values: Vec::new(),
        };
        let statements = merger.merge_statements(&a.statements, &b.statements)?;
        Some(MergedKernel {
            source: KernelSource {
                label: a.label.clone(),
                template: a.template,
                template_values: a.template_values.clone(),
                pool: merger.pool,
                buffers: a.buffers.clone(),
                statements,
                sizes_in: a.sizes_in,
                divides_by_floats: a.divides_by_floats,
                sizes: merger
                    .size_values
                    .iter()
                    .map(|(dim, _)| dim.clone())
                    .collect(),
            },
            size_values: merger.size_values,
        })
    }
}

fn all_pairs<T>(a: &[T], b: &[T], equal: impl Fn(&T, &T) -> bool) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
}

fn has_same_type_and_access(a: &BindingDecl, b: &BindingDecl) -> bool {
    (a.element, a.access, a.vectors) == (b.element, b.access, b.vectors)
}

/// Builder of the merged kernel, which walks two kernels in parallel.
struct KernelMerger<'a> {
    /// Expressions of the two kernels.
    pools: [&'a ExprPool; 2],
    /// Expressions of the merged kernel.
    pool: ExprPool,
    /// Merged expressions, by the expressions of the two kernels.
    merged: HashMap<[Expr; 2], Expr>,
    /// Value of each size of the merged kernel in either of the two.
    size_values: Vec<(Dim, [SizeValue; 2])>,
}

impl KernelMerger<'_> {
    fn merge_statements(&mut self, a: &[Statement], b: &[Statement]) -> Option<Vec<Statement>> {
        let pairs = (a.len() == b.len()).then(|| a.iter().zip(b))?;
        pairs.map(|(a, b)| self.merge_statement(a, b)).collect()
    }

    fn merge_statement(&mut self, a: &Statement, b: &Statement) -> Option<Statement> {
        use Statement::{Assign, Block, Declare, Freeze, If, IfElse, Let, Line, ReturnIf};
        Some(match (a, b) {
            (ReturnIf(a), ReturnIf(b)) => ReturnIf(self.merge_expr(*a, *b)?),
            (Let(a), Let(b)) => Let(self.merge_expr(*a, *b)?),
            (Freeze(a), Freeze(b)) => Freeze(self.merge_expr(*a, *b)?),
            (Declare(a, x), Declare(b, y)) => {
                Declare(self.merge_expr(*a, *b)?, self.merge_expr(*x, *y)?)
            }
            (Assign(a, x), Assign(b, y)) => {
                Assign(self.merge_expr(*a, *b)?, self.merge_expr(*x, *y)?)
            }
            (If(a, x), If(b, y)) => If(self.merge_expr(*a, *b)?, self.merge_statements(x, y)?),
            (IfElse(a, x, else_x), IfElse(b, y, else_y)) => IfElse(
                self.merge_expr(*a, *b)?,
                self.merge_statements(x, y)?,
                self.merge_statements(else_x, else_y)?,
            ),
            (Block(a, x), Block(b, y)) if a == b => Block(a.clone(), self.merge_statements(x, y)?),
            (Line(a), Line(b)) if a == b => Line(a.clone()),
            (Statement::Loop { .. }, Statement::Loop { .. }) => self.merge_loops(a, b)?,
            _ => self.merge_stores(a, b)?,
        })
    }

    fn merge_loops(&mut self, a: &Statement, b: &Statement) -> Option<Statement> {
        let (
            Statement::Loop {
                variable,
                from,
                to,
                step,
                body,
            },
            Statement::Loop {
                variable: variable_b,
                from: from_b,
                to: to_b,
                step: step_b,
                body: body_b,
            },
        ) = (a, b)
        else {
            return None;
        };
        let is_unrolled = self.may_be_unrolled([*to, *to_b], body);
        (step == step_b && !is_unrolled).then_some(())?;
        Some(Statement::Loop {
            variable: self.merge_expr(*variable, *variable_b)?,
            from: self.merge_expr(*from, *from_b)?,
            to: self.merge_expr(*to, *to_b)?,
            step: *step,
            body: self.merge_statements(body, body_b)?,
        })
    }

    /// Returns whether loop ends differ, and drivers would unroll one of the loops.
    fn may_be_unrolled(&self, ends: [Expr; 2], body: &[Statement]) -> bool {
        let numbers = [0, 1].map(|side| self.value_of(side, ends[side]));
        let expressions = self.pools[0].reachable(roots(body)).len();
        let is_short = |number: &Option<SizeValue>| match number {
            Some(SizeValue::Constant(end)) => {
                *end <= MAX_UNROLLED_ITERATIONS
                    && expressions * end.unsigned_abs() as usize <= MAX_UNROLLED_EXPRESSIONS
            }
            _ => false,
        };
        numbers[0] != numbers[1] && numbers.iter().any(is_short)
    }

    fn merge_stores(&mut self, a: &Statement, b: &Statement) -> Option<Statement> {
        match (a, b) {
            (
                Statement::Store {
                    buffer,
                    index,
                    value,
                },
                Statement::Store {
                    buffer: buffer_b,
                    index: index_b,
                    value: value_b,
                },
            ) if buffer == buffer_b => Some(Statement::Store {
                buffer: *buffer,
                index: self.merge_expr(*index, *index_b)?,
                value: self.merge_expr(*value, *value_b)?,
            }),
            (
                Statement::WorkgroupStore {
                    array,
                    index,
                    value,
                },
                Statement::WorkgroupStore {
                    array: array_b,
                    index: index_b,
                    value: value_b,
                },
            ) if array == array_b => Some(Statement::WorkgroupStore {
                array,
                index: self.merge_expr(*index, *index_b)?,
                value: self.merge_expr(*value, *value_b)?,
            }),
            _ => None,
        }
    }

    fn merge_expr(&mut self, a: Expr, b: Expr) -> Option<Expr> {
        if let Some(known) = self.merged.get(&[a, b]) {
            return Some(*known);
        }
        let [pool_a, pool_b] = self.pools;
        let ty = (pool_a.ty(a) == pool_b.ty(b)).then(|| pool_a.ty(a))?;
        let merged = match self.differing_values([a, b], ty) {
            Some(numbers) => self.merged_size(numbers, ty),
            None => self.merge_nodes(pool_a.node(a), pool_b.node(b), ty)?,
        };
        if let Some(label) = pool_a.label(a) {
            self.pool.set_label(merged, label);
        }
        self.merged.insert([a, b], merged);
        Some(merged)
    }

    fn merge_nodes(&mut self, a: &ExprNode, b: &ExprNode, ty: WgslType) -> Option<Expr> {
        match (a, b) {
            (ExprNode::Literal(x), ExprNode::Literal(y)) if x == y => {
                Some(self.pool.literal(ty, *x))
            }
            (ExprNode::Variable(x), ExprNode::Variable(y)) if x == y => {
                Some(self.pool.variable(x, ty))
            }
            (
                ExprNode::Load { buffer, index },
                ExprNode::Load {
                    buffer: buffer_b,
                    index: index_b,
                },
            ) if buffer == buffer_b => {
                let index = self.merge_expr(*index, *index_b)?;
                Some(self.pool.load(*buffer, ty, index))
            }
            (
                ExprNode::TextureLoad { texture, at },
                ExprNode::TextureLoad {
                    texture: texture_b,
                    at: at_b,
                },
            ) if texture == texture_b => {
                let at = self.merge_exprs(at, at_b)?;
                Some(self.pool.texel(*texture, ty, at.try_into().ok()?))
            }
            (
                ExprNode::Call { template, operands },
                ExprNode::Call {
                    template: template_b,
                    operands: operands_b,
                },
            ) if template == template_b => {
                let operands = self.merge_exprs(operands, operands_b)?;
                Some(self.pool.call(template.clone(), ty, &operands))
            }
            _ => None,
        }
    }

    fn merge_exprs(&mut self, a: &[Expr], b: &[Expr]) -> Option<Vec<Expr>> {
        let pairs = (a.len() == b.len()).then(|| a.iter().zip(b))?;
        pairs.map(|(a, b)| self.merge_expr(*a, *b)).collect()
    }

    /// Returns the numbers that two expressions stand for. `None` if they are equal constants, or one is no number of
    /// this type.
    fn differing_values(&self, [a, b]: [Expr; 2], ty: WgslType) -> Option<[SizeValue; 2]> {
        if !matches!(ty, WgslType::U32 | WgslType::F32) {
            return None;
        }
        let numbers = [self.value_of(0, a)?, self.value_of(1, b)?];
        let are_equal =
            matches!(&numbers, [SizeValue::Constant(a), SizeValue::Constant(b)] if a == b);
        (!are_equal).then_some(numbers)
    }

    /// Returns the constant or size that an expression of kernel `side`, 0 or 1, stands for. `None` for other
    /// expressions.
    fn value_of(&self, side: usize, expr: Expr) -> Option<SizeValue> {
        let pool = self.pools[side];
        match pool.node(expr) {
            ExprNode::Size(dim) => Some(SizeValue::Size(dim.clone())),
            ExprNode::Literal(Literal::Integer(number)) => Some(SizeValue::Constant(*number)),
            ExprNode::Literal(Literal::Float(bits)) => {
                let number = f64::from_bits(*bits);
                let integer = number as i64;
                let is_size = (0..=MAX_EXACT_INTEGER).contains(&integer)
                    && (integer as f64).to_bits() == *bits;
                is_size.then_some(SizeValue::Constant(integer))
            }
            ExprNode::Call { template, operands } if template == SIZE_AS_F32 => {
                let number = self.value_of(side, *operands.first()?)?;
                matches!(number, SizeValue::Size(_)).then_some(number)
            }
            _ => None,
        }
    }

    /// Returns a size that stands for these two numbers.
    fn merged_size(&mut self, numbers: [SizeValue; 2], ty: WgslType) -> Expr {
        let known = self.size_values.iter().find(|(_, known)| *known == numbers);
        let dim = match known {
            Some((dim, _)) => dim.clone(),
            None => {
                let dim = self.new_size(&numbers);
                self.size_values.push((dim.clone(), numbers));
                dim
            }
        };
        let size = self.pool.size(&dim);
        match ty {
            WgslType::F32 => self.pool.call(SIZE_AS_F32, ty, &[size]),
            _ => size,
        }
    }

    /// Returns a size for two numbers, with the name of the size in the first kernel. If the number is a constant
    /// there, or the name is in use, chooses a new one.
    fn new_size(&self, numbers: &[SizeValue; 2]) -> Dim {
        let is_free = |dim: &Dim| self.size_values.iter().all(|(used, _)| used != dim);
        let fresh = (1..).map(|count| Dim::symbol(format!("number_{count}")));
        let first = match &numbers[0] {
            SizeValue::Size(dim) => Some(dim.clone()),
            SizeValue::Constant(_) => None,
        };
        let mut names = first.into_iter().chain(fresh);
        names.find(is_free).unwrap_or(Dim::ZERO)
    }
}
