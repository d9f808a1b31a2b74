//! Operator signatures, as far as methods need them.

/// A signature as PyTorch writes it.
pub struct Schema {
    /// All of it.
    pub text: String,
    /// `add`
    pub name: String,
    /// `Tensor`
    pub overload: String,
    /// In order.
    pub parameters: Vec<Parameter>,
    /// Types of the results.
    pub results: Results,
    /// The result shares memory with a parameter.
    pub is_view: bool,
    /// Takes a seed and a counter by name.
    pub is_random: bool,
}

/// A parameter.
pub struct Parameter {
    /// Name as PyTorch writes it.
    pub name: String,
    /// Type without alias annotation: `SymInt[2]?`.
    pub ty: String,
    /// The value if it is left out, as PyTorch writes it; none if it is required.
    pub default: Option<String>,
    /// Must be given by name.
    pub keyword_only: bool,
}

/// The return type of a method.
#[derive(Clone, PartialEq)]
pub enum Results {
    /// `Tensor`
    One,
    /// `Tensor[]`
    List,
    /// `(Tensor, Tensor)`
    Tuple(usize),
    /// `(Tensor, Tensor[])`
    OneAndList,
}

impl Schema {
    /// Parses `aten::name.overload(Type name=default, *, …) -> …`.
    pub fn parse(text: &str, is_random: bool) -> Result<Schema, String> {
        let bad = |what: &str| format!("{what} in the schema {text:?}");
        let (head, rest) = text.split_once('(').ok_or_else(|| bad("no parameters"))?;
        let full = head
            .strip_prefix("aten::")
            .ok_or_else(|| bad("no namespace"))?;
        let (name, overload) = full.split_once('.').unwrap_or((full, ""));
        let (inside, results) = rest.rsplit_once(") -> ").ok_or_else(|| bad("no results"))?;
        let mut keyword_only = false;
        let mut parameters = Vec::new();
        for part in split(inside) {
            match part {
                "" => {}
                "*" => keyword_only = true,
                part => {
                    let parameter = Parameter::parse(part, keyword_only);
                    parameters.push(parameter.ok_or_else(|| bad(part))?);
                }
            }
        }
        Ok(Schema {
            text: text.to_string(),
            name: name.to_string(),
            overload: overload.to_string(),
            parameters,
            is_view: results.contains("(a"),
            is_random,
            results: Results::parse(results).ok_or_else(|| bad("unknown results"))?,
        })
    }

    /// `aten.add.Tensor`, the name in the text form.
    pub fn text_name(&self) -> String {
        let full = format!("aten.{}.{}", self.name, self.overload);
        full.trim_end_matches('.').to_string()
    }
}

impl Parameter {
    fn parse(text: &str, keyword_only: bool) -> Option<Parameter> {
        let (declaration, default) = match text.split_once('=') {
            Some((declaration, default)) => (declaration, Some(default.to_string())),
            None => (text, None),
        };
        let (ty, name) = declaration.rsplit_once(' ')?;
        let parameter = Parameter {
            name: name.to_string(),
            ty: without_alias(ty),
            default,
            keyword_only,
        };
        parameter.rust_type().map(|_| parameter)
    }

    /// True if it may be left out.
    pub fn has_default(&self) -> bool {
        self.default.is_some()
    }

    /// Layouts, devices, pinned memory and the like make no difference.
    pub fn is_ignored(&self) -> bool {
        let ignored = ["Layout", "Device", "MemoryFormat", "Generator"];
        ignored.contains(&self.ty.trim_end_matches('?')) || self.name == "pin_memory"
    }

    /// Some of the tensors may be optional.
    pub fn is_tensor_list(&self) -> bool {
        matches!(self.ty.as_str(), "Tensor[]" | "Tensor?[]")
    }

    /// The type of the argument of a method.
    pub fn rust_type(&self) -> Option<&'static str> {
        const ANY: &str = "impl Into<Arg>";
        Some(match self.ty.as_str() {
            "Tensor" => "&TracedTensor",
            "Tensor[]" => "&[impl Borrow<TracedTensor>]",
            "int" => "i64",
            "float" => "f64",
            "bool" => "bool",
            "str" => "&str",
            "ScalarType" => "DType",
            ty => {
                let inner = ty.trim_end_matches('?');
                let element = inner.split(['[', '?']).next()?;
                let known = [
                    "Tensor",
                    "int",
                    "SymInt",
                    "float",
                    "bool",
                    "str",
                    "Scalar",
                    "ScalarType",
                ];
                return (known.contains(&element) || self.is_ignored()).then_some(ANY);
            }
        })
    }
}

impl Results {
    fn parse(text: &str) -> Option<Results> {
        let ty = |text: &str| without_alias(text.split(' ').next().unwrap_or_default());
        if text.starts_with("Tensor") {
            return match ty(text).as_str() {
                "Tensor" => Some(Results::One),
                "Tensor[]" => Some(Results::List),
                _ => None,
            };
        }
        let inside = text.strip_prefix('(')?.strip_suffix(')')?;
        let types: Vec<String> = split(inside).into_iter().map(ty).collect();
        match types
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .as_slice()
        {
            ["Tensor", "Tensor[]"] => Some(Results::OneAndList),
            all if all.iter().all(|ty| *ty == "Tensor") => Some(Results::Tuple(all.len())),
            _ => None,
        }
    }
}

/// `Tensor(a!)` is `Tensor`.
fn without_alias(ty: &str) -> String {
    match ty.split_once('(') {
        Some((head, tail)) => {
            let tail = tail.split_once(')').map_or("", |(_, tail)| tail);
            format!("{head}{tail}")
        }
        None => ty.to_string(),
    }
}

/// Splits at commas outside of brackets.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let parts = text.split(|character| {
        match character {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            _ => {}
        }
        character == ',' && depth == 0
    });
    parts.map(str::trim).collect()
}
