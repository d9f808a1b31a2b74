//! Inputs of a program: parameters of the function, whose structure is taken apart; weights; and conditions on sizes.

use super::control::name_of;
use super::sizes::SizeNames;
use super::{Scope, Translator};
use crate::error::{Error, Result};
use crate::ir::TreeConstant;
use crate::scalar::Scalar;
use crate::shape::TensorType;
use crate::trace::export::codes;
use crate::trace::export::pytree::Pytree;
use crate::trace::export::schema::{
    Range, SerializedArgument, SerializedInput, SerializedProgram, Symbolic, TensorMeta,
};
use crate::trace::export::size_expr::SizeExpr;
use crate::trace::program::InputSpec;
use crate::trace::script::ast::{AstExpr, AstExprKind, ParameterDef, Stmt, StmtKind, TypeExpr};

/// Smallest lower bound that holds at run time: PyTorch gives all symbols a bound of 2, but takes sizes of 0 and 1.
const SMALLEST_BOUND: i64 = 3;

/// The parameters of the function.
pub(super) struct FunctionInputs {
    /// In order, without the module.
    pub parameters: Vec<ParameterDef>,
    /// An example of each.
    pub examples: Vec<InputSpec>,
    /// Sizes that may vary.
    pub symbolic_sizes: Vec<(String, usize)>,
}

/// An input of the user, as the graph has it.
enum Leaf<'a> {
    /// A tensor and its type.
    Tensor(&'a str, &'a TensorMeta),
    /// A value of Python for which alone the program is valid, with the name of its input if the graph has one.
    Constant(Option<&'a str>, TreeConstant),
}

/// The inputs of a program while their structure is taken apart.
struct Inputs<'a> {
    leaves: std::vec::IntoIter<Leaf<'a>>,
    ranges: &'a std::collections::BTreeMap<String, Range>,
    /// Symbols and inputs that were met so far.
    names: SizeNames,
    /// Keys to the value that is taken apart.
    keys: Vec<String>,
    /// Conditions that need all symbols.
    later: Vec<(String, usize, AstExpr, SizeExpr)>,
    symbolic_sizes: Vec<(String, usize)>,
}

impl Inputs<'_> {
    /// Adds the value at the keys to the inputs that conditions name.
    fn add(&mut self, value: &AstExpr) {
        self.names.inputs.push((self.keys.clone(), value.clone()));
    }
}

impl Translator {
    /// Adds statements that take the parameters apart and check them. Defines the inputs of the graph in the scope.
    pub(super) fn inputs(
        &mut self,
        program: &SerializedProgram,
        scope: &mut Scope,
        body: &mut Vec<Stmt>,
    ) -> Result<FunctionInputs> {
        let module = &program.graph_module;
        let leaves = self.leaves(program, scope)?;
        let signature = module.module_call_graph.first();
        let signature = signature.and_then(|call| call.signature.as_ref());
        let (trees, names) = match signature {
            Some(signature) => {
                let tree = Pytree::parse(&signature.in_spec, &module.treespec_namedtuple_fields)?;
                parameters_of(tree, signature.forward_arg_names.as_deref(), &leaves)?
            }
            None => (vec![Pytree::Leaf; leaves.len()], names_of_leaves(&leaves)),
        };
        if trees.iter().map(Pytree::leaf_count).sum::<usize>() != leaves.len() {
            return Err(Error::format(
                "the program has other inputs than its structure says",
            ));
        }
        let mut inputs = Inputs {
            leaves: leaves.into_iter(),
            ranges: &program.range_constraints,
            names: SizeNames::default(),
            keys: Vec::new(),
            later: Vec::new(),
            symbolic_sizes: Vec::new(),
        };
        let mut parameters = Vec::new();
        let mut examples = Vec::new();
        for (tree, name) in trees.iter().zip(&names) {
            self.declare_records(tree);
            let variable = self.fresh(name);
            let ty = match tree {
                Pytree::Record(class, _) => TypeExpr::Class(class.clone()),
                _ => TypeExpr::Any,
            };
            let mut parameter = self.parameter(&variable, ty);
            let value = self.variable(&variable);
            inputs.keys = vec![name.clone()];
            let example = self.input(&variable, value, tree, &mut inputs, scope, body)?;
            if let InputSpec::Constant(constant) = &example {
                parameter.default = Some(self.constant(constant));
            }
            parameters.push(parameter);
            examples.push(example);
        }
        for (name, axis, size, expr) in std::mem::take(&mut inputs.later) {
            let wanted = self.size_value(&expr, &inputs.names, body)?;
            let statement = self.require_size(&name, axis, size, "aten::eq", wanted, "exactly");
            body.push(statement);
        }
        let conditions = program.guards_code.as_deref().unwrap_or_default();
        self.guards(conditions, &inputs.names, body)?;
        Ok(FunctionInputs {
            parameters,
            examples,
            symbolic_sizes: inputs.symbolic_sizes,
        })
    }

    /// The user's inputs of the graph. Defines the weights in the scope.
    fn leaves<'a>(
        &self,
        program: &'a SerializedProgram,
        scope: &mut Scope,
    ) -> Result<Vec<Leaf<'a>>> {
        let module = &program.graph_module;
        let mut leaves = Vec::new();
        for spec in &module.signature.input_specs {
            match spec {
                SerializedInput::Parameter {
                    arg,
                    parameter_name: path,
                }
                | SerializedInput::Buffer {
                    arg,
                    buffer_name: path,
                }
                | SerializedInput::TensorConstant {
                    arg,
                    tensor_constant_name: path,
                } => {
                    scope.insert(arg.name.clone(), self.weight(path));
                }
                SerializedInput::UserInput { arg } => leaves.push(match arg {
                    SerializedArgument::Tensor(name) => {
                        let meta = module.graph.tensor_values.get(name);
                        let missing = || Error::format(format!("the input {name} has no type"));
                        Leaf::Tensor(name, meta.ok_or_else(missing)?)
                    }
                    other => Leaf::Constant(name_of(other), constant(other)?),
                }),
                SerializedInput::ConstantInput { name, value } => {
                    leaves.push(Leaf::Constant(Some(name), constant(value)?));
                }
                SerializedInput::CustomObj { custom_obj_name } => {
                    let message = format!("the object {custom_obj_name} of a TorchScript class");
                    return Err(Error::unsupported(message));
                }
                SerializedInput::Token {} => {
                    return Err(Error::unsupported("a program with ordered effects"));
                }
            }
        }
        Ok(leaves)
    }

    /// Takes a value of the user apart: defines the inputs of the graph in it, and adds checks. Returns an example.
    fn input(
        &mut self,
        name: &str,
        value: AstExpr,
        tree: &Pytree,
        inputs: &mut Inputs<'_>,
        scope: &mut Scope,
        body: &mut Vec<Stmt>,
    ) -> Result<InputSpec> {
        let numbered = |items: &[Pytree]| {
            let names = (0..items.len()).map(|index| index.to_string());
            names.zip(items.to_vec()).collect::<Vec<_>>()
        };
        let (items, is_dict) = match tree {
            Pytree::Leaf => return self.leaf(name, value, inputs, scope, body),
            Pytree::Tuple(items) | Pytree::List(items) => (numbered(items), false),
            Pytree::Dict(items) => (items.clone(), true),
            Pytree::Record(_, items) => (items.clone(), false),
        };
        let mut specs = Vec::new();
        for (index, (key, item)) in items.iter().enumerate() {
            let (position, part) = match is_dict {
                true => (self.text(key.as_str()), key.clone()),
                false => (self.int(index as i64), index.to_string()),
            };
            let element = AstExprKind::Subscript(Box::new(value.clone()), Box::new(position));
            let element = self.expr(element);
            inputs.keys.push(key.clone());
            let spec = self.input(
                &format!("{name}_{part}"),
                element,
                item,
                inputs,
                scope,
                body,
            )?;
            inputs.keys.pop();
            specs.push((key.clone(), spec));
        }
        let values = || specs.iter().map(|(_, spec)| spec.clone()).collect();
        Ok(match tree {
            Pytree::Dict(_) => InputSpec::Dict(specs),
            Pytree::List(_) => InputSpec::List(values()),
            _ => InputSpec::Tuple(values()),
        })
    }

    /// Defines an input of the graph.
    fn leaf(
        &mut self,
        name: &str,
        value: AstExpr,
        inputs: &mut Inputs<'_>,
        scope: &mut Scope,
        body: &mut Vec<Stmt>,
    ) -> Result<InputSpec> {
        let missing = || Error::format("the program has fewer inputs than its structure says");
        match inputs.leaves.next().ok_or_else(missing)? {
            Leaf::Constant(placeholder, constant) => {
                let literal = self.constant(&constant);
                let operator = match constant {
                    TreeConstant::None => "aten::__is__",
                    _ => "aten::eq",
                };
                let condition = self.call(operator, [value, literal.clone()]);
                let value = constant_text(&constant);
                let message = format!("the program was exported for {name} = {value} only");
                body.push(self.require_input(condition, &message, CONSTANT_HELP, Vec::new()));
                inputs.add(&literal);
                if let Some(placeholder) = placeholder {
                    scope.insert(placeholder.to_string(), literal);
                }
                Ok(InputSpec::Constant(constant))
            }
            Leaf::Tensor(placeholder, meta) => {
                let tensor = match value.kind {
                    AstExprKind::Name(_) => value,
                    _ => {
                        let variable = self.fresh(placeholder);
                        body.push(self.assign(variable.clone(), value));
                        self.variable(&variable)
                    }
                };
                scope.insert(placeholder.to_string(), tensor.clone());
                inputs.add(&tensor);
                self.sizes(name, &tensor, meta, inputs, body)
            }
        }
    }

    /// Adds the conditions on the sizes of an input. Returns the input's type.
    fn sizes(
        &mut self,
        name: &str,
        tensor: &AstExpr,
        meta: &TensorMeta,
        inputs: &mut Inputs<'_>,
        body: &mut Vec<Stmt>,
    ) -> Result<InputSpec> {
        let mut example = Vec::new();
        for (axis, size) in meta.sizes.iter().enumerate() {
            let actual = self.call("aten::size", [tensor.clone(), self.int(axis as i64)]);
            let (text, hint) = match size {
                Symbolic::Known(size) => {
                    example.push(*size);
                    let wanted = self.int(*size);
                    body.push(self.require_size(name, axis, actual, "aten::eq", wanted, "exactly"));
                    continue;
                }
                Symbolic::Named(text) => (text, None),
                Symbolic::Expression(text, hint) => (text, *hint),
            };
            example.push(hint.unwrap_or(DEFAULT_SIZE).max(1));
            inputs.symbolic_sizes.push((name.to_string(), axis));
            match SizeExpr::parse(text)? {
                SizeExpr::Symbol(symbol) if !inputs.names.symbols.contains_key(&symbol) => {
                    self.define_symbol(name, axis, actual, symbol, inputs, body);
                }
                expr => inputs.later.push((name.to_string(), axis, actual, expr)),
            }
        }
        let dtype = codes::dtype(meta.dtype)?;
        Ok(InputSpec::Tensor(TensorType::new(dtype, example)))
    }

    /// Defines a symbol as a size of an input, and checks its range.
    fn define_symbol(
        &mut self,
        name: &str,
        axis: usize,
        size: AstExpr,
        symbol: String,
        inputs: &mut Inputs<'_>,
        body: &mut Vec<Stmt>,
    ) {
        let variable = self.fresh(&symbol);
        body.push(self.assign(variable.clone(), size));
        let size = self.variable(&variable);
        let range = inputs.ranges.get(&symbol);
        let min = range.and_then(|range| range.min_val);
        let max = range.and_then(|range| range.max_val);
        for (bound, operator, relation) in [
            (
                min.filter(|min| SMALLEST_BOUND <= *min),
                "aten::ge",
                "at least",
            ),
            (max, "aten::le", "at most"),
        ] {
            if let Some(bound) = bound {
                let bound = self.int(bound);
                body.push(self.require_size(name, axis, size.clone(), operator, bound, relation));
            }
        }
        inputs.names.symbols.insert(symbol, size);
    }

    /// A statement that refuses an input whose size does not fit.
    fn require_size(
        &self,
        name: &str,
        axis: usize,
        size: AstExpr,
        operator: &str,
        wanted: AstExpr,
        relation: &str,
    ) -> Stmt {
        let template = format!(
            "{name} has size {{}} along axis {axis}, but the program was exported for {relation} {{}}"
        );
        let condition = self.call(operator, [size.clone(), wanted.clone()]);
        let help = format!(
            "export it for other sizes: torch.export.export(model, args, \
             dynamic_shapes={{\"{name}\": {{{axis}: torch.export.Dim.AUTO}}}})"
        );
        self.require_input(condition, &template, &help, vec![size, wanted])
    }

    /// A statement that refuses the inputs unless a condition holds. Each `{}` of the message stands for a number.
    pub(super) fn require_input(
        &self,
        condition: AstExpr,
        message: &str,
        help: &str,
        numbers: Vec<AstExpr>,
    ) -> Stmt {
        let arguments = [vec![self.text(message), self.text(help)], numbers].concat();
        let refuse = self.call("prim::RefuseInput", arguments);
        self.statement(StmtKind::If {
            condition,
            then: Vec::new(),
            otherwise: vec![self.statement(StmtKind::Evaluate(refuse))],
        })
    }

    /// A constant as a literal.
    fn constant(&self, constant: &TreeConstant) -> AstExpr {
        self.expr(match constant {
            TreeConstant::None => AstExprKind::None,
            TreeConstant::Number(Scalar::Bool(value)) => AstExprKind::Bool(*value),
            TreeConstant::Number(Scalar::Int(value)) => AstExprKind::Int(*value),
            TreeConstant::Number(Scalar::Float(value)) => AstExprKind::Float(*value),
            TreeConstant::Str(text) => AstExprKind::Str(text.clone()),
        })
    }
}

/// Help for an input of Python that has another value.
const CONSTANT_HELP: &str = "torch.export fixes numbers, strings and None among the arguments: export the module again for this \
    value, or give the number as a tensor";

/// Example of a size of which the program has none.
const DEFAULT_SIZE: i64 = 2;

/// The value of an input of Python.
fn constant(argument: &SerializedArgument) -> Result<TreeConstant> {
    Ok(match argument {
        SerializedArgument::None => TreeConstant::None,
        SerializedArgument::Int(Symbolic::Known(value)) => {
            TreeConstant::Number(Scalar::Int(*value))
        }
        SerializedArgument::Float(Symbolic::Known(value)) => {
            TreeConstant::Number(Scalar::Float(value.0))
        }
        SerializedArgument::Bool(Symbolic::Known(value)) => {
            TreeConstant::Number(Scalar::Bool(*value))
        }
        SerializedArgument::Str(text) => TreeConstant::Str(text.clone()),
        _ => {
            let help = "give the number as a tensor, or fix it: torch.export.export(model, args) without dynamic_shapes for it";
            return Err(Error::unsupported("a number among the inputs that may vary").help(help));
        }
    })
}

fn constant_text(constant: &TreeConstant) -> String {
    match constant {
        TreeConstant::None => "None".to_string(),
        TreeConstant::Number(number) => number.to_string(),
        TreeConstant::Str(text) => format!("{text:?}"),
    }
}

/// The positional and keyword parameters in a tree of arguments, with their names.
fn parameters_of(
    tree: Pytree,
    names: Option<&[String]>,
    leaves: &[Leaf<'_>],
) -> Result<(Vec<Pytree>, Vec<String>)> {
    let Pytree::Tuple(halves) = tree else {
        return Err(Error::format("the structure of the inputs is no tuple"));
    };
    let (positional, keywords) = match <[Pytree; 2]>::try_from(halves) {
        Ok([Pytree::Tuple(positional), Pytree::Dict(keywords)]) => (positional, keywords),
        _ => {
            let message = "the structure of the inputs has other parts than arguments and keywords";
            return Err(Error::format(message));
        }
    };
    let mut given = Vec::new();
    let mut position = 0;
    for (index, tree) in positional.iter().enumerate() {
        let known = names.and_then(|names| names.get(index)).cloned();
        let placeholder = leaves.get(position).and_then(|leaf| match (leaf, tree) {
            (Leaf::Tensor(name, _) | Leaf::Constant(Some(name), _), Pytree::Leaf) => Some(*name),
            _ => None,
        });
        let name = known.or_else(|| placeholder.map(str::to_string));
        given.push(name.unwrap_or_else(|| format!("arg{index}")));
        position += tree.leaf_count();
    }
    let (keys, trees): (Vec<String>, Vec<Pytree>) = keywords.into_iter().unzip();
    Ok(([positional, trees].concat(), [given, keys].concat()))
}

fn names_of_leaves(leaves: &[Leaf<'_>]) -> Vec<String> {
    let name = |(index, leaf): (usize, &Leaf<'_>)| match leaf {
        Leaf::Tensor(name, _) | Leaf::Constant(Some(name), _) => name.to_string(),
        Leaf::Constant(None, _) => format!("arg{index}"),
    };
    leaves.iter().enumerate().map(name).collect()
}
