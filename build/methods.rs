//! Methods and functions for operators, as Rust source.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::in_place::IN_PLACE;
use super::options::OptionsType;
use super::schema::{Parameter, Results, Schema};

const ANY: &str = "impl Into<Arg>";

/// Words of overload names that only tell types, which methods take by conversion.
const TYPES: &[&str] = &[
    "tensor", "scalar", "int", "ints", "intlist", "list", "hacked", "twin", "using", "self", "opt",
    "float", "bool", "memory", "format", "input", "n", "x", "other", "str", "array",
];

/// Operators with names of their own, where two overloads differ in types only and yet in what they do.
const NAMES: &[(&str, &str)] = &[
    ("max.other", "max_other"),
    ("min.other", "min_other"),
    ("where", "where_nonzero"),
    ("scatter.reduce", "scatter_and_reduce"),
    ("to.dtype_layout", "to_options"),
    ("bernoulli.p", "bernoulli_p"),
    ("normal.Tensor_Tensor", "normal_std"),
    ("normal.float_float", "normal_sized"),
    ("repeat_interleave.Tensor", "repeat_interleave_counts"),
];

/// Methods that a tensor has anyway: these operators are functions.
const TAKEN: &[&str] = &["clone"];

/// Words that cannot be names in Rust.
const KEYWORDS: &[&str] = &["where", "type", "in", "ref", "box", "unsafe"];

/// A method of a tensor, or a function, for one or more overloads.
struct Method<'s> {
    name: String,
    /// A method: the first parameter is the tensor itself.
    on_tensor: bool,
    overloads: Vec<&'s Schema>,
    /// Required arguments behind the tensor itself.
    required: Vec<Required<'s>>,
}

struct Required<'s> {
    parameter: &'s Parameter,
    ty: &'static str,
}

/// The source of `impl TracedTensor`, of the module of functions, and of the table of both.
pub fn generate(schemas: &[Schema]) -> Result<String, String> {
    let mut groups: BTreeMap<(&str, bool), Vec<Method>> = BTreeMap::new();
    for schema in schemas {
        let method = Method::new(schema);
        let group = groups.entry((&schema.name, method.on_tensor)).or_default();
        match group.iter_mut().find(|known| known.is_like(&method)) {
            Some(known) => known.merge(method),
            None => group.push(method),
        }
    }
    let mut methods: Vec<Method> = groups.into_values().flat_map(name_apart).collect();
    methods.sort_by(|a, b| (a.on_tensor, &a.name).cmp(&(b.on_tensor, &b.name)));
    let same =
        |pair: &&[Method]| pair[0].name == pair[1].name && pair[0].on_tensor == pair[1].on_tensor;
    if let Some(pair) = methods.windows(2).find(same) {
        let (first, second) = (&pair[0].overloads[0].text, &pair[1].overloads[0].text);
        return Err(format!("two methods of one name: {first} and {second}"));
    }
    write(&methods).map_err(|error| error.to_string())
}

impl<'s> Method<'s> {
    fn new(schema: &'s Schema) -> Method<'s> {
        let first = schema.parameters.first();
        let is_tensor = first.is_some_and(|first| first.ty == "Tensor" && !first.has_default());
        let on_tensor = is_tensor && !TAKEN.contains(&schema.name.as_str());
        let behind = schema.parameters.iter().skip(usize::from(on_tensor));
        let required =
            behind.filter(|parameter| !parameter.has_default() && !parameter.is_ignored());
        let required = required.map(|parameter| Required {
            parameter,
            ty: parameter.rust_type().unwrap_or(ANY),
        });
        Method {
            name: String::new(),
            on_tensor,
            overloads: vec![schema],
            required: required.collect(),
        }
    }

    /// True if one signature with conversions does for both.
    fn is_like(&self, other: &Method) -> bool {
        let mut pairs = self.required.iter().zip(&other.required);
        self.overloads[0].results == other.overloads[0].results
            && self.required.len() == other.required.len()
            && pairs.all(|(a, b)| a.is_like(b))
    }

    fn merge(&mut self, other: Method<'s>) {
        self.overloads.extend(other.overloads);
        for (known, new) in self.required.iter_mut().zip(other.required) {
            if known.ty != new.ty {
                known.ty = ANY;
            }
        }
    }

    fn has_optional(&self) -> bool {
        self.options().is_needed()
    }
}

impl Required<'_> {
    fn is_like(&self, other: &Required) -> bool {
        let (a, b) = (self.parameter, other.parameter);
        let converts = |ty: &str| !matches!(ty, "&str" | "&[impl Borrow<TracedTensor>]");
        let is_named = a.keyword_only || b.keyword_only;
        (!is_named || a.keyword_only == b.keyword_only && a.name == b.name)
            && (self.ty == other.ty
                || converts(self.ty) && converts(other.ty)
                || a.is_tensor_list() && b.is_tensor_list())
    }
}

/// Names the methods for the overloads of one operator: the first by the operator, others by their overloads too.
fn name_apart(mut group: Vec<Method>) -> Vec<Method> {
    let has_plain = group.iter().any(|method| suffix(method).is_empty());
    for (index, method) in group.iter_mut().enumerate() {
        let schema = method.overloads[0];
        let own = schema.text_name();
        let own = NAMES.iter().find(|(name, _)| own == format!("aten.{name}"));
        let suffix = match index {
            0 if !has_plain => String::new(),
            _ => suffix(method),
        };
        method.name = match own {
            Some((_, name)) => name.to_string(),
            None if suffix.is_empty() => rust_name(&schema.name),
            None => format!("{}_{suffix}", schema.name),
        };
    }
    group
}

/// The part of an overload's name that its types do not determine.
fn suffix(method: &Method) -> String {
    let shortest = |schema: &&Schema| words(&schema.overload);
    let suffixes = method.overloads.iter().map(shortest);
    suffixes.min_by_key(String::len).unwrap_or_default()
}

fn words(overload: &str) -> String {
    let mut spaced = String::new();
    for character in overload.chars() {
        if character.is_uppercase() {
            spaced.push('_');
        }
        spaced.extend(character.to_lowercase());
    }
    let words = spaced.split('_');
    let words: Vec<&str> = words
        .filter(|word| !word.is_empty() && !TYPES.contains(word))
        .collect();
    words.join("_")
}

pub fn rust_name(name: &str) -> String {
    let lower = name.to_lowercase();
    match lower.as_str() {
        "self" => "input".to_string(),
        word if KEYWORDS.contains(&word) => format!("{word}_"),
        _ => lower,
    }
}

fn write(methods: &[Method]) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    writeln!(
        out,
        "#[allow(clippy::too_many_arguments, clippy::should_implement_trait)]"
    )?;
    writeln!(out, "impl TracedTensor {{")?;
    for method in methods.iter().filter(|method| method.on_tensor) {
        method.write(&mut out)?;
    }
    writeln!(
        out,
        "}}\n\n/// Operators that are no methods: `torch.cat`, `torch.zeros`."
    )?;
    writeln!(
        out,
        "#[allow(clippy::too_many_arguments)]\npub mod ops {{\n    use super::*;"
    )?;
    for method in methods.iter().filter(|method| !method.on_tensor) {
        method.write(&mut out)?;
        method.options().write(&mut out)?;
    }
    writeln!(
        out,
        "}}\n\n/// Parameters with defaults of the `_with` methods of [`TracedTensor`], by name.\npub mod options {{\n    use super::*;"
    )?;
    for method in methods.iter().filter(|method| method.on_tensor) {
        method.options().write(&mut out)?;
    }
    writeln!(out, "}}\n\npub(super) const BINDINGS: &[Binding] = &[")?;
    for method in methods {
        method.write_row(&mut out)?;
    }
    writeln!(out, "];")?;
    Ok(out)
}

impl Method<'_> {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        self.write_one(out, false)?;
        if self.has_optional() {
            self.write_one(out, true)?;
        }
        let schema = self.overloads[0];
        let in_place = IN_PLACE.contains(&schema.name.as_str()) && schema.results == Results::One;
        if self.on_tensor && in_place {
            self.write_in_place(out, false)?;
            if self.has_optional() {
                self.write_in_place(out, true)?;
            }
        }
        Ok(())
    }

    fn write_one(&self, out: &mut String, with: bool) -> std::fmt::Result {
        self.write_documentation(out, "")?;
        let name = self.variant(if with { "_with" } else { "" });
        let receiver = if self.on_tensor { "&self, " } else { "" };
        let (result, function, into) = match self.overloads[0].results {
            Results::One => ("TracedTensor".to_string(), "one", ""),
            Results::List => ("Vec<TracedTensor>".to_string(), "many", ""),
            Results::Tuple(count) => {
                let types = ["TracedTensor"].repeat(count).join(", ");
                (format!("({types})"), "several", ".into()")
            }
            Results::OneAndList => (
                "(TracedTensor, Vec<TracedTensor>)".to_string(),
                "one_and_list",
                "",
            ),
        };
        let operators = self.operators();
        let own = self.on_tensor.then(|| "self.into()".to_string());
        let positional = self
            .required
            .iter()
            .filter(|one| !one.parameter.keyword_only);
        let positional: Vec<String> = own
            .into_iter()
            .chain(positional.map(Required::value))
            .collect();
        let keywords = self
            .required
            .iter()
            .filter(|one| one.parameter.keyword_only);
        let keywords: Vec<String> = keywords
            .map(|one| format!("({:?}, {})", one.parameter.name, one.value()))
            .collect();
        let named = match (with, keywords.is_empty()) {
            (false, true) => "Vec::new()".to_string(),
            (false, false) => format!("vec![{}]", keywords.join(", ")),
            (true, true) => self.options().values(),
            (true, false) => {
                let options = self.options().values();
                format!("also({options}, vec![{}])", keywords.join(", "))
            }
        };
        let declarations = self.declarations(with);
        let positional = positional.join(", ");
        writeln!(
            out,
            "    #[must_use = \"the operands do not change\"]\n    #[track_caller]"
        )?;
        writeln!(
            out,
            "    pub fn {name}({receiver}{declarations}) -> {result} {{"
        )?;
        writeln!(
            out,
            "        {function}(&[{operators}], vec![{positional}], {named}){into}"
        )?;
        writeln!(out, "    }}")
    }

    fn write_in_place(&self, out: &mut String, with: bool) -> std::fmt::Result {
        let functional = self.variant(if with { "_with" } else { "" });
        let name = self.variant(if with { "_with_" } else { "_" });
        self.write_documentation(
            out,
            " Writes to the tensor's memory; all tensors that share it change.",
        )?;
        let names = self
            .required
            .iter()
            .map(|one| rust_name(&one.parameter.name));
        let named = with.then(|| "options".to_string());
        let arguments: Vec<String> = names.chain(named).collect();
        let (declarations, arguments) = (self.declarations(with), arguments.join(", "));
        writeln!(out, "    #[track_caller]")?;
        writeln!(
            out,
            "    pub fn {name}(&self, {declarations}) -> TracedTensor {{"
        )?;
        writeln!(out, "        let value = self.{functional}({arguments});")?;
        match self.overloads[0].is_view {
            true => writeln!(out, "        self.change_view(&value)")?,
            false => writeln!(out, "        self.write(&value)")?,
        }
        writeln!(out, "    }}")
    }

    fn write_documentation(&self, out: &mut String, more: &str) -> std::fmt::Result {
        let schemas = self
            .overloads
            .iter()
            .map(|schema| format!("`{}`", schema.text));
        let schemas: Vec<String> = schemas.collect();
        writeln!(out, "    /// {}.{more}", schemas.join(" or "))
    }

    fn variant(&self, ending: &str) -> String {
        format!("{}{ending}", self.name)
    }

    fn declarations(&self, with: bool) -> String {
        let required = self.required.iter();
        let required =
            required.map(|one| format!("{}: {}", rust_name(&one.parameter.name), one.ty));
        let named = with.then(|| self.options().declaration());
        required.chain(named).collect::<Vec<_>>().join(", ")
    }

    /// The type of the parameters with defaults.
    fn options(&self) -> OptionsType<'_> {
        OptionsType::new(&self.name, self.on_tensor, &self.overloads)
    }

    fn operators(&self) -> String {
        let operators = self
            .overloads
            .iter()
            .map(|schema| format!("{:?}", schema.text_name()));
        operators.collect::<Vec<_>>().join(", ")
    }

    fn write_row(&self, out: &mut String) -> std::fmt::Result {
        let (name, on_tensor, operators) = (&self.name, self.on_tensor, self.operators());
        let required = self.required.len();
        writeln!(
            out,
            "    Binding {{ name: {name:?}, on_tensor: {on_tensor}, operators: &[{operators}], required: {required} }},"
        )
    }
}

impl Required<'_> {
    fn value(&self) -> String {
        let name = rust_name(&self.parameter.name);
        match self.ty {
            "&[impl Borrow<TracedTensor>]" => format!("list_of({name})"),
            _ => format!("{name}.into()"),
        }
    }
}
