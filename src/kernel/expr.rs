//! Scalar and vector expressions of a kernel: a graph in which equal expressions are one node.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use super::capabilities::StorageType;
use super::layout::Texel;
use crate::dim::Dim;

/// Types of expressions in WGSL. `f16` occurs only in storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WgslType {
    /// `bool`
    Bool,
    /// `u32`: indices, and `bool` as stored.
    U32,
    /// `i32`
    I32,
    /// `i64`
    I64,
    /// `f16`
    F16,
    /// `f32`
    F32,
    /// `f64`
    F64,
    /// `vec2<u32>`: four neighbouring elements of half precision, two in each word.
    U32x2,
    /// `vec4<u32>`: four neighbouring elements, like the vector types that follow.
    U32x4,
    /// `vec4<bool>`
    Boolx4,
    /// `vec4<i32>`
    I32x4,
    /// `vec4<f16>`
    F16x4,
    /// `vec4<f32>`
    F32x4,
    /// `vec2<u64>`: four neighbouring elements of single precision, two in each word.
    U64x2,
    /// `vec4<u64>`: eight neighbouring elements of single precision, two in each word.
    U64x4,
}

impl WgslType {
    /// Name in WGSL.
    pub fn wgsl(self) -> &'static str {
        match self {
            WgslType::Bool => "bool",
            WgslType::U32 => "u32",
            WgslType::I32 => "i32",
            WgslType::I64 => "i64",
            WgslType::F16 => "f16",
            WgslType::F32 => "f32",
            WgslType::F64 => "f64",
            WgslType::U32x2 => "vec2<u32>",
            WgslType::U32x4 => "vec4<u32>",
            WgslType::Boolx4 => "vec4<bool>",
            WgslType::I32x4 => "vec4<i32>",
            WgslType::F16x4 => "vec4<f16>",
            WgslType::F32x4 => "vec4<f32>",
            WgslType::U64x2 => "vec2<u64>",
            WgslType::U64x4 => "vec4<u64>",
        }
    }

    /// Type and number of the components of a vector; `None` for scalars, and for vectors that WebGPU does not store.
    pub fn components(self) -> Option<(WgslType, usize)> {
        match self {
            WgslType::U32x2 => Some((WgslType::U32, 2)),
            WgslType::U32x4 => Some((WgslType::U32, 4)),
            WgslType::I32x4 => Some((WgslType::I32, 4)),
            WgslType::F16x4 => Some((WgslType::F16, 4)),
            WgslType::F32x4 => Some((WgslType::F32, 4)),
            _ => None,
        }
    }

    /// Number of elements in a value of this type.
    pub fn width(self) -> usize {
        match self {
            WgslType::U32x2
            | WgslType::U32x4
            | WgslType::Boolx4
            | WgslType::I32x4
            | WgslType::F16x4
            | WgslType::F32x4
            | WgslType::U64x2 => 4,
            WgslType::U64x4 => 8,
            _ => 1,
        }
    }

    /// The texel type with the same bytes; none if there is none.
    pub fn texel(self) -> Option<Texel> {
        match self {
            WgslType::U32x2 | WgslType::F16x4 => Some(Texel::F16),
            WgslType::F32x4 => Some(Texel::F32),
            _ => None,
        }
    }

    /// The type that a kernel computes with after loading a texel.
    pub fn of_texel(texel: Texel) -> WgslType {
        match texel {
            Texel::F16 | Texel::F32 => WgslType::F32x4,
            Texel::F16x2 => WgslType::U32x4,
        }
    }

    /// The type of four elements of a storage type; none if there is no such vector.
    pub fn vec4(storage: StorageType) -> Option<WgslType> {
        Some(match storage {
            StorageType::U32 => WgslType::U32x4,
            StorageType::I32 => WgslType::I32x4,
            StorageType::F16 => WgslType::F16x4,
            StorageType::F16x2 => WgslType::U32x2,
            StorageType::F32 => WgslType::F32x4,
            StorageType::I64 | StorageType::F64 => return None,
        })
    }
}

impl From<StorageType> for WgslType {
    fn from(storage: StorageType) -> WgslType {
        match storage {
            StorageType::U32 | StorageType::F16x2 => WgslType::U32,
            StorageType::I32 => WgslType::I32,
            StorageType::I64 => WgslType::I64,
            StorageType::F16 => WgslType::F16,
            StorageType::F32 => WgslType::F32,
            StorageType::F64 => WgslType::F64,
        }
    }
}

/// Index of an expression in its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Expr(u32);

/// A constant. Floats are stored as bits, so that they can be compared and hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Literal {
    /// `bool`
    Bool(bool),
    /// Any integer type.
    Integer(i64),
    /// Any float type: the bits of an `f64`.
    Float(u64),
}

impl From<f64> for Literal {
    fn from(value: f64) -> Literal {
        Literal::Float(value.to_bits())
    }
}

/// An operation or leaf of an expression graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ExprNode {
    /// A constant, written inline.
    Literal(Literal),
    /// A symbolic size: a `u32` that the host computes and passes in a buffer.
    Size(Dim),
    /// A variable that the kernel's statements declare.
    Variable(String),
    /// An element of a buffer in its storage type.
    Load {
        /// Index of the buffer among the kernel's bindings.
        buffer: usize,
        /// Index within the buffer, a `u32`.
        index: Expr,
    },
    /// Four numbers loaded from a texture.
    TextureLoad {
        /// Index of the texture among the kernel's bindings.
        texture: usize,
        /// `u32` coordinates: x, y and layer. Loads outside of the texture give undefined numbers.
        at: [Expr; 3],
    },
    /// A WGSL expression of operands named `x`, `y`, `z`, `w`.
    Call {
        /// `x + y`, `select(x, y, z)`, `tanh_of(x)`
        template: Cow<'static, str>,
        /// Operands that replace these names.
        operands: Vec<Expr>,
    },
}

/// All expressions of a kernel.
#[derive(Default)]
pub struct ExprPool {
    entries: Vec<ExprEntry>,
    known: HashMap<(ExprNode, WgslType), Expr>,
}

struct ExprEntry {
    node: ExprNode,
    ty: WgslType,
    label: Option<String>,
}

impl ExprPool {
    /// The node of an expression.
    pub fn node(&self, expr: Expr) -> &ExprNode {
        &self.entries[expr.0 as usize].node
    }

    /// The type of an expression.
    pub fn ty(&self, expr: Expr) -> WgslType {
        self.entries[expr.0 as usize].ty
    }

    /// The readable name of an expression.
    pub fn label(&self, expr: Expr) -> Option<&str> {
        self.entries[expr.0 as usize].label.as_deref()
    }

    /// Names an expression unless it has a name.
    pub fn set_label(&mut self, expr: Expr, label: &str) {
        let entry = &mut self.entries[expr.0 as usize];
        if entry.label.is_none() {
            entry.label = Some(label.to_string());
        }
    }

    /// The operands of an expression.
    pub fn operands(&self, expr: Expr) -> &[Expr] {
        match self.node(expr) {
            ExprNode::Load { index, .. } => std::slice::from_ref(index),
            ExprNode::TextureLoad { at, .. } => at,
            ExprNode::Call { operands, .. } => operands,
            _ => &[],
        }
    }

    /// Number of loads of elements, vectors and texels.
    pub fn loads(&self) -> usize {
        let is_load =
            |node: &ExprNode| matches!(node, ExprNode::Load { .. } | ExprNode::TextureLoad { .. });
        let entries = self.entries.iter();
        entries.filter(|entry| is_load(&entry.node)).count()
    }

    /// The given expressions and everything they depend on.
    pub fn reachable(&self, mut worklist: Vec<Expr>) -> BTreeSet<Expr> {
        let mut reached = BTreeSet::new();
        while let Some(expr) = worklist.pop() {
            if reached.insert(expr) {
                worklist.extend(self.operands(expr));
            }
        }
        reached
    }

    /// A constant of a type.
    pub fn literal(&mut self, ty: WgslType, literal: impl Into<Literal>) -> Expr {
        self.add(ExprNode::Literal(literal.into()), ty)
    }

    /// A constant index, a `u32`.
    pub fn index(&mut self, number: u32) -> Expr {
        self.literal(WgslType::U32, Literal::Integer(number.into()))
    }

    /// A size; a literal if it is constant.
    pub fn size(&mut self, dim: &Dim) -> Expr {
        match dim.as_const() {
            Some(number) => self.literal(
                WgslType::U32,
                Literal::Integer(number.rem_euclid(i64::from(u32::MAX) + 1)),
            ),
            None => self.add(ExprNode::Size(dim.clone()), WgslType::U32),
        }
    }

    /// A variable by name; the name must be unique in the kernel.
    pub fn variable(&mut self, name: &str, ty: WgslType) -> Expr {
        self.add(ExprNode::Variable(name.to_string()), ty)
    }

    /// A variable, if an expression reads it.
    pub fn known_variable(&self, name: &str, ty: WgslType) -> Option<Expr> {
        let key = (ExprNode::Variable(name.to_string()), ty);
        self.known.get(&key).copied()
    }

    /// A symbolic size, if an expression reads it.
    pub fn known_size(&self, dim: &Dim) -> Option<Expr> {
        let key = (ExprNode::Size(dim.clone()), WgslType::U32);
        self.known.get(&key).copied()
    }

    /// An element of a buffer. Vectors of half precision are loaded as four numbers of single precision.
    pub fn load(&mut self, buffer: usize, element: WgslType, index: Expr) -> Expr {
        let ty = match element.texel() {
            Some(_) => WgslType::F32x4,
            None => element,
        };
        self.add(ExprNode::Load { buffer, index }, ty)
    }

    /// A texel as the type that a kernel computes with: [`WgslType::of_texel`].
    pub fn texel(&mut self, texture: usize, ty: WgslType, at: [Expr; 3]) -> Expr {
        self.add(ExprNode::TextureLoad { texture, at }, ty)
    }

    /// A WGSL expression of operands.
    pub fn call(
        &mut self,
        template: impl Into<Cow<'static, str>>,
        ty: WgslType,
        operands: &[Expr],
    ) -> Expr {
        let node = ExprNode::Call {
            template: template.into(),
            operands: operands.to_vec(),
        };
        self.add(node, ty)
    }

    /// `yes` if the condition holds, else `no`.
    pub fn select(&mut self, condition: Expr, yes: Expr, no: Expr) -> Expr {
        match self.node(condition) {
            _ if yes == no => yes,
            ExprNode::Literal(Literal::Bool(true)) => yes,
            ExprNode::Literal(Literal::Bool(false)) => no,
            _ => self.merged_select(condition, yes, no),
        }
    }

    /// A selection under a condition that is not known. Nested selections with one alternative are one under both
    /// conditions.
    fn merged_select(&mut self, condition: Expr, yes: Expr, no: Expr) -> Expr {
        const TEMPLATE: &str = "select(x, y, z)";
        let inner = match self.node(yes) {
            ExprNode::Call { template, operands } if template == TEMPLATE && operands[0] == no => {
                Some((operands[1], operands[2]))
            }
            _ => None,
        };
        let (yes, condition) = match inner {
            Some((yes, inner)) => (yes, self.and(Some(condition), inner)),
            None => (yes, condition),
        };
        self.call(TEMPLATE, self.ty(yes), &[no, yes, condition])
    }

    /// Logical and of both conditions; an absent one is true.
    pub fn and(&mut self, a: Option<Expr>, b: Expr) -> Expr {
        match a {
            Some(a) if a != b => self.call("x & y", WgslType::Bool, &[a, b]),
            _ => b,
        }
    }

    /// The constant, if the expression is one.
    pub fn as_literal(&self, expr: Expr) -> Option<Literal> {
        match self.node(expr) {
            ExprNode::Literal(literal) => Some(*literal),
            _ => None,
        }
    }

    fn add(&mut self, node: ExprNode, ty: WgslType) -> Expr {
        let key = (node, ty);
        if let Some(expr) = self.known.get(&key) {
            return *expr;
        }
        let expr = Expr(u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
        self.entries.push(ExprEntry {
            node: key.0.clone(),
            ty,
            label: None,
        });
        self.known.insert(key, expr);
        expr
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_selections_with_one_alternative_have_both_conditions() {
        let mut pool = ExprPool::default();
        let [x, zero, other] =
            ["x", "zero", "other"].map(|name| pool.variable(name, WgslType::F32));
        let [outer, inner] = ["outer", "inner"].map(|name| pool.variable(name, WgslType::Bool));
        let selected = pool.select(inner, x, zero);
        let both = pool.and(Some(outer), inner);
        let merged = pool.select(both, x, zero);
        assert_eq!(pool.select(outer, selected, zero), merged);
        let nested = pool.select(outer, selected, other);
        assert_eq!(pool.operands(nested), [other, selected, outer]);
    }
}
