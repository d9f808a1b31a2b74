use serde_json::Value as Json;

use crate::dim::Bindings;
use crate::error::{Error, Result, SourcePlace};
use crate::shape::TensorType;
use crate::symbols::{Guard, Relation};

use super::scan::Scanner;
use crate::ir::assembler::{GraphAssembler, WeightTypes, is_symbol, primitive};
use crate::ir::dictionary::Dictionary;
use crate::ir::graph::{Argument, Graph, GraphModule, ModuleState, Op, Region, ValueId};
use crate::ir::tree::{NamedTree, TreeSpec};
use crate::ir::verify::MAX_DEPTH;

/// Parses graphs, and the types of their weights in front of them. The returned module has no weights.
pub fn parse_module(text: &str, dictionary: &dyn Dictionary) -> Result<GraphModule> {
    let mut parser = Parser {
        scanner: Scanner::new(text),
        dictionary,
        weights: WeightTypes::new(),
        depth: 0,
    };
    let mut module = GraphModule::default();
    loop {
        parser.scanner.skip_blank();
        match parser.scanner.peek() {
            None => break,
            _ if parser.scanner.eat("weight ") => parser.weight()?,
            _ if parser.scanner.eat("state ") => module.states.push(parser.state()?),
            _ => module.graphs.push(parser.graph()?),
        }
    }
    Ok(module)
}

/// Parses one graph.
pub fn parse_graph(text: &str, dictionary: &dyn Dictionary) -> Result<Graph> {
    let mut graphs = parse_module(text, dictionary)?.graphs;
    match (graphs.pop(), graphs.len()) {
        (Some(graph), 0) => Ok(graph),
        (None, _) => Err(Error::format("there is no graph")),
        (_, others) => Err(Error::format(format!("there are {} graphs", others + 1))),
    }
}

pub(super) struct Parser<'a> {
    pub(super) scanner: Scanner<'a>,
    dictionary: &'a dyn Dictionary,
    weights: WeightTypes,
    /// Nesting depth of graphs, lists and trees at the position.
    depth: usize,
}

/// Operation, arguments and place of a node.
type ParsedNode = (Op, Vec<Argument>, SourcePlace);

/// The lines in front of the nodes.
#[derive(Default)]
struct GraphHeader {
    hints: Bindings,
    guards: Vec<Guard>,
    arguments: Vec<NamedTree>,
    result: Option<TreeSpec>,
    reads: Vec<NamedTree>,
    writes: Vec<NamedTree>,
}

impl<'a> Parser<'a> {
    fn weight(&mut self) -> Result<()> {
        let name = self.scanner.name()?;
        self.scanner.expect(":")?;
        let ty = self.scanner.tensor_type()?;
        self.weights.insert(name, ty);
        Ok(())
    }

    /// `state h = #0 of $h`, `state count = 0`
    fn state(&mut self) -> Result<ModuleState> {
        let NamedTree {
            name,
            tree: initial,
        } = self.named_tree()?;
        let mut weights = Vec::new();
        if self.scanner.eat("of ") {
            self.scanner.expect("$")?;
            weights.push(self.scanner.name()?);
            while self.scanner.eat(",") {
                self.scanner.expect("$")?;
                weights.push(self.scanner.name()?);
            }
        }
        Ok(ModuleState {
            name,
            initial,
            weights,
        })
    }

    fn named_tree(&mut self) -> Result<NamedTree> {
        let name = self.scanner.name()?;
        self.scanner.expect("=")?;
        let tree = self.nested(Parser::tree)?;
        Ok(NamedTree { name, tree })
    }

    /// Parses one level deeper; an error beyond the maximal depth.
    pub(super) fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Parser<'a>) -> Result<T>,
    ) -> Result<T> {
        if MAX_DEPTH < self.depth {
            let here = self.scanner.position();
            return Err(self.scanner.error_at(here, "this is nested too deeply"));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    fn graph(&mut self) -> Result<Graph> {
        self.scanner.expect("graph")?;
        let start = self.scanner.position();
        let name = self.scanner.name()?;
        let inputs = self.inputs()?;
        let outputs = self.output_types()?;
        self.scanner.expect("{")?;
        let properties = self.properties()?;
        let weights = self.weights.clone();
        let GraphHeader { hints, guards, .. } = properties;
        let assembler =
            GraphAssembler::new(&name, inputs, hints, guards, &weights, self.dictionary);
        let mut assembler = self.scanner.locate(start, assembler)?;
        let returned = self.nodes(&mut assembler)?;
        let mut graph = assembler.finish(returned);
        let found: Vec<&TensorType> = graph.outputs.iter().map(|id| graph.ty(*id)).collect();
        if outputs.is_some_and(|outputs| !outputs.iter().eq(found)) {
            let message = "the output types differ from those in the graph's header";
            return Err(self.scanner.error_at(start, message));
        }
        graph.input_trees = properties.arguments;
        graph.output_tree = properties.result;
        (graph.reads, graph.writes) = (properties.reads, properties.writes);
        if self.depth == 0 {
            graph.complete_signature();
        }
        Ok(graph)
    }

    fn inputs(&mut self) -> Result<Vec<(String, TensorType)>> {
        let (inputs, _) = self.items("(", ")", &mut |parser| {
            let name = parser.value_name()?;
            parser.scanner.expect(":")?;
            Ok((name, parser.scanner.tensor_type()?))
        })?;
        Ok(inputs)
    }

    /// `-> f32[2]`, `-> (f32[2], i64[2])`, or nothing.
    fn output_types(&mut self) -> Result<Option<Vec<TensorType>>> {
        if !self.scanner.eat("->") {
            return Ok(None);
        }
        if !self.scanner.eat("(") {
            return Ok(Some(vec![self.scanner.tensor_type()?]));
        }
        let mut types = Vec::new();
        while !self.scanner.eat(")") {
            types.push(self.scanner.tensor_type()?);
            if !self.scanner.eat(",") && self.scanner.peek() != Some(')') {
                return Err(self.scanner.expected("\",\" or \")\""));
            }
        }
        Ok(Some(types))
    }

    fn properties(&mut self) -> Result<GraphHeader> {
        let mut properties = GraphHeader::default();
        loop {
            self.scanner.skip_blank();
            let start = self.scanner.position();
            let word = self.scanner.word();
            let defines = matches!(self.scanner.peek(), Some(':' | ',' | '='));
            match word {
                Some("size") if !defines => self.size_line(&mut properties.hints)?,
                Some("guard") if !defines => properties.guards.push(self.guard()?),
                Some("argument") if !defines => properties.arguments.push(self.named_tree()?),
                Some("reads") if !defines => properties.reads.push(self.named_tree()?),
                Some("writes") if !defines => properties.writes.push(self.named_tree()?),
                Some("result") if !defines => properties.result = Some(self.nested(Parser::tree)?),
                _ => {
                    self.scanner.go_back(start);
                    return Ok(properties);
                }
            }
            self.end_of_line()?;
        }
    }

    fn size_line(&mut self, hints: &mut Bindings) -> Result<()> {
        let start = self.scanner.position();
        let name = self.scanner.name()?.into();
        if !is_symbol(&name) {
            let message = format!("{name:?} is not a valid name of a size");
            return Err(self.scanner.error_at(start, message));
        }
        self.scanner.expect("=")?;
        hints.insert(name, self.scanner.integer()?);
        Ok(())
    }

    fn guard(&mut self) -> Result<Guard> {
        let left = self.scanner.dim("=!<@")?;
        let relation = if self.scanner.eat("==") {
            Relation::Equal
        } else if self.scanner.eat("!=") {
            Relation::NotEqual
        } else if self.scanner.eat("<=") {
            Relation::LessEqual
        } else {
            return Err(self.scanner.expected("\"==\", \"!=\" or \"<=\""));
        };
        let right = self.scanner.dim("@")?;
        let place = self.scanner.place()?;
        Ok(Guard {
            left,
            relation,
            right,
            place,
        })
    }

    fn end_of_line(&mut self) -> Result<()> {
        match self.scanner.peek() {
            None | Some('\n' | '}') => Ok(()),
            _ => Err(self.scanner.expected("the end of the line")),
        }
    }

    /// Parses nodes up to the returned values.
    fn nodes(&mut self, assembler: &mut GraphAssembler) -> Result<Vec<ValueId>> {
        loop {
            self.scanner.skip_blank();
            let start = self.scanner.position();
            let word = self.scanner.word();
            let defines = matches!(self.scanner.peek(), Some(':' | ',' | '='));
            if word == Some("return") && !defines {
                let mut returned = Vec::new();
                while !matches!(self.scanner.peek(), None | Some('\n' | '}')) {
                    returned.push(self.value(assembler)?);
                    if !self.scanner.eat(",") {
                        break;
                    }
                }
                self.scanner.skip_blank();
                self.scanner.expect("}")?;
                return Ok(returned);
            }
            self.scanner.go_back(start);
            if matches!(self.scanner.peek(), None | Some('}')) {
                return Err(self.scanner.expected("a node or \"return\""));
            }
            self.node(assembler)?;
            self.end_of_line()?;
        }
    }

    fn node(&mut self, assembler: &mut GraphAssembler) -> Result<()> {
        let start = self.scanner.position();
        let mut results = Vec::new();
        while !self.scanner.eat("=") {
            let name = self.value_name()?;
            let ty = match self.scanner.eat(":") {
                true => Some(self.scanner.tensor_type()?),
                false => None,
            };
            results.push((name, ty));
            if !self.scanner.eat(",") && self.scanner.peek() != Some('=') {
                return Err(self.scanner.expected("\":\", \",\" or \"=\""));
            }
        }
        let name = self.scanner.name()?;
        let (op, arguments, place) = match name.as_str() {
            "if" | "loop" | "call" => self.region(&name, assembler)?,
            _ => self.step(&name, assembler)?,
        };
        let added = assembler.node(op, arguments, results, place);
        self.scanner.locate(start, added)
    }

    /// Parses a primitive or a call.
    fn step(&mut self, name: &str, assembler: &mut GraphAssembler) -> Result<ParsedNode> {
        let start = self.scanner.position();
        if let Some(parameters) = self.dictionary.parameters(name) {
            let arguments = self.call(name, &parameters, assembler)?;
            return Ok((Op::Call(name.into()), arguments, self.scanner.place()?));
        }
        let operands = self.operands(assembler)?;
        let primitive = match primitive(name, operands.attributes) {
            Some(primitive) => self.scanner.locate(start, primitive)?,
            None => {
                let message = format!("there is no operator {name}");
                return Err(self.scanner.error_at(start, message));
            }
        };
        let place = self.scanner.place()?;
        Ok((Op::Primitive(primitive), operands.arguments, place))
    }

    fn region(&mut self, name: &str, assembler: &mut GraphAssembler) -> Result<ParsedNode> {
        let start = self.scanner.position();
        let mut operands = self.operands(assembler)?;
        let place = self.scanner.place()?;
        self.scanner.expect("{")?;
        let mut bodies = Vec::new();
        loop {
            self.scanner.skip_blank();
            if self.scanner.eat("}") {
                break;
            }
            bodies.push(self.nested(Parser::graph)?);
        }
        let carried = operands.attributes.remove("carried");
        let carried = carried.as_ref().and_then(Json::as_u64);
        let carried = carried.and_then(|carried| usize::try_from(carried).ok());
        let count = bodies.len();
        let mut bodies = bodies.into_iter();
        let region = match (name, count, bodies.next(), bodies.next(), carried) {
            ("if", 2, Some(then), Some(otherwise), None) => Region::If { then, otherwise },
            ("loop", 1, Some(body), None, Some(carried)) => Region::Loop { body, carried },
            ("call", 1, Some(body), None, None) => Region::Call { body },
            _ => {
                let message = "an if has two graphs, a loop has one and carried=…, a call has one";
                return Err(self.scanner.error_at(start, message));
            }
        };
        Ok((Op::Region(Box::new(region)), operands.arguments, place))
    }

    /// The name of a defined value: a word, or `%` and a word or quoted text.
    fn value_name(&mut self) -> Result<String> {
        if self.scanner.eat("%") {
            return self.scanner.name();
        }
        let word = self.scanner.word().map(str::to_string);
        word.ok_or_else(|| self.scanner.expected("a name"))
    }

    pub(super) fn value(&mut self, assembler: &mut GraphAssembler) -> Result<ValueId> {
        let is_weight = self.scanner.eat("$");
        let start = self.scanner.position();
        let found = if is_weight {
            assembler.weight(&self.scanner.name()?)
        } else {
            assembler.value(&self.value_name()?)
        };
        self.scanner.locate(start, found)
    }
}
