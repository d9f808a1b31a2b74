//! Schemas: the signatures of operators as PyTorch writes them.

use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Argument;
use crate::scalar::Scalar;
use crate::shape::split_top_level;

/// A parsed operator signature.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    /// The text as PyTorch writes it.
    pub text: String,
    /// Namespace: `aten`.
    pub namespace: String,
    /// Name of the operator: `add`.
    pub name: String,
    /// Name of the overload: `Tensor`; empty for the only or default overload.
    pub overload: String,
    /// Parameters in order; keyword-only ones last.
    pub parameters: Vec<SchemaParameter>,
    /// True if a result shares memory with a parameter.
    pub is_view: bool,
    /// The structure of the results.
    pub returns: ResultStructure,
}

/// The structure of an operator's results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultStructure {
    /// A tensor.
    One,
    /// A tuple of tensors.
    Tuple,
    /// A list of tensors.
    List,
    /// A tensor, and a list of further tensors.
    OneAndList,
}

impl ResultStructure {
    /// The structure of results as a schema writes them: `(Tensor, Tensor)`.
    fn parse(text: &str) -> ResultStructure {
        match (text.starts_with('('), text.contains("[]")) {
            (false, false) => ResultStructure::One,
            (false, true) => ResultStructure::List,
            (true, false) => ResultStructure::Tuple,
            (true, true) => ResultStructure::OneAndList,
        }
    }
}

/// A parameter of an operator.
#[derive(Clone, Debug, PartialEq)]
pub struct SchemaParameter {
    /// Name as PyTorch writes it.
    pub name: String,
    /// Type.
    pub ty: ArgumentType,
    /// Default; `None` if the argument is required.
    pub default: Option<DefaultValue>,
    /// True if the argument must be given by name.
    pub keyword_only: bool,
}

/// A default value.
pub type DefaultValue = Argument;

/// The type of a parameter, as far as it matters here.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgumentType {
    /// `Tensor`
    Tensor,
    /// `int` or `SymInt`
    Int,
    /// `float`
    Float,
    /// `bool`
    Bool,
    /// `str`
    Str,
    /// `Scalar`: any number
    Scalar,
    /// `ScalarType`: a dtype, passed as PyTorch's integer code
    DType,
    /// `Layout`, `Device`, `MemoryFormat`, `Generator`: accepted and ignored
    Ignored,
    /// An `int`, or a tensor that holds one. PyTorch's schemas do not use it.
    IntOrTensor,
    /// `T[]` or `T[n]`. The flag is true if there is a size `n`; then a single element may stand for the list
    List(Box<ArgumentType>, bool),
    /// `T?`
    Optional(Box<ArgumentType>),
}

impl Schema {
    /// Parses `aten::name.overload(Type name=default, *, …) -> …`.
    pub fn parse(text: &str) -> Result<Schema> {
        let malformed = |what: &str| Error::format(format!("{what} in the schema {text:?}"));
        let (head, rest) = text
            .split_once('(')
            .ok_or_else(|| malformed("no parameters"))?;
        let (namespace, qualified_name) = head
            .split_once("::")
            .ok_or_else(|| malformed("no namespace"))?;
        let (name, overload) = qualified_name
            .split_once('.')
            .unwrap_or((qualified_name, ""));
        let (parameter_list, results) = rest
            .rsplit_once(" -> ")
            .ok_or_else(|| malformed("no results"))?;
        let parameter_list = parameter_list
            .trim()
            .strip_suffix(')')
            .ok_or_else(|| malformed("unclosed parameters"))?;
        let mut keyword_only = false;
        let mut parameters = Vec::new();
        for declaration in split_top_level(parameter_list).into_iter().map(str::trim) {
            match declaration {
                "*" => keyword_only = true,
                declaration => parameters.push(
                    SchemaParameter::parse(declaration, keyword_only)
                        .ok_or_else(|| malformed(declaration))?,
                ),
            }
        }
        Ok(Schema {
            text: text.into(),
            namespace: namespace.into(),
            name: name.into(),
            overload: overload.into(),
            parameters,
            is_view: results.contains("(a"),
            returns: ResultStructure::parse(results),
        })
    }

    /// Name in the text form: `aten.add.Tensor`, or `aten.relu` without an overload name.
    pub fn text_name(&self) -> String {
        let dot = if self.overload.is_empty() { "" } else { "." };
        format!("{}.{}{dot}{}", self.namespace, self.name, self.overload)
    }

    /// Name that all overloads share: `aten::add`.
    pub fn base_name(&self) -> String {
        format!("{}::{}", self.namespace, self.name)
    }

    /// Position of a parameter.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.parameters
            .iter()
            .position(|parameter| parameter.name == name)
    }
}

impl SchemaParameter {
    /// Parses `Type name=default`; `None` if it is malformed.
    fn parse(text: &str, keyword_only: bool) -> Option<SchemaParameter> {
        let (declaration, default) = match text.split_once('=') {
            Some((declaration, default)) => (declaration, Some(default)),
            None => (text, None),
        };
        let (ty, name) = declaration.trim().rsplit_once(' ')?;
        let ty = match name {
            // Of memory of the host, which devices share as they need.
            "pin_memory" => ArgumentType::Optional(Box::new(ArgumentType::Ignored)),
            _ => ArgumentType::parse(&without_alias(ty))?,
        };
        let default = match default {
            Some(default) => Some(parse_default(default.trim(), &ty)?),
            None => None,
        };
        Some(SchemaParameter {
            name: name.into(),
            ty,
            default,
            keyword_only,
        })
    }

    /// True for a device, a layout and the like, which are ignored.
    pub fn is_ignored(&self) -> bool {
        match &self.ty {
            ArgumentType::Optional(inner) => **inner == ArgumentType::Ignored,
            ty => *ty == ArgumentType::Ignored,
        }
    }

    /// True if every call must give the argument.
    pub fn is_required(&self) -> bool {
        self.default.is_none() && !self.is_ignored()
    }

    /// An optional parameter that PyTorch's schema does not have.
    pub(super) fn internal(name: &str, ty: ArgumentType) -> SchemaParameter {
        SchemaParameter {
            name: name.into(),
            ty: ArgumentType::Optional(Box::new(ty)),
            default: Some(Argument::None),
            keyword_only: true,
        }
    }
}

impl ArgumentType {
    /// Parses a type without alias annotations; `None` if it is unknown.
    fn parse(text: &str) -> Option<ArgumentType> {
        if let Some(inner) = text.strip_suffix('?') {
            return Some(ArgumentType::Optional(Box::new(ArgumentType::parse(
                inner,
            )?)));
        }
        if let Some(list) = text.strip_suffix(']') {
            let (inner, size) = list.rsplit_once('[')?;
            return Some(ArgumentType::List(
                Box::new(ArgumentType::parse(inner)?),
                !size.is_empty(),
            ));
        }
        Some(match text {
            "Tensor" => ArgumentType::Tensor,
            "int" | "SymInt" => ArgumentType::Int,
            "float" => ArgumentType::Float,
            "bool" => ArgumentType::Bool,
            "str" => ArgumentType::Str,
            "Scalar" | "number" => ArgumentType::Scalar,
            "ScalarType" => ArgumentType::DType,
            "Layout" | "Device" | "MemoryFormat" | "Generator" => ArgumentType::Ignored,
            _ => return None,
        })
    }

    /// Whether an argument of a call has this type, as PyTorch's overload resolution sees it.
    pub fn accepts(&self, argument: &Argument) -> bool {
        match (self, argument) {
            (ArgumentType::Ignored, _) => true,
            (ArgumentType::Optional(_), Argument::None) => true,
            (ArgumentType::Optional(inner), argument) => inner.accepts(argument),
            (ArgumentType::Tensor, Argument::Value(_)) => true,
            (ArgumentType::Int, Argument::Number(Scalar::Int(_)) | Argument::Size(_)) => true,
            (ArgumentType::DType, Argument::Number(Scalar::Int(_))) => true,
            (ArgumentType::IntOrTensor, Argument::Number(Scalar::Int(_)) | Argument::Value(_)) => {
                true
            }
            (
                ArgumentType::Float,
                Argument::Number(Scalar::Float(_) | Scalar::Int(_)) | Argument::Size(_),
            ) => true,
            (ArgumentType::Bool, Argument::Number(Scalar::Bool(_))) => true,
            (ArgumentType::Scalar, Argument::Number(_) | Argument::Size(_)) => true,
            (ArgumentType::Str, Argument::Str(_)) => true,
            (ArgumentType::List(inner, _), Argument::List(items)) => {
                items.iter().all(|item| inner.accepts(item))
            }
            (ArgumentType::List(inner, true), argument) => inner.accepts(argument),
            _ => false,
        }
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Removes alias annotations: `Tensor(a!)` becomes `Tensor`.
fn without_alias(text: &str) -> String {
    match (text.find('('), text.find(')')) {
        (Some(open), Some(close)) if open < close => {
            format!("{}{}", &text[..open], &text[close + 1..])
        }
        _ => text.to_string(),
    }
}

/// The default of a parameter of type `ty`; `None` if it is malformed. `Mean` and `Sum` are `at::Reduction`.
fn parse_default(text: &str, ty: &ArgumentType) -> Option<DefaultValue> {
    if let Some(inner) = text.strip_prefix('[') {
        let items = split_top_level(inner.strip_suffix(']')?)
            .into_iter()
            .map(|item| parse_default(item.trim(), ty));
        return Some(Argument::List(items.collect::<Option<_>>()?));
    }
    let is_float = matches!(ty, ArgumentType::Float)
        || matches!(ty, ArgumentType::Optional(inner) if **inner == ArgumentType::Float);
    Some(match text {
        "None" | "contiguous_format" | "preserve_format" | "strided" => Argument::None,
        "True" => Argument::Number(Scalar::Bool(true)),
        "False" => Argument::Number(Scalar::Bool(false)),
        "Mean" => Argument::Number(Scalar::Int(1)),
        "Sum" => Argument::Number(Scalar::Int(2)),
        "inf" => Argument::Number(Scalar::Float(f64::INFINITY)),
        "-inf" => Argument::Number(Scalar::Float(f64::NEG_INFINITY)),
        "long" => Argument::Number(Scalar::Int(DType::I64.torch_code())),
        _ if text.starts_with(['\'', '"']) => {
            Argument::Str(text.trim_matches(['\'', '"']).to_string())
        }
        _ => match text.parse::<i64>() {
            Ok(number) if !is_float => Argument::Number(Scalar::Int(number)),
            _ => Argument::Number(Scalar::Float(text.parse().ok()?)),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_parse() {
        let schema = Schema::parse(
            "aten::conv2d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=1, str padding=\"valid\", *, Scalar? x=1.5) -> Tensor",
        )
        .expect("parses");
        assert_eq!(schema.text_name(), "aten.conv2d.padding");
        assert_eq!(schema.parameters.len(), 6);
        assert_eq!(
            schema.parameters[4].default,
            Some(Argument::Str("valid".into()))
        );
        assert!(schema.parameters[5].keyword_only);
        assert!(!schema.is_view);
        assert!(
            Schema::parse("aten::t(Tensor(a) self) -> Tensor(a)")
                .expect("parses")
                .is_view
        );
    }
}
