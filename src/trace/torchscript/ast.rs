//! Syntax tree of an archive's program: the subset of Python that TorchScript's serialiser writes.

mod visit;

use std::fmt;
use std::sync::Arc;

/// A class: a module, a named tuple, an enumeration, an interface or a plain script class.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Qualified name, `__torch__.torch.nn.modules.linear.Linear`.
    pub name: String,
    /// Base class.
    pub base: Base,
    /// Attributes with their types in order: those of an instance, or the fields of a named tuple.
    pub attributes: Vec<(String, Type)>,
    /// Constants of the class (`Final`) and members of an enumeration. The type of a member is [`Type::Any`].
    pub constants: Vec<Constant>,
    /// Names of the attributes that are parameters.
    pub parameters: Vec<String>,
    /// Names of the attributes that are buffers.
    pub buffers: Vec<String>,
    /// Names of the methods that are called before and after `forward`.
    pub hooks: ForwardHooks,
    /// Methods in order; their names are not qualified.
    pub methods: Vec<Function>,
    /// The record that contains the class, `code/__torch__.py`.
    pub file: Arc<str>,
    /// Byte offset of the class in its file.
    pub offset: usize,
}

/// Hooks of a module, as names of methods in the order of their calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForwardHooks {
    /// `__forward_pre_hooks__`: called with the module and a tuple of the arguments.
    pub before: Vec<String>,
    /// `__forward_hooks__`: called with the module, a tuple of the arguments and the result.
    pub after: Vec<String>,
}

/// Base class of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
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
pub struct Constant {
    /// Name.
    pub name: String,
    /// Static type.
    pub ty: Type,
    /// A literal.
    pub value: Expr,
}

/// A free function or a method.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// The name; qualified for free functions.
    pub name: String,
    /// Parameters; for methods the first one is the receiver.
    pub parameters: Vec<Parameter>,
    /// Type of the result; [`Type::Any`] if none is written.
    pub returns: Type,
    /// The statements.
    pub body: Vec<Statement>,
    /// The record that contains the function, `code/__torch__.py`.
    pub file: Arc<str>,
    /// Byte offset of the function in its file.
    pub offset: usize,
}

/// A parameter of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Name.
    pub name: String,
    /// Static type; [`Type::Any`] if none is written.
    pub ty: Type,
    /// Default, a literal.
    pub default: Option<Expr>,
}

/// A statement and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
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
        ty: Option<Type>,
        /// The value.
        value: Expr,
    },
    /// `a, b, = value`: unpacks a tuple or list.
    Unpack {
        /// The variables.
        names: Vec<String>,
        /// The value. It has as many elements as there are variables.
        value: Expr,
    },
    /// `a, b = x, y`: all values are computed before any variable changes. There are as many names as values.
    AssignAll {
        /// The variables.
        names: Vec<String>,
        /// Their values.
        values: Vec<Expr>,
    },
    /// `object.attribute = value`.
    SetAttribute {
        /// The object.
        object: Expr,
        /// The attribute's name.
        attribute: String,
        /// Its new value.
        value: Expr,
    },
    /// `if condition:` and `else:`.
    If {
        /// A bool.
        condition: Expr,
        /// Statements if true.
        then: Vec<Statement>,
        /// Statements if false.
        otherwise: Vec<Statement>,
    },
    /// `while condition:`.
    While {
        /// A bool, computed before every iteration.
        condition: Expr,
        /// Statements of an iteration.
        body: Vec<Statement>,
    },
    /// `for variable in range(count):`.
    For {
        /// Counts from 0.
        variable: String,
        /// Number of iterations.
        count: Expr,
        /// Statements of an iteration.
        body: Vec<Statement>,
    },
    /// `with context:`, or `with context as name:`.
    With {
        /// The context manager.
        context: Expr,
        /// The variable for the result of `__enter__`.
        name: Option<String>,
        /// Statements within.
        body: Vec<Statement>,
    },
    /// `return value`.
    Return(Expr),
    /// A value computed only for its effects.
    Evaluate(Expr),
    /// `def name():` within a body, for `fork(name)`.
    Define(Function),
    /// `pass`.
    Pass,
}

/// An expression and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
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
    Attribute(Box<Expr>, String),
    /// `value[index]`.
    Subscript(Box<Expr>, Box<Expr>),
    /// `value[start:end]` of a tuple.
    TupleSlice(Box<Expr>, i64, i64),
    /// A call.
    Call(Box<Call>),
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
    List(Vec<Expr>),
    /// `(a, b)`.
    Tuple(Vec<Expr>),
    /// `{k: v}`.
    Dict(Vec<(Expr, Expr)>),
    /// `annotate(T, value)`: the value, with a type that its expression does not show.
    Annotate(Type, Box<Expr>),
    /// `unchecked_cast(T, value)`: the value, known to be of a narrower type.
    UncheckedCast(Type, Box<Expr>),
    /// `uninitialized(T)`: a value that is never read.
    Uninitialized(Type),
    /// `isinstance(value, T)`, true if any of the types fits.
    IsInstance(Box<Expr>, Vec<Type>),
}

/// A call with its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The function, method or class.
    pub callee: Callee,
    /// Positional arguments, without the receiver of a method.
    pub arguments: Vec<Expr>,
    /// Keyword arguments.
    pub keywords: Vec<(String, Expr)>,
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
    Method(Expr, String),
    /// A variable that holds a function, or a builtin: `int`, `float`, `bool`, `str`, `print`, `fork` …. A name `^Foo` is a
    /// function of Python, of which an archive has the name only.
    Name(String),
}

/// A static type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
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
    Optional(Box<Type>),
    /// `List[T]`.
    List(Box<Type>),
    /// `Dict[K, V]`.
    Dict(Box<Type>, Box<Type>),
    /// `Tuple[A, B]`.
    Tuple(Vec<Type>),
    /// `Union[A, B]`.
    Union(Vec<Type>),
    /// `Future[T]`.
    Future(Box<Type>),
    /// A class of the archive by its qualified name.
    Class(String),
    /// Anything else by name: `complex`, `Generator`, `Storage` …
    Other(String),
}

impl Class {
    /// A method by name.
    pub fn method(&self, name: &str) -> Option<&Function> {
        self.methods.iter().find(|method| method.name == name)
    }

    /// The type of an attribute or field by name.
    pub fn attribute(&self, name: &str) -> Option<&Type> {
        let mut attributes = self.attributes.iter();
        let found = attributes.find(|(attribute, _)| attribute == name);
        found.map(|(_, ty)| ty)
    }

    /// A constant or member of an enumeration by name.
    pub fn constant(&self, name: &str) -> Option<&Constant> {
        self.constants.iter().find(|constant| constant.name == name)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Tensor => f.write_str("Tensor"),
            Type::Int => f.write_str("int"),
            Type::Float => f.write_str("float"),
            Type::Bool => f.write_str("bool"),
            Type::Str => f.write_str("str"),
            Type::Number => f.write_str("number"),
            Type::None => f.write_str("NoneType"),
            Type::Device => f.write_str("Device"),
            Type::Any => f.write_str("Any"),
            Type::Optional(inner) => write!(f, "Optional[{inner}]"),
            Type::List(inner) => write!(f, "List[{inner}]"),
            Type::Dict(key, value) => write!(f, "Dict[{key}, {value}]"),
            Type::Tuple(parts) if parts.is_empty() => f.write_str("Tuple[()]"),
            Type::Tuple(parts) => write_list(f, "Tuple", parts),
            Type::Union(parts) => write_list(f, "Union", parts),
            Type::Future(inner) => write!(f, "Future[{inner}]"),
            Type::Class(name) | Type::Other(name) => f.write_str(name),
        }
    }
}

fn write_list(f: &mut fmt::Formatter<'_>, name: &str, parts: &[Type]) -> fmt::Result {
    write!(f, "{name}[")?;
    for (index, part) in parts.iter().enumerate() {
        write!(f, "{}{part}", if index > 0 { ", " } else { "" })?;
    }
    f.write_str("]")
}
