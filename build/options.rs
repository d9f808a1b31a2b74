//! Types of the parameters with defaults of a method: one builder method for each parameter.

use std::fmt::Write;

use super::methods::rust_name;
use super::schema::{Parameter, Schema};

/// The options type of a method or function.
pub struct OptionsType<'m> {
    /// Name of the method or function.
    method: &'m str,
    /// A method of a tensor, not a function.
    on_tensor: bool,
    /// The operators that the method calls.
    overloads: &'m [&'m Schema],
}

impl<'m> OptionsType<'m> {
    /// The options of a method for some overloads.
    pub fn new(method: &'m str, on_tensor: bool, overloads: &'m [&'m Schema]) -> OptionsType<'m> {
        OptionsType {
            method,
            on_tensor,
            overloads,
        }
    }

    /// True if the method has a parameter with a default that matters.
    pub fn is_needed(&self) -> bool {
        self.is_random() || self.optional().any(|parameter| !parameter.is_ignored())
    }

    /// The argument of a `_with` method.
    pub fn declaration(&self) -> String {
        let path = self.path();
        format!("options: impl FnOnce({path}) -> {path}")
    }

    /// An expression for the arguments by name.
    pub fn values(&self) -> String {
        format!("options({}::default()).0", self.path())
    }

    /// Writes the type, if it is needed.
    pub fn write(&self, out: &mut String) -> std::fmt::Result {
        if !self.is_needed() {
            return Ok(());
        }
        let (name, method) = (self.name(), self.method);
        let link = match self.on_tensor {
            true => format!("[`{method}_with`](TracedTensor::{method}_with)"),
            false => format!("[`{method}_with`]"),
        };
        writeln!(
            out,
            "    /// Options of {link}.\n    #[derive(Debug, Default)]\n    #[must_use]"
        )?;
        writeln!(
            out,
            "    pub struct {name}(pub(super) Named);\n\n    impl {name} {{"
        )?;
        for (parameter, documentation) in self.parameters() {
            write_setter(out, &name, &parameter, &documentation)?;
        }
        writeln!(out, "    }}\n")
    }

    /// Names of the parameters with defaults, and what the documentation says of each.
    fn parameters(&self) -> Vec<(String, String)> {
        let mut parameters: Vec<(String, Vec<String>)> = Vec::new();
        for parameter in self.optional() {
            let default = parameter.default.as_deref().unwrap_or_default();
            let text = format!("`{} {}={default}`", parameter.ty, parameter.name);
            match parameters
                .iter_mut()
                .find(|(name, _)| *name == parameter.name)
            {
                Some((_, texts)) if texts.contains(&text) => {}
                Some((_, texts)) => texts.push(text),
                None => parameters.push((parameter.name.clone(), vec![text])),
            }
        }
        if self.is_random() {
            let random = [("seed", "`int seed`: by default the thread's")];
            let random = random
                .into_iter()
                .chain([("counter", "`int counter`: by default the thread's next")]);
            parameters
                .extend(random.map(|(name, text)| (name.to_string(), vec![text.to_string()])));
        }
        let joined = parameters.into_iter();
        joined
            .map(|(name, texts)| (name, texts.join(" or ")))
            .collect()
    }

    fn optional(&self) -> impl Iterator<Item = &Parameter> {
        let parameters = self.overloads.iter().flat_map(|schema| &schema.parameters);
        parameters.filter(|parameter| parameter.has_default())
    }

    fn is_random(&self) -> bool {
        self.overloads.iter().any(|schema| schema.is_random)
    }

    /// `SumDimOptions` for `sum_dim`.
    fn name(&self) -> String {
        let words = self.method.split('_').filter(|word| !word.is_empty());
        let words = words.map(|word| {
            let (first, rest) = word.split_at(1);
            first.to_uppercase() + rest
        });
        let hidden = if self.method.starts_with('_') {
            "Internal"
        } else {
            ""
        };
        format!("{hidden}{}Options", words.collect::<String>())
    }

    /// The type's path in the generated source.
    fn path(&self) -> String {
        match self.on_tensor {
            true => format!("options::{}", self.name()),
            false => self.name(),
        }
    }
}

/// Writes the builder method of a parameter.
fn write_setter(
    out: &mut String,
    ty: &str,
    parameter: &str,
    documentation: &str,
) -> std::fmt::Result {
    let name = rust_name(parameter);
    writeln!(out, "        /// {documentation}.")?;
    writeln!(
        out,
        "        pub fn {name}(mut self, {name}: impl Into<Arg>) -> {ty} {{"
    )?;
    writeln!(
        out,
        "            self.0.push(({parameter:?}, {name}.into()));\n            self\n        }}"
    )
}
