//! Emits statements of a kernel as readable WGSL. Each shared expression is computed once, as early as its variables allow.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use super::expr::{Expr, ExprNode, ExprPool, WgslType};
use super::names::unique;
use crate::dim::Dim;

mod binding;
mod names;
mod source;

pub use binding::BindingDecl;
use names::{IndexRoles, size_name};
use source::{ExprSource, literal_text, occurrences, substitute};

/// Expressions with longer source, in characters, are bound to a name.
const MAX_INLINE_LENGTH: usize = 72;

/// A statement of a kernel.
#[derive(Clone, Debug)]
pub enum Statement {
    /// `if condition { return; }`
    ReturnIf(Expr),
    /// `let name = value;`: an expression that is bound here, so that all following blocks can use the name.
    Let(Expr),
    /// `var name = value;`: a variable that [`Statement::Assign`] changes.
    Declare(Expr, Expr),
    /// `name = value;`
    Assign(Expr, Expr),
    /// From here on the variable does not change, so that expressions of it can be named.
    Freeze(Expr),
    /// `buffer[index] = value;`
    Store {
        /// Index of the buffer among the bindings.
        buffer: usize,
        /// Index of the element.
        index: Expr,
        /// Value, in the type of the buffer.
        value: Expr,
    },
    /// `array[index] = value;` for an array in workgroup memory.
    WorkgroupStore {
        /// Name of the array.
        array: &'static str,
        /// Index of the element.
        index: Expr,
        /// Value.
        value: Expr,
    },
    /// `for (var name = from; name < to; name += step)`
    Loop {
        /// The loop variable.
        variable: Expr,
        /// First value.
        from: Expr,
        /// End, exclusive.
        to: Expr,
        /// Increment.
        step: u32,
        /// Statements of the body.
        body: Vec<Statement>,
    },
    /// `if condition { … }`
    If(Expr, Vec<Statement>),
    /// `if condition { … } else { … }`
    IfElse(Expr, Vec<Statement>, Vec<Statement>),
    /// A block with a verbatim head.
    Block(String, Vec<Statement>),
    /// A verbatim line.
    Line(String),
}

impl Statement {
    /// The nested blocks of statements.
    pub fn blocks(&self) -> impl Iterator<Item = &[Statement]> {
        let (first, second): (&[Statement], &[Statement]) = match self {
            Statement::Loop { body, .. } | Statement::If(_, body) | Statement::Block(_, body) => {
                (body, &[])
            }
            Statement::IfElse(_, body, other) => (body, other),
            _ => (&[], &[]),
        };
        [first, second].into_iter()
    }
}

/// Emits the statements of a kernel's `main`.
pub struct Emitter<'a> {
    pool: &'a ExprPool,
    buffers: &'a [BindingDecl],
    lines: Vec<String>,
    indent: usize,
    uses: HashMap<Expr, usize>,
    sources: HashMap<Expr, ExprSource>,
    variables: HashMap<Expr, Rc<BTreeSet<Expr>>>,
    immutable: BTreeSet<Expr>,
    /// Buffers that the kernel stores to. What is loaded from them may change, as a mutable variable does.
    stored: BTreeSet<usize>,
    names: BTreeSet<String>,
    /// Index roles of expressions, from which names are derived.
    roles: IndexRoles,
    sizes: Vec<(Dim, String)>,
    /// Whether unknown integers are divided by way of floats.
    divides_by_floats: bool,
}

impl<'a> Emitter<'a> {
    /// Creates an emitter; `given` are the variables that the surrounding shader declares.
    pub fn new(pool: &'a ExprPool, buffers: &'a [BindingDecl], given: &[Expr]) -> Emitter<'a> {
        let mut names: BTreeSet<String> = buffers.iter().map(|b| b.name.clone()).collect();
        names.extend(["sizes", "main", "workgroup", "workgroups", "local"].map(String::from));
        Emitter {
            pool,
            buffers,
            lines: Vec::new(),
            indent: 1,
            uses: HashMap::new(),
            sources: HashMap::new(),
            variables: HashMap::new(),
            immutable: given.iter().copied().collect(),
            stored: BTreeSet::new(),
            names,
            roles: IndexRoles::default(),
            sizes: Vec::new(),
            divides_by_floats: false,
        }
    }

    /// Divides indices by sizes in floating point if `divides` is true, which is exact and faster on a rasteriser.
    pub fn dividing_by_floats(self, divides: bool) -> Emitter<'a> {
        Emitter {
            divides_by_floats: divides,
            ..self
        }
    }

    /// Emits statements. Returns the lines, and the sizes that the size buffer must hold.
    pub fn emit(mut self, statements: &[Statement]) -> (Vec<String>, Vec<Dim>) {
        self.find_stored(statements);
        let mut seen = BTreeSet::new();
        for root in roots(statements) {
            self.count_uses(root, &mut seen);
        }
        self.reserve_names(statements);
        self.roles = IndexRoles::of(self.pool, self.buffers, statements);
        self.block(statements);
        let mut lines: Vec<String> = Vec::new();
        for (index, (dim, name)) in self.sizes.iter().enumerate() {
            let field = ["x", "y", "z", "w"][index % 4];
            let comment = if dim.to_string() == *name {
                String::new()
            } else {
                format!(" // {dim}")
            };
            lines.push(format!(
                "    let {name} = sizes[{}].{field};{comment}",
                index / 4
            ));
        }
        lines.extend(self.lines);
        (lines, self.sizes.into_iter().map(|(dim, _)| dim).collect())
    }

    fn find_stored(&mut self, statements: &[Statement]) {
        for statement in statements {
            if let Statement::Store { buffer, .. } = statement {
                self.stored.insert(self.memory(*buffer));
            }
            for block in statement.blocks() {
                self.find_stored(block);
            }
        }
    }

    /// The first binding whose memory a buffer's elements lie in.
    fn memory(&self, buffer: usize) -> usize {
        let bound = self.buffers[buffer].vectors.unwrap_or(buffer);
        self.buffers[bound].alias_of.unwrap_or(bound)
    }

    /// Counts how often each expression is an operand. For vectors, counts each occurrence in a template, because each may
    /// be a load. Scalars are not bound for that reason: Mesa's compiler would then add three of them in another order.
    fn count_uses(&mut self, expr: Expr, seen: &mut BTreeSet<Expr>) {
        *self.uses.entry(expr).or_insert(0) += 1;
        if seen.insert(expr) {
            let pool = self.pool;
            for (place, operand) in pool.operands(expr).iter().enumerate() {
                self.count_uses(*operand, seen);
                if let (ExprNode::Call { template, .. }, 2..) =
                    (pool.node(expr), pool.ty(*operand).width())
                {
                    let more = occurrences(template, place).saturating_sub(1);
                    *self.uses.entry(*operand).or_insert(0) += more;
                }
            }
        }
    }

    /// Reserves the names of variables.
    fn reserve_names(&mut self, statements: &[Statement]) {
        for expr in roots(statements) {
            for variable in self.variables_of(expr).iter() {
                if let ExprNode::Variable(name) = self.pool.node(*variable) {
                    self.names.insert(name.clone());
                }
            }
        }
    }

    fn block(&mut self, statements: &[Statement]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::ReturnIf(condition) => {
                let condition = self.source(*condition).wgsl;
                self.line(format!("if {condition} {{ return; }}"));
            }
            Statement::Let(expr) => self.bind_here(*expr),
            Statement::Declare(variable, value) => {
                let value = self.source(*value).wgsl;
                let ty = self.pool.ty(*variable).wgsl();
                self.line(format!("var {}: {ty} = {value};", self.name(*variable)));
            }
            Statement::Assign(variable, value) => self.assign(*variable, *value),
            Statement::Freeze(variable) => {
                self.immutable.insert(*variable);
            }
            Statement::Store {
                buffer,
                index,
                value,
            } => {
                let (index, value) = (self.source(*index).wgsl, self.source(*value).wgsl);
                let name = &self.buffers[*buffer].name;
                self.line(format!("{name}[{index}] = {value};"));
            }
            Statement::WorkgroupStore {
                array,
                index,
                value,
            } => {
                let (index, value) = (self.source(*index).wgsl, self.source(*value).wgsl);
                self.line(format!("{array}[{index}] = {value};"));
            }
            Statement::Loop {
                variable,
                from,
                to,
                step,
                body,
            } => self.emit_loop(*variable, *from, *to, *step, body),
            Statement::If(condition, body) => {
                let condition = self.source(*condition).wgsl;
                self.line(format!("if {condition} {{"));
                self.emit_nested(body);
                self.line("}".to_string());
            }
            Statement::IfElse(condition, body, other) => {
                let condition = self.source(*condition).wgsl;
                self.line(format!("if {condition} {{"));
                self.emit_nested(body);
                self.line("} else {".to_string());
                self.emit_nested(other);
                self.line("}".to_string());
            }
            Statement::Block(head, body) => {
                self.line(format!("{head} {{"));
                self.emit_nested(body);
                self.line("}".to_string());
            }
            Statement::Line(line) => self.line(line.clone()),
        }
    }

    /// Binds an expression to a name. Its loads have been made then, and no longer change.
    fn bind_here(&mut self, expr: Expr) {
        let is_known = self.sources.contains_key(&expr) || self.pool.operands(expr).is_empty();
        if !is_known {
            let source = self.compose(expr);
            self.bind_name(expr, source);
            let is_load = |expr: &&Expr| matches!(self.pool.node(**expr), ExprNode::Load { .. });
            let variables = self.variables_of(expr);
            self.immutable.extend(variables.iter().filter(is_load));
        }
    }

    /// Emits `sum += x` if the value is the variable plus something.
    fn assign(&mut self, variable: Expr, value: Expr) {
        let name = self.name(variable);
        if let ExprNode::Call { template, operands } = self.pool.node(value)
            && template == "x + y"
            && operands[0] == variable
        {
            let value = self.source(operands[1]).wgsl;
            return self.line(format!("{name} += {value};"));
        }
        let value = self.source(value).wgsl;
        self.line(format!("{name} = {value};"));
    }

    fn emit_loop(&mut self, variable: Expr, from: Expr, to: Expr, step: u32, body: &[Statement]) {
        for root in roots(body) {
            self.hoist(root);
        }
        let (from, to) = (self.source(from).wgsl, self.source(to).wgsl);
        let name = self.name(variable);
        let step = match step {
            1 => format!("{name}++"),
            many => format!("{name} += {many}u"),
        };
        self.line(format!(
            "for (var {name} = {from}; {name} < {to}; {step}) {{"
        ));
        self.immutable.insert(variable);
        self.emit_nested(body);
        self.line("}".to_string());
        self.immutable.remove(&variable);
    }

    /// Emits a block with its own scope of names.
    fn emit_nested(&mut self, body: &[Statement]) {
        let outer = (self.sources.clone(), self.immutable.clone());
        self.indent += 1;
        self.block(body);
        self.indent -= 1;
        (self.sources, self.immutable) = outer;
    }

    /// Binds loop-invariant parts of an expression before a loop.
    fn hoist(&mut self, expr: Expr) {
        let is_known = self.sources.contains_key(&expr) || self.pool.operands(expr).is_empty();
        if is_known {
            return;
        }
        if !self.is_component(expr) && self.variables_of(expr).is_subset(&self.immutable) {
            let source = self.compose(expr);
            self.bind_name(expr, source);
            return;
        }
        for operand in self.pool.operands(expr).to_vec() {
            self.hoist(operand);
        }
    }

    /// The variables that an expression depends on, and its loads from buffers that the kernel stores to.
    fn variables_of(&mut self, expr: Expr) -> Rc<BTreeSet<Expr>> {
        if let Some(found) = self.variables.get(&expr) {
            return found.clone();
        }
        let mut found = BTreeSet::new();
        let may_change = match self.pool.node(expr) {
            ExprNode::Variable(_) => true,
            ExprNode::Load { buffer, .. } => self.stored.contains(&self.memory(*buffer)),
            _ => false,
        };
        if may_change {
            found.insert(expr);
        }
        for operand in self.pool.operands(expr).to_vec() {
            found.extend(self.variables_of(operand).iter().copied());
        }
        let found = Rc::new(found);
        self.variables.insert(expr, found.clone());
        found
    }

    /// The source of an expression, or the name it is bound to. An expression that depends on a mutable variable is not
    /// bound.
    fn source(&mut self, expr: Expr) -> ExprSource {
        if let Some(source) = self.sources.get(&expr) {
            return source.clone();
        }
        let source = self.compose(expr);
        let is_simple = self.pool.operands(expr).is_empty() || self.is_component(expr);
        let is_shared = self.uses.get(&expr).is_some_and(|uses| *uses > 1);
        let is_fixed = self.variables_of(expr).is_subset(&self.immutable);
        if !is_simple && is_fixed && (is_shared || source.wgsl.len() > MAX_INLINE_LENGTH) {
            self.bind_name(expr, source)
        } else {
            source
        }
    }

    /// True for a component of a vector, which is as short as a name.
    fn is_component(&self, expr: Expr) -> bool {
        match self.pool.node(expr) {
            ExprNode::Call { template, .. } => template.starts_with("x["),
            _ => false,
        }
    }

    fn bind_name(&mut self, expr: Expr, source: ExprSource) -> ExprSource {
        let wanted = self.roles.name(self.pool, expr);
        let name = unique(&mut self.names, &wanted);
        self.line(format!("let {name} = {};", source.wgsl));
        self.sources.insert(expr, ExprSource::atom(name.clone()));
        ExprSource::atom(name)
    }

    fn compose(&mut self, expr: Expr) -> ExprSource {
        let pool = self.pool;
        match pool.node(expr) {
            ExprNode::Literal(literal) => literal_text(*literal, pool.ty(expr)),
            ExprNode::Variable(name) => ExprSource::atom(name),
            ExprNode::Size(dim) => ExprSource::atom(self.size(dim)),
            ExprNode::Load { buffer, index } => {
                let index = self.source(*index).wgsl;
                let buffer = &self.buffers[*buffer];
                ExprSource::atom(match buffer.vectors {
                    Some(vectors) => self.buffers[vectors].component(&index),
                    None => buffer.load(&index),
                })
            }
            ExprNode::TextureLoad { texture, at } => {
                let [x, y, layer] = at.map(|expr| self.source(expr).wgsl);
                let at = format!("vec2({x}, {y}), {layer}");
                ExprSource::atom(self.buffers[*texture].texel(&at))
            }
            ExprNode::Call { template, operands } => {
                let template = self.division(expr).unwrap_or(template);
                let operands: Vec<ExprSource> = operands.iter().map(|x| self.source(*x)).collect();
                substitute(template, &operands)
            }
        }
    }

    /// The template of a division of indices by an unknown size, if that is not an operator.
    fn division(&self, expr: Expr) -> Option<&'static str> {
        let ExprNode::Call { template, operands } = self.pool.node(expr) else {
            return None;
        };
        let divisor = self.pool.as_literal(*operands.get(1)?);
        let is_index = self.pool.ty(expr) == WgslType::U32 && divisor.is_none();
        match template.as_ref() {
            "x / y" if is_index && self.divides_by_floats => Some("index_quotient(x, y)"),
            "x % y" if is_index && self.divides_by_floats => Some("index_remainder(x, y)"),
            _ => None,
        }
    }

    fn size(&mut self, dim: &Dim) -> String {
        if let Some((_, name)) = self.sizes.iter().find(|(known, _)| known == dim) {
            return name.clone();
        }
        let name = unique(&mut self.names, &size_name(dim));
        self.sizes.push((dim.clone(), name.clone()));
        name
    }

    fn name(&self, variable: Expr) -> String {
        match self.pool.node(variable) {
            ExprNode::Variable(name) => name.clone(),
            _ => String::from("value"),
        }
    }

    fn line(&mut self, line: String) {
        self.lines
            .push(format!("{}{line}", "    ".repeat(self.indent)));
    }
}

/// Expressions that statements read, including those in nested blocks.
pub fn roots(statements: &[Statement]) -> Vec<Expr> {
    let mut found = Vec::new();
    for statement in statements {
        match statement {
            Statement::ReturnIf(expr) | Statement::Let(expr) => found.push(*expr),
            Statement::Declare(_, value) | Statement::Assign(_, value) => found.push(*value),
            Statement::Store { index, value, .. }
            | Statement::WorkgroupStore { index, value, .. } => {
                found.extend([*index, *value]);
            }
            Statement::Loop { from, to, .. } => found.extend([*from, *to]),
            Statement::If(condition, _) | Statement::IfElse(condition, ..) => {
                found.push(*condition);
            }
            Statement::Block(..) | Statement::Freeze(_) | Statement::Line(_) => {}
        }
        found.extend(statement.blocks().flat_map(roots));
    }
    found
}
