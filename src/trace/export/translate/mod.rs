//! Translation of a serialised graph to a function of a script.
//!
//! A node becomes a statement that calls an operator. Inputs become parameters, whose structure is taken apart; weights become
//! attributes of the root module. Higher-order operators become conditions and loops, with the statements of their graphs
//! within (`control`). Assertions become conditions that raise (`checks`). The offset of a statement is the index of its place.

mod arguments;
mod autocast;
mod checks;
mod control;
mod inputs;
mod linear_cross_entropy;
mod results;
mod scalars;
mod sizes;
mod vmap;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use self::vmap::VmapNode;
use super::node_places::NodePlaces;
use super::pytree::Pytree;
use super::schema::{SerializedArgument, SerializedGraph, SerializedNode, SerializedProgram};
use crate::error::{Error, Result};
use crate::trace::program::InputSpec;
use crate::trace::script::ast::{
    AstExpr, AstExprKind, CallExpr, Callee, FunctionDef, ParameterDef, Stmt, StmtKind, TypeExpr,
};

/// A program as a function.
#[derive(Debug)]
pub struct TranslatedProgram {
    /// The method that runs the graph.
    pub function: FunctionDef,
    /// Examples of its arguments.
    pub examples: Vec<InputSpec>,
    /// Sizes of inputs that may vary, each by the name of the input and its axis.
    pub symbolic_sizes: Vec<(String, usize)>,
    /// Named tuples and dataclasses among the arguments and results: their fields by class.
    pub records: BTreeMap<String, Vec<String>>,
    /// Places of the statements.
    pub places: NodePlaces,
}

/// Translates a program. `method` is the name of the function, `document` that of its record. The weights are attributes of
/// the module at the path `root`.
///
/// # Errors
/// The document is damaged, or has inputs that are not supported.
pub fn translate(
    program: &SerializedProgram,
    method: &str,
    document: &str,
    root: &[&str],
) -> Result<TranslatedProgram> {
    let mut translator = Translator {
        places: NodePlaces::default(),
        offset: 0,
        root: root.iter().map(|name| name.to_string()).collect(),
        variables: HashSet::from(["self".to_string()]),
        records: BTreeMap::new(),
        vmap_depth: 0,
        autocast: None,
    };
    translator.offset = translator.places.nowhere();
    let mut scope = Scope::default();
    let mut body = Vec::new();
    let inputs = translator.inputs(program, &mut scope, &mut body)?;
    let graph = &program.graph_module.graph;
    translator.nodes(graph, &mut scope, &mut body)?;
    translator.offset = translator.places.nowhere();
    translator.results(program, &scope, &mut body)?;
    let receiver = translator.parameter("self", TypeExpr::Any);
    Ok(TranslatedProgram {
        function: FunctionDef {
            name: method.to_string(),
            parameters: std::iter::once(receiver).chain(inputs.parameters).collect(),
            returns: TypeExpr::Any,
            body,
            file: Arc::from(document),
            offset: 0,
        },
        examples: inputs.examples,
        symbolic_sizes: inputs.symbolic_sizes,
        records: translator.records,
        places: translator.places,
    })
}

/// The values of a graph's names: variables, or attributes for weights.
type Scope = HashMap<String, AstExpr>;

/// A translation in progress.
struct Translator {
    places: NodePlaces,
    /// Index of the place of the statements that are added.
    offset: usize,
    /// Path of the module that has the weights.
    root: Vec<String>,
    /// Names of the function's variables. Each graph has names of its own, which may be equal.
    variables: HashSet<String>,
    records: BTreeMap<String, Vec<String>>,
    /// Number of calls of `torch.vmap` around the statements.
    vmap_depth: usize,
    /// Element type of the `torch.autocast` region around the statements, by its TorchScript code.
    autocast: Option<i64>,
}

impl Translator {
    /// Adds the statements of a graph's nodes.
    fn nodes(
        &mut self,
        graph: &SerializedGraph,
        scope: &mut Scope,
        body: &mut Vec<Stmt>,
    ) -> Result<()> {
        let mut rest = graph.nodes.as_slice();
        while let Some((node, after)) = rest.split_first() {
            rest = self.node_at(node, after, graph, scope, body)?;
        }
        Ok(())
    }

    /// Adds the statements of a node, or of the call of `torch.vmap` that it begins. Returns the nodes that follow, of those
    /// after it.
    fn node_at<'a>(
        &mut self,
        node: &SerializedNode,
        after: &'a [SerializedNode],
        graph: &SerializedGraph,
        scope: &mut Scope,
        body: &mut Vec<Stmt>,
    ) -> Result<&'a [SerializedNode]> {
        let outer = self.offset;
        self.offset = self.places.of_node(&node.metadata);
        let rest = match VmapNode::of(node) {
            Some(VmapNode::Begin) => self.vmap(node, after, graph, scope, body)?,
            Some(VmapNode::Preparation) => after,
            _ => {
                self.node(node, scope, body)?;
                after
            }
        };
        self.offset = outer;
        Ok(rest)
    }

    /// Adds the statements of a node.
    fn node(
        &mut self,
        node: &SerializedNode,
        scope: &mut Scope,
        body: &mut Vec<Stmt>,
    ) -> Result<()> {
        if let Some(name) = higher_order_name(&node.target) {
            return self.higher_order(name, node, scope, body);
        }
        if self.check(node, scope, body)? {
            return Ok(());
        }
        let value = match operator_name(&node.target) {
            Some(name) => match self.linear_cross_entropy(&name, node, scope)? {
                Some(value) => value,
                None => self.operator_call(&name, node, scope)?,
            },
            None => self.scalar_call(node, scope, body)?,
        };
        self.bind(&node.outputs, value, scope, body)
    }

    /// Assigns the results of a node to variables.
    fn bind(
        &mut self,
        outputs: &[SerializedArgument],
        value: AstExpr,
        scope: &mut Scope,
        body: &mut Vec<Stmt>,
    ) -> Result<()> {
        let kind = match outputs {
            [] => StmtKind::Evaluate(value),
            [SerializedArgument::Tensors(names)] => self.unpack(names, value, scope),
            [single] => StmtKind::Assign {
                name: self.result(single, scope)?,
                ty: None,
                value,
            },
            several => {
                let mut names = Vec::new();
                let mut lists = Vec::new();
                for output in several {
                    names.push(match output {
                        SerializedArgument::Tensors(items) => {
                            let list = self.fresh("list");
                            lists.push((list.clone(), items));
                            list
                        }
                        single => self.result(single, scope)?,
                    });
                }
                body.push(self.statement(StmtKind::Unpack { names, value }));
                for (list, items) in lists {
                    let value = self.variable(&list);
                    let unpack = self.unpack(items, value, scope);
                    body.push(self.statement(unpack));
                }
                return Ok(());
            }
        };
        body.push(self.statement(kind));
        Ok(())
    }

    /// Unpacks a list into variables.
    fn unpack(&mut self, names: &[String], value: AstExpr, scope: &mut Scope) -> StmtKind {
        let names = names.iter().map(|name| self.define(name, scope)).collect();
        StmtKind::Unpack { names, value }
    }

    /// The variable of a result.
    fn result(&mut self, output: &SerializedArgument, scope: &mut Scope) -> Result<String> {
        use super::schema::Symbolic;
        Ok(match output {
            SerializedArgument::Tensor(name)
            | SerializedArgument::Int(Symbolic::Named(name))
            | SerializedArgument::Float(Symbolic::Named(name))
            | SerializedArgument::Bool(Symbolic::Named(name)) => self.define(name, scope),
            // A result that nothing reads, or one whose value was known.
            SerializedArgument::None
            | SerializedArgument::Int(_)
            | SerializedArgument::Float(_)
            | SerializedArgument::Bool(_) => self.fresh("unused"),
            _ => return Err(Error::unsupported("a result of this kind")),
        })
    }

    /// Defines a name of a graph as a variable. Returns the variable.
    fn define(&mut self, name: &str, scope: &mut Scope) -> String {
        let variable = self.fresh(name);
        scope.insert(name.to_string(), self.variable(&variable));
        variable
    }

    /// A variable that is not used yet, named like `name`.
    fn fresh(&mut self, name: &str) -> String {
        let mut variable = name.to_string();
        let mut number = 0;
        while !self.variables.insert(variable.clone()) {
            number += 1;
            variable = format!("{name}_{number}");
        }
        variable
    }

    fn statement(&self, kind: StmtKind) -> Stmt {
        Stmt {
            offset: self.offset,
            kind,
        }
    }

    fn assign(&self, name: String, value: AstExpr) -> Stmt {
        self.statement(StmtKind::Assign {
            name,
            ty: None,
            value,
        })
    }

    fn expr(&self, kind: AstExprKind) -> AstExpr {
        AstExpr {
            offset: self.offset,
            kind,
        }
    }

    fn variable(&self, name: &str) -> AstExpr {
        self.expr(AstExprKind::Name(name.to_string()))
    }

    fn int(&self, value: i64) -> AstExpr {
        self.expr(AstExprKind::Int(value))
    }

    fn text(&self, text: impl Into<String>) -> AstExpr {
        self.expr(AstExprKind::Str(text.into()))
    }

    /// A call of an operator with positional arguments.
    fn call(&self, operator: &str, arguments: impl Into<Vec<AstExpr>>) -> AstExpr {
        self.call_with(operator, arguments.into(), Vec::new())
    }

    fn call_with(
        &self,
        operator: &str,
        arguments: Vec<AstExpr>,
        keywords: Vec<(String, AstExpr)>,
    ) -> AstExpr {
        self.expr(AstExprKind::Call(Box::new(CallExpr {
            callee: Callee::Operator(operator.to_string()),
            arguments,
            keywords,
        })))
    }

    fn parameter(&self, name: &str, ty: TypeExpr) -> ParameterDef {
        ParameterDef {
            name: name.to_string(),
            ty,
            default: None,
        }
    }

    /// The expression of a weight: an attribute of a module.
    fn weight(&self, path: &str) -> AstExpr {
        let root = self.root.iter().map(String::as_str);
        root.chain(path.split('.'))
            .fold(self.variable("self"), |object, name| {
                self.expr(AstExprKind::Attribute(Box::new(object), name.to_string()))
            })
    }

    /// Remembers the named tuples and dataclasses in a structure.
    fn declare_records(&mut self, tree: &Pytree) {
        match tree {
            Pytree::Leaf => {}
            Pytree::Tuple(items) | Pytree::List(items) => {
                items.iter().for_each(|item| self.declare_records(item));
            }
            Pytree::Dict(items) => items
                .iter()
                .for_each(|(_, item)| self.declare_records(item)),
            Pytree::Record(class, fields) => {
                let names = fields.iter().map(|(name, _)| name.clone()).collect();
                self.records.insert(class.clone(), names);
                fields
                    .iter()
                    .for_each(|(_, item)| self.declare_records(item));
            }
        }
    }
}

/// `cond` for `torch.ops.higher_order.cond`; old releases write `torch.ops.map_impl` and
/// `torch._higher_order_ops.wrap.wrap_with_set_grad_enabled` as well.
fn higher_order_name(target: &str) -> Option<&str> {
    let old = || {
        target
            .strip_prefix("torch._higher_order_ops.")?
            .rsplit('.')
            .next()
    };
    let oldest = || {
        target
            .strip_prefix("torch.ops.")
            .filter(|name| !name.contains('.'))
    };
    let name = target.strip_prefix("torch.ops.higher_order.");
    name.or_else(old).or_else(oldest)
}

/// `aten::linear` for `torch.ops.aten.linear.default`; none for functions of Python.
fn operator_name(target: &str) -> Option<String> {
    let (namespace, rest) = target.strip_prefix("torch.ops.")?.split_once('.')?;
    let name = rest.split('.').next()?;
    Some(format!("{namespace}::{name}"))
}
