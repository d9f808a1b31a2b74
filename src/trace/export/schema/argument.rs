//! Values of arguments: objects with one key, which says the kind of the value.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::{Name, SerializedGraph};

/// A number, or the name of a value that is computed.
#[derive(Clone, Debug, PartialEq)]
pub enum Symbolic<T> {
    /// A number.
    Known(T),
    /// A value of the graph by name.
    Named(String),
    /// An expression of SymPy, in metadata, and the value that it had at export.
    Expression(String, Option<T>),
}

/// A float as PyTorch writes it: numbers that are not finite are strings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number(pub f64);

/// The value of an argument.
#[derive(Debug)]
pub enum SerializedArgument {
    /// `None`
    None,
    /// A tensor by name.
    Tensor(String),
    /// A list of tensors.
    Tensors(Vec<String>),
    /// A list of tensors, some of which may be absent.
    OptionalTensors(Vec<Option<String>>),
    /// Lists of tensors.
    NestedTensors(Vec<Vec<String>>),
    /// An integer.
    Int(Symbolic<i64>),
    /// Integers.
    Ints(Vec<Symbolic<i64>>),
    /// Lists of integers.
    IntLists(Vec<Vec<i64>>),
    /// A float.
    Float(Symbolic<Number>),
    /// Floats.
    Floats(Vec<Symbolic<Number>>),
    /// A truth value.
    Bool(Symbolic<bool>),
    /// Truth values.
    Bools(Vec<Symbolic<bool>>),
    /// A string.
    Str(String),
    /// Strings.
    Strs(Vec<String>),
    /// Code of an element type.
    ScalarType(i64),
    /// Code of a memory format.
    MemoryFormat(i64),
    /// A layout.
    Layout,
    /// A device.
    Device,
    /// A graph that a higher-order operator calls.
    Graph(Box<NamedGraph>),
    /// An operator by name.
    Operator(String),
    /// A kind that no operator here takes, by its key.
    Other(String),
}

/// A graph within a graph.
#[derive(Debug, serde::Deserialize)]
pub struct NamedGraph {
    /// The graph.
    pub graph: SerializedGraph,
}

/// A tensor or nothing: an object with the key `as_tensor` or `as_none`, or in old files an object with a name or `null`.
struct OptionalName(Option<String>);

impl<'de> Deserialize<'de> for OptionalName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OptionalName, D::Error> {
        #[derive(serde::Deserialize)]
        struct Keys {
            #[serde(default)]
            as_tensor: Option<Name>,
            #[serde(default)]
            name: Option<String>,
        }
        let keys = Option::<Keys>::deserialize(deserializer)?;
        Ok(OptionalName(keys.and_then(|keys| {
            keys.as_tensor.map(|tensor| tensor.name).or(keys.name)
        })))
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Number, D::Error> {
        struct NumberVisitor;

        impl Visitor<'_> for NumberVisitor {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a float")
            }

            fn visit_f64<E>(self, value: f64) -> Result<Number, E> {
                Ok(Number(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Number, E> {
                Ok(Number(value as f64))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Number, E> {
                Ok(Number(value as f64))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Number, E> {
                text.parse().map(Number).map_err(E::custom)
            }
        }

        deserializer.deserialize_any(NumberVisitor)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Symbolic<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Symbolic<T>, D::Error> {
        struct SymbolicVisitor<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for SymbolicVisitor<T> {
            type Value = Symbolic<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object such as {\"as_int\": 1}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Symbolic<T>, A::Error> {
                let Some(key) = map.next_key::<String>()? else {
                    return Err(A::Error::custom("an empty value"));
                };
                let value = match key.as_str() {
                    "as_name" => Symbolic::Named(map.next_value()?),
                    "as_expr" => {
                        let expression: Expression<T> = map.next_value()?;
                        Symbolic::Expression(
                            expression.expr_str,
                            expression.hint.map(|hint| hint.0),
                        )
                    }
                    _ => Symbolic::Known(map.next_value()?),
                };
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(value)
            }
        }

        deserializer.deserialize_map(SymbolicVisitor(std::marker::PhantomData))
    }
}

#[derive(serde::Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
struct Expression<T> {
    expr_str: String,
    #[serde(default)]
    hint: Option<Hint<T>>,
}

/// The value in an object with one key.
struct Hint<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Hint<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hint<T>, D::Error> {
        match Symbolic::deserialize(deserializer)? {
            Symbolic::Known(value) => Ok(Hint(value)),
            _ => Err(D::Error::custom("a hint that is no number")),
        }
    }
}

impl<'de> Deserialize<'de> for SerializedArgument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SerializedArgument, D::Error> {
        struct ArgumentVisitor;

        impl<'de> Visitor<'de> for ArgumentVisitor {
            type Value = SerializedArgument;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object such as {\"as_tensor\": {\"name\": \"x\"}}")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<SerializedArgument, A::Error> {
                let Some(key) = map.next_key::<String>()? else {
                    return Err(A::Error::custom("an empty argument"));
                };
                let argument = argument(&key, &mut map)?;
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(argument)
            }
        }

        deserializer.deserialize_map(ArgumentVisitor)
    }
}

/// Reads the value of a key.
fn argument<'de, A: MapAccess<'de>>(
    key: &str,
    map: &mut A,
) -> Result<SerializedArgument, A::Error> {
    let names = |tensors: Vec<Name>| tensors.into_iter().map(|tensor| tensor.name).collect();
    Ok(match key {
        "as_none" => ignored(map, SerializedArgument::None)?,
        "as_tensor" => SerializedArgument::Tensor(map.next_value::<Name>()?.name),
        "as_tensors" => SerializedArgument::Tensors(names(map.next_value()?)),
        "as_optional_tensor" => {
            let tensor: OptionalName = map.next_value()?;
            tensor
                .0
                .map_or(SerializedArgument::None, SerializedArgument::Tensor)
        }
        "as_optional_tensors" => {
            let tensors: Vec<OptionalName> = map.next_value()?;
            SerializedArgument::OptionalTensors(
                tensors.into_iter().map(|tensor| tensor.0).collect(),
            )
        }
        "as_nested_tensors" => {
            let lists: Vec<Vec<Name>> = map.next_value()?;
            SerializedArgument::NestedTensors(lists.into_iter().map(names).collect())
        }
        "as_int" => SerializedArgument::Int(Symbolic::Known(map.next_value()?)),
        "as_ints" => SerializedArgument::Ints(known(map.next_value()?)),
        "as_sym_int" => SerializedArgument::Int(map.next_value()?),
        "as_sym_ints" => SerializedArgument::Ints(map.next_value()?),
        "as_int_lists" => SerializedArgument::IntLists(map.next_value()?),
        "as_float" => SerializedArgument::Float(Symbolic::Known(map.next_value()?)),
        "as_floats" => SerializedArgument::Floats(known(map.next_value()?)),
        "as_sym_float" => SerializedArgument::Float(map.next_value()?),
        "as_sym_floats" => SerializedArgument::Floats(map.next_value()?),
        "as_bool" => SerializedArgument::Bool(Symbolic::Known(map.next_value()?)),
        "as_bools" => SerializedArgument::Bools(known(map.next_value()?)),
        "as_sym_bool" => SerializedArgument::Bool(map.next_value()?),
        "as_sym_bools" => SerializedArgument::Bools(map.next_value()?),
        "as_string" => SerializedArgument::Str(map.next_value()?),
        "as_strings" => SerializedArgument::Strs(map.next_value()?),
        "as_scalar_type" => SerializedArgument::ScalarType(map.next_value()?),
        "as_memory_format" => SerializedArgument::MemoryFormat(map.next_value()?),
        "as_layout" => ignored(map, SerializedArgument::Layout)?,
        "as_device" => ignored(map, SerializedArgument::Device)?,
        "as_graph" => SerializedArgument::Graph(map.next_value()?),
        "as_operator" => SerializedArgument::Operator(map.next_value()?),
        other => ignored(map, SerializedArgument::Other(other.to_string()))?,
    })
}

fn known<T>(values: Vec<T>) -> Vec<Symbolic<T>> {
    values.into_iter().map(Symbolic::Known).collect()
}

/// Skips the value of a key that says all that matters.
fn ignored<'de, A: MapAccess<'de>>(
    map: &mut A,
    argument: SerializedArgument,
) -> Result<SerializedArgument, A::Error> {
    map.next_value::<IgnoredAny>()?;
    Ok(argument)
}
