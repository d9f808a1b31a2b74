//! Scalar and vector expressions of a kernel: a graph in which equal expressions are one node.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use super::capabilities::Storage;
use super::layout::Texel;
use crate::dim::Dim;

/// Types of expressions in WGSL. `f16` occurs only in storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
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

impl Type {
    /// Name in WGSL.
    pub fn wgsl(self) -> &'static str {
        match self {
            Type::Bool => "bool",
            Type::U32 => "u32",
            Type::I32 => "i32",
            Type::I64 => "i64",
            Type::F16 => "f16",
            Type::F32 => "f32",
            Type::F64 => "f64",
            Type::U32x2 => "vec2<u32>",
            Type::U32x4 => "vec4<u32>",
            Type::Boolx4 => "vec4<bool>",
            Type::I32x4 => "vec4<i32>",
            Type::F16x4 => "vec4<f16>",
            Type::F32x4 => "vec4<f32>",
            Type::U64x2 => "vec2<u64>",
            Type::U64x4 => "vec4<u64>",
        }
    }

    /// Number of elements in a value of this type.
    pub fn width(self) -> usize {
        match self {
            Type::U32x2
            | Type::U32x4
            | Type::Boolx4
            | Type::I32x4
            | Type::F16x4
            | Type::F32x4
            | Type::U64x2 => 4,
            Type::U64x4 => 8,
            _ => 1,
        }
    }

    /// The texel type with the same bytes; none if there is none.
    pub fn texel(self) -> Option<Texel> {
        match self {
            Type::U32x2 | Type::F16x4 => Some(Texel::F16),
            Type::F32x4 => Some(Texel::F32),
            _ => None,
        }
    }

    /// The type that a kernel computes with after loading a texel.
    pub fn of_texel(texel: Texel) -> Type {
        match texel {
            Texel::F16 | Texel::F32 => Type::F32x4,
            Texel::F16x2 => Type::U32x4,
        }
    }

    /// The type of four elements of a storage type; none if there is no such vector.
    pub fn quad(storage: Storage) -> Option<Type> {
        Some(match storage {
            Storage::U32 => Type::U32x4,
            Storage::I32 => Type::I32x4,
            Storage::F16 => Type::F16x4,
            Storage::F16x2 => Type::U32x2,
            Storage::F32 => Type::F32x4,
            Storage::I64 | Storage::F64 => return None,
        })
    }
}

impl From<Storage> for Type {
    fn from(storage: Storage) -> Type {
        match storage {
            Storage::U32 | Storage::F16x2 => Type::U32,
            Storage::I32 => Type::I32,
            Storage::I64 => Type::I64,
            Storage::F16 => Type::F16,
            Storage::F32 => Type::F32,
            Storage::F64 => Type::F64,
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
pub enum Node {
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
    Texel {
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
pub struct Pool {
    entries: Vec<Entry>,
    known: HashMap<(Node, Type), Expr>,
}

struct Entry {
    node: Node,
    ty: Type,
    label: Option<String>,
}

impl Pool {
    /// The node of an expression.
    pub fn node(&self, expr: Expr) -> &Node {
        &self.entries[expr.0 as usize].node
    }

    /// The type of an expression.
    pub fn ty(&self, expr: Expr) -> Type {
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
            Node::Load { index, .. } => std::slice::from_ref(index),
            Node::Texel { at, .. } => at,
            Node::Call { operands, .. } => operands,
            _ => &[],
        }
    }

    /// Number of loads of elements, vectors and texels.
    pub fn loads(&self) -> usize {
        let is_load = |node: &Node| matches!(node, Node::Load { .. } | Node::Texel { .. });
        let entries = self.entries.iter();
        entries.filter(|entry| is_load(&entry.node)).count()
    }

    /// The given expressions and everything they depend on.
    pub fn reached(&self, mut open: Vec<Expr>) -> BTreeSet<Expr> {
        let mut reached = BTreeSet::new();
        while let Some(expr) = open.pop() {
            if reached.insert(expr) {
                open.extend(self.operands(expr));
            }
        }
        reached
    }

    /// A constant of a type.
    pub fn literal(&mut self, ty: Type, literal: impl Into<Literal>) -> Expr {
        self.add(Node::Literal(literal.into()), ty)
    }

    /// A constant index, a `u32`.
    pub fn number(&mut self, number: u32) -> Expr {
        self.literal(Type::U32, Literal::Integer(number.into()))
    }

    /// A size; a literal if it is constant.
    pub fn size(&mut self, dim: &Dim) -> Expr {
        match dim.as_const() {
            Some(number) => self.literal(
                Type::U32,
                Literal::Integer(number.rem_euclid(i64::from(u32::MAX) + 1)),
            ),
            None => self.add(Node::Size(dim.clone()), Type::U32),
        }
    }

    /// A variable by name; the name must be unique in the kernel.
    pub fn variable(&mut self, name: &str, ty: Type) -> Expr {
        self.add(Node::Variable(name.to_string()), ty)
    }

    /// A variable, if an expression reads it.
    pub fn known_variable(&self, name: &str, ty: Type) -> Option<Expr> {
        let key = (Node::Variable(name.to_string()), ty);
        self.known.get(&key).copied()
    }

    /// A symbolic size, if an expression reads it.
    pub fn known_size(&self, dim: &Dim) -> Option<Expr> {
        let key = (Node::Size(dim.clone()), Type::U32);
        self.known.get(&key).copied()
    }

    /// An element of a buffer. Vectors of half precision are loaded as four numbers of single precision.
    pub fn load(&mut self, buffer: usize, element: Type, index: Expr) -> Expr {
        let ty = match element.texel() {
            Some(_) => Type::F32x4,
            None => element,
        };
        self.add(Node::Load { buffer, index }, ty)
    }

    /// A texel as the type that a kernel computes with: [`Type::of_texel`].
    pub fn texel(&mut self, texture: usize, ty: Type, at: [Expr; 3]) -> Expr {
        self.add(Node::Texel { texture, at }, ty)
    }

    /// A WGSL expression of operands.
    pub fn call(
        &mut self,
        template: impl Into<Cow<'static, str>>,
        ty: Type,
        operands: &[Expr],
    ) -> Expr {
        let node = Node::Call {
            template: template.into(),
            operands: operands.to_vec(),
        };
        self.add(node, ty)
    }

    /// `yes` if the condition holds, else `no`.
    pub fn select(&mut self, condition: Expr, yes: Expr, no: Expr) -> Expr {
        match self.node(condition) {
            _ if yes == no => yes,
            Node::Literal(Literal::Bool(true)) => yes,
            Node::Literal(Literal::Bool(false)) => no,
            _ => self.call("select(x, y, z)", self.ty(yes), &[no, yes, condition]),
        }
    }

    /// Logical and of both conditions; an absent one is true.
    pub fn both(&mut self, a: Option<Expr>, b: Expr) -> Expr {
        match a {
            Some(a) if a != b => self.call("x && y", Type::Bool, &[a, b]),
            _ => b,
        }
    }

    /// The constant, if the expression is one.
    pub fn as_literal(&self, expr: Expr) -> Option<Literal> {
        match self.node(expr) {
            Node::Literal(literal) => Some(*literal),
            _ => None,
        }
    }

    fn add(&mut self, node: Node, ty: Type) -> Expr {
        let key = (node, ty);
        if let Some(expr) = self.known.get(&key) {
            return *expr;
        }
        let expr = Expr(u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
        self.entries.push(Entry {
            node: key.0.clone(),
            ty,
            label: None,
        });
        self.known.insert(key, expr);
        expr
    }
}
