//! Syntax tree of an archive's program: the subset of Python that TorchScript's serialiser writes.

mod visit;

use std::fmt;
use std::sync::Arc;

/// A class: a module, a named tuple, an enumeration, an interface or a plain script class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassDef {
    /// Qualified name, `__torch__.torch.nn.modules.linear.Linear`.
    pub name: String,
    /// Base class.
    pub base: BaseClass,
    /// Attributes with their types in order: those of an instance, or the fields of a named tuple.
    pub attributes: Vec<(String, TypeExpr)>,
    /// Constants of the class (`Final`) and members of an enumeration. The type of a member is [`TypeExpr::Any`].
    pub constants: Vec<ConstantDef>,
    /// Names of the attributes that are parameters.
    pub parameters: Vec<String>,
    /// Names of the attributes that are buffers.
    pub buffers: Vec<String>,
    /// Names of the methods that are called before and after `forward`.
    pub hooks: ForwardHooks,
    /// Methods in order; their names are not qualified.
    pub methods: Vec<FunctionDef>,
    /// The record that contains the class, `code/__torch__.py`.
    pub file: Arc<str>,
    /// Byte offset of the class in its file.
    pub offset: usize,
}

/// Hooks of a module, as names of methods in the order of their calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForwardHooks {
    /// `__forward_pre_hooks__`: called with the module and a tuple of the arguments.
    pub pre: Vec<String>,
    /// `__forward_hooks__`: called with the module, a tuple of the arguments and the result.
    pub post: Vec<String>,
}

/// Base class of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseClass {
    /// `Module`.
    Module,
    /// `NamedTuple`: the class has nothing but fields.
    NamedTuple,
    /// `Enum`: the class has nothing but members.
    Enum,
    /// `Interface` or `ModuleInterface`: the methods of the class have no bodies.
    Interface,
    /// No base: a script class, with `__init__` and other methods.
    None,
}

/// A constant of a class.
#[derive(Clone, Debug, PartialEq)]
pub struct ConstantDef {
    /// Name.
    pub name: String,
    /// Static type.
    pub ty: TypeExpr,
    /// A literal.
    pub value: AstExpr,
}

/// A free function or a method.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionDef {
    /// The name; qualified for free functions.
    pub name: String,
    /// Parameters; for methods the first one is the receiver.
    pub parameters: Vec<ParameterDef>,
    /// Type of the result; [`TypeExpr::Any`] if none is written.
    pub returns: TypeExpr,
    /// The statements.
    pub body: Vec<Stmt>,
    /// The record that contains the function, `code/__torch__.py`.
    pub file: Arc<str>,
    /// Byte offset of the function in its file.
    pub offset: usize,
}

/// A parameter of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterDef {
    /// Name.
    pub name: String,
    /// Static type; [`TypeExpr::Any`] if none is written.
    pub ty: TypeExpr,
    /// Default, a literal.
    pub default: Option<AstExpr>,
}

/// A statement and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Stmt {
    /// Byte offset of the first token.
    pub offset: usize,
    /// The statement itself.
    pub kind: StmtKind,
}

/// A statement without its position.
#[derive(Clone, Debug, PartialEq)]
pub enum StmtKind {
    /// `name = value`, or `name : T = value`.
    Assign {
        /// The variable.
        name: String,
        /// The type, if one is written.
        ty: Option<TypeExpr>,
        /// The value.
        value: AstExpr,
    },
    /// `a, b, = value`: unpacks a tuple or list.
    Unpack {
        /// The variables.
        names: Vec<String>,
        /// The value. It has as many elements as there are variables.
        value: AstExpr,
    },
    /// `a, b = x, y`: all values are computed before any variable changes. There are as many names as values.
    AssignAll {
        /// The variables.
        names: Vec<String>,
        /// Their values.
        values: Vec<AstExpr>,
    },
    /// `object.attribute = value`.
    SetAttribute {
        /// The object.
        object: AstExpr,
        /// The attribute's name.
        attribute: String,
        /// Its new value.
        value: AstExpr,
    },
    /// `if condition:` and `else:`.
    If {
        /// A bool.
        condition: AstExpr,
        /// Statements if true.
        then: Vec<Stmt>,
        /// Statements if false.
        otherwise: Vec<Stmt>,
    },
    /// `while condition:`.
    While {
        /// A bool, computed before every iteration.
        condition: AstExpr,
        /// Statements of an iteration.
        body: Vec<Stmt>,
    },
    /// `for variable in range(count):`.
    For {
        /// The variable that counts iterations from 0.
        variable: String,
        /// Number of iterations.
        count: AstExpr,
        /// Statements of an iteration.
        body: Vec<Stmt>,
    },
    /// `with context:`, or `with context as name:`.
    With {
        /// The context manager.
        context: AstExpr,
        /// The variable for the result of `__enter__`.
        name: Option<String>,
        /// Statements within.
        body: Vec<Stmt>,
    },
    /// `return value`.
    Return(AstExpr),
    /// A value computed only for its effects.
    Evaluate(AstExpr),
    /// `def name():` within a body, for `fork(name)`.
    Define(FunctionDef),
    /// `pass`.
    Pass,
}

/// An expression and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct AstExpr {
    /// Byte offset of the first token, without enclosing parentheses.
    pub offset: usize,
    /// The expression itself.
    pub kind: AstExprKind,
}

/// An expression without its position.
#[derive(Clone, Debug, PartialEq)]
pub enum AstExprKind {
    /// A variable.
    Name(String),
    /// A qualified name that is not called: a function bound to a variable, or a member of an enumeration
    /// (`__torch__.Color.RED`).
    Qualified(String),
    /// `CONSTANTS.c3`: an element of the archive's constants.
    Constant(usize),
    /// `object.name`, or `getattr(object, "name")`.
    Attribute(Box<AstExpr>, String),
    /// `value[index]`.
    Subscript(Box<AstExpr>, Box<AstExpr>),
    /// `value[start:end]` of a tuple.
    TupleSlice(Box<AstExpr>, i64, i64),
    /// A call.
    Call(Box<CallExpr>),
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float; also `inf` and `nan`.
    Float(f64),
    /// A complex number by its real and imaginary part.
    Complex(f64, f64),
    /// A string.
    Str(String),
    /// `[a, b]`.
    List(Vec<AstExpr>),
    /// `(a, b)`.
    Tuple(Vec<AstExpr>),
    /// `{k: v}`.
    Dict(Vec<(AstExpr, AstExpr)>),
    /// `annotate(T, value)`: the value, with a type that its expression does not show.
    Annotate(TypeExpr, Box<AstExpr>),
    /// `unchecked_cast(T, value)`: the value, known to be of a narrower type.
    UncheckedCast(TypeExpr, Box<AstExpr>),
    /// `uninitialized(T)`: a value that is never read.
    Uninitialized(TypeExpr),
    /// `isinstance(value, T)`, true if any of the types fits.
    IsInstance(Box<AstExpr>, Vec<TypeExpr>),
}

/// A call with its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct CallExpr {
    /// The function, method or class.
    pub callee: Callee,
    /// Positional arguments, without the receiver of a method.
    pub arguments: Vec<AstExpr>,
    /// Keyword arguments.
    pub keywords: Vec<(String, AstExpr)>,
}

/// Target of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Callee {
    /// An operator with its namespace and without an overload: `torch.add` is `aten::add`, `ops.prim.device` is
    /// `prim::device`.
    Operator(String),
    /// A function or class of the archive: `__torch__.models.Pt`; also `__torch__.Box.__new__`.
    Qualified(String),
    /// A method of a value: `(x).forward(…)`.
    Method(AstExpr, String),
    /// A variable that holds a function, or a builtin: `int`, `float`, `bool`, `str`, `print`, `fork` …. A name `^Foo`
    /// is an `autograd.Function` of Python, of which an archive has the name only.
    Name(String),
}

/// A static type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TypeExpr {
    /// `Tensor`.
    Tensor,
    /// `int`.
    Int,
    /// `float`.
    Float,
    /// `bool`.
    Bool,
    /// `str`.
    Str,
    /// `number`: an int, a float or a complex number.
    Number,
    /// `NoneType`.
    None,
    /// `Device`.
    Device,
    /// `Any`.
    Any,
    /// `Optional[T]`.
    Optional(Box<TypeExpr>),
    /// `List[T]`.
    List(Box<TypeExpr>),
    /// `Dict[K, V]`.
    Dict(Box<TypeExpr>, Box<TypeExpr>),
    /// `Tuple[A, B]`.
    Tuple(Vec<TypeExpr>),
    /// `Union[A, B]`.
    Union(Vec<TypeExpr>),
    /// `Future[T]`.
    Future(Box<TypeExpr>),
    /// A class of the archive by its qualified name.
    Class(String),
    /// Anything else by name: `complex`, `Generator`, `Storage` …
    Other(String),
}

impl ClassDef {
    /// A method by name.
    pub fn method(&self, name: &str) -> Option<&FunctionDef> {
        self.methods.iter().find(|method| method.name == name)
    }

    /// The type of an attribute or field by name.
    pub fn attribute(&self, name: &str) -> Option<&TypeExpr> {
        let mut attributes = self.attributes.iter();
        let entry = attributes.find(|(attribute, _)| attribute == name);
        entry.map(|(_, ty)| ty)
    }

    /// A constant or member of an enumeration by name.
    pub fn constant(&self, name: &str) -> Option<&ConstantDef> {
        self.constants.iter().find(|constant| constant.name == name)
    }
}

impl fmt::Display for TypeExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TypeExpr::Tensor => f.write_str("Tensor"),
            TypeExpr::Int => f.write_str("int"),
            TypeExpr::Float => f.write_str("float"),
            TypeExpr::Bool => f.write_str("bool"),
            TypeExpr::Str => f.write_str("str"),
            TypeExpr::Number => f.write_str("number"),
            TypeExpr::None => f.write_str("NoneType"),
            TypeExpr::Device => f.write_str("Device"),
            TypeExpr::Any => f.write_str("Any"),
            TypeExpr::Optional(inner) => write!(f, "Optional[{inner}]"),
            TypeExpr::List(inner) => write!(f, "List[{inner}]"),
            TypeExpr::Dict(key, value) => write!(f, "Dict[{key}, {value}]"),
            TypeExpr::Tuple(parts) if parts.is_empty() => f.write_str("Tuple[()]"),
            TypeExpr::Tuple(parts) => write_list(f, "Tuple", parts),
            TypeExpr::Union(parts) => write_list(f, "Union", parts),
            TypeExpr::Future(inner) => write!(f, "Future[{inner}]"),
            TypeExpr::Class(name) | TypeExpr::Other(name) => f.write_str(name),
        }
    }
}

/// Writes a generic type, `name[parts]`.
fn write_list(f: &mut fmt::Formatter<'_>, name: &str, parts: &[TypeExpr]) -> fmt::Result {
    write!(f, "{name}[")?;
    for (index, part) in parts.iter().enumerate() {
        write!(f, "{}{part}", if index > 0 { ", " } else { "" })?;
    }
    f.write_str("]")
}
