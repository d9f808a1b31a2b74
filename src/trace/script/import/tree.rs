//! The result of the method as outputs of the graph.

use crate::error::{Error, Result};
use crate::ir::{TreeConstant, TreeSpec, ValueId};
use crate::scalar::Scalar;

use super::Importer;
use super::datum::Datum;
use super::number::ScriptNumber;

impl Importer<'_> {
    /// Returns the structure of a value in terms of outputs of the graph. Adds the tensors in it to `outputs`.
    pub(super) fn output_tree(
        &mut self,
        value: &Datum,
        outputs: &mut Vec<ValueId>,
    ) -> Result<TreeSpec> {
        Ok(match value {
            Datum::None => TreeSpec::Constant(TreeConstant::None),
            Datum::Number(number) => self.number_tree(number)?,
            Datum::Str(text) | Datum::Device(text) => {
                TreeSpec::Constant(TreeConstant::Str(text.to_string()))
            }
            Datum::Tensor(tensor) => {
                outputs.push(self.read(tensor)?);
                TreeSpec::Tensor(outputs.len() - 1)
            }
            Datum::Dynamic(_, tensor) => {
                outputs.push(self.read(tensor)?);
                TreeSpec::Number(outputs.len() - 1)
            }
            Datum::Tuple(items) => TreeSpec::Tuple(self.trees(items, outputs)?),
            Datum::List(list) => {
                let items = list.items.borrow().clone();
                TreeSpec::List(self.trees(&items, outputs)?)
            }
            Datum::NamedTuple(class, fields) => {
                let mut trees = Vec::new();
                for (name, value) in fields.iter() {
                    trees.push((name.clone(), self.output_tree(value, outputs)?));
                }
                let name = class.rsplit('.').next().unwrap_or(class);
                TreeSpec::NamedTuple(name.to_string(), trees)
            }
            Datum::Dict(dict) => {
                let entries = dict.entries.borrow().clone();
                let mut trees = Vec::new();
                for (key, value) in &entries {
                    trees.push((self.key(key)?, self.output_tree(value, outputs)?));
                }
                TreeSpec::Dict(trees)
            }
            other => {
                let message = format!("a result that is a {}", other.describe());
                return Err(Error::unsupported(message));
            }
        })
    }

    /// Returns the structures of several values.
    fn trees(&mut self, items: &[Datum], outputs: &mut Vec<ValueId>) -> Result<Vec<TreeSpec>> {
        let trees = items.iter().map(|item| self.output_tree(item, outputs));
        trees.collect()
    }

    /// Returns the structure of a known number: an expression of symbolic sizes, or a constant.
    fn number_tree(&mut self, number: &ScriptNumber) -> Result<TreeSpec> {
        let builder = self.builder();
        Ok(match number {
            ScriptNumber::Int(dim) if dim.as_const().is_none() => TreeSpec::Size(dim.clone()),
            other => {
                let scalar: Scalar = other.concrete(builder.symbols())?;
                TreeSpec::Constant(TreeConstant::Number(scalar))
            }
        })
    }

    /// Returns the text of a dict's key.
    fn key(&self, key: &Datum) -> Result<String> {
        match key {
            Datum::Str(text) => Ok(text.to_string()),
            Datum::Number(number @ ScriptNumber::Int(_)) => {
                let number = number.concrete(self.builder().symbols())?;
                Ok(number.to_i64().to_string())
            }
            Datum::Number(_) => Ok(self.display(key)),
            other => {
                let message = format!("a dict as result has a {} as key", other.describe());
                let help = "return a dict by strings or numbers, or the keys beside the values";
                Err(Error::unsupported(message).help(help))
            }
        }
    }
}
