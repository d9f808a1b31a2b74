//! Execution of statements and evaluation of expressions.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use crate::archive::debug::is_library;
use crate::error::{Error, Result};
use crate::trace::script::ast::{AstExpr, AstExprKind, Stmt, StmtKind, TypeExpr};

use super::Importer;
use super::call::Arguments;
use super::datum::{Closure, Datum, NumberKind, ScriptDict, ScriptList};
use super::number::ScriptNumber;

/// The frame of a function call.
#[derive(Clone)]
pub struct CallFrame {
    /// Its variables.
    pub locals: BTreeMap<String, Datum>,
    /// The record that contains its source.
    pub file: Arc<str>,
    /// Module path of the object that the method belongs to.
    pub module: String,
}

impl Importer<'_> {
    /// Runs statements. Returns the value of a `return` among them.
    pub(super) fn run_block(
        &mut self,
        frame: &mut CallFrame,
        body: &[Stmt],
    ) -> Result<Option<Datum>> {
        self.nested(|importer| importer.run_statements(frame, body))
    }

    fn run_statements(&mut self, frame: &mut CallFrame, body: &[Stmt]) -> Result<Option<Datum>> {
        for statement in body {
            self.charge_statement()?;
            self.set_location(frame, statement.offset);
            if let Some(result) = self.run_statement(frame, &statement.kind)? {
                return Ok(Some(result));
            }
        }
        Ok(None)
    }

    /// Sets the source location of the nodes that follow, by the byte offset of the program's text in the frame's file.
    /// Lines in PyTorch's own files leave the location at the last line of the user's.
    fn set_location(&mut self, frame: &CallFrame, offset: usize) {
        let location = self.script.location(&frame.file, offset);
        let user_location = location.filter(|location| !is_library(&location.file));
        let module = self.script.module_path(&frame.file, offset);
        let module = module.unwrap_or(&frame.module);
        if user_location.is_none() && self.place.module == module {
            return;
        }
        self.place.module = module.to_string();
        self.place.location = user_location.or(self.place.location.take());
        self.builder().set_place(&self.place);
    }

    /// Runs a statement. Returns the value of a `return` in it.
    fn run_statement(
        &mut self,
        frame: &mut CallFrame,
        statement: &StmtKind,
    ) -> Result<Option<Datum>> {
        match statement {
            StmtKind::Assign { name, value, .. } => {
                let value = self.eval(frame, value)?;
                self.assign(frame, name, value);
            }
            StmtKind::Unpack { names, value } => {
                let value = self.eval(frame, value)?;
                self.unpack(frame, names, &value)?;
            }
            StmtKind::AssignAll { names, values } => {
                let values = self.eval_all(frame, values)?;
                for (name, value) in names.iter().zip(values) {
                    self.assign(frame, name, value);
                }
            }
            StmtKind::SetAttribute {
                object,
                attribute,
                value,
            } => {
                let object = self.eval(frame, object)?;
                let value = self.eval(frame, value)?;
                self.set_attribute(&object, attribute, value)?;
            }
            StmtKind::If {
                condition,
                then,
                otherwise,
            } => {
                let condition = self.eval(frame, condition)?;
                return self.if_statement(frame, condition, then, otherwise);
            }
            StmtKind::While { condition, body } => self.while_loop(frame, condition, body)?,
            StmtKind::For {
                variable,
                count,
                body,
            } => self.for_loop(frame, variable, count, body)?,
            StmtKind::With {
                context,
                name,
                body,
            } => {
                let context = self.eval(frame, context)?;
                return self.with_statement(frame, &context, name.as_deref(), body);
            }
            StmtKind::Return(value) => return self.eval(frame, value).map(Some),
            StmtKind::Evaluate(value) => {
                self.eval(frame, value)?;
            }
            StmtKind::Define(function) => {
                let closure = Closure {
                    function: function.clone(),
                    locals: frame.locals.clone(),
                };
                let name = function.name.clone();
                let closure = Datum::Closure(Rc::new(closure));
                frame.locals.insert(name, closure);
            }
            StmtKind::Pass => {}
        }
        Ok(None)
    }

    /// Runs a body between the `__enter__` and the `__exit__` of a context manager.
    fn with_statement(
        &mut self,
        frame: &mut CallFrame,
        context: &Datum,
        name: Option<&str>,
        body: &[Stmt],
    ) -> Result<Option<Datum>> {
        let entered = self.method(context, "__enter__", Arguments::default())?;
        if let Some(name) = name {
            self.assign(frame, name, entered);
        }
        let result = self.run_block(frame, body)?;
        let nothing_raised = vec![Datum::None; 3];
        self.method(context, "__exit__", nothing_raised.into())?;
        Ok(result)
    }

    /// Binds a variable. A fresh result takes the variable's name.
    pub(super) fn assign(&mut self, frame: &mut CallFrame, name: &str, value: Datum) {
        if let Datum::Tensor(tensor) | Datum::Dynamic(_, tensor) = &value {
            self.name_value(tensor, name);
        }
        frame.locals.insert(name.to_string(), value);
    }

    /// Assigns the elements of a tuple or list to variables.
    fn unpack(&mut self, frame: &mut CallFrame, names: &[String], value: &Datum) -> Result<()> {
        if let Datum::Unknown = value {
            for name in names {
                frame.locals.insert(name.clone(), Datum::Unknown);
            }
            return Ok(());
        }
        let Some(items) = value.items() else {
            let message = format!("a {} is unpacked", value.describe());
            return Err(Error::source(message));
        };
        if items.len() != names.len() {
            let (found, wanted) = (items.len(), names.len());
            let message = format!("{found} values are unpacked into {wanted} variables");
            return Err(Error::source(message));
        }
        for (name, item) in names.iter().zip(items) {
            self.assign(frame, name, item);
        }
        Ok(())
    }

    /// Evaluates expressions in order.
    pub(super) fn eval_all(&mut self, frame: &CallFrame, values: &[AstExpr]) -> Result<Vec<Datum>> {
        values.iter().map(|value| self.eval(frame, value)).collect()
    }

    /// Evaluates an expression.
    pub(super) fn eval(&mut self, frame: &CallFrame, expr: &AstExpr) -> Result<Datum> {
        self.nested(|importer| importer.eval_nested(frame, expr))
    }

    fn eval_nested(&mut self, frame: &CallFrame, expr: &AstExpr) -> Result<Datum> {
        Ok(match &expr.kind {
            AstExprKind::Name(name) => self.variable(frame, name)?,
            AstExprKind::Qualified(name) => self.qualified(name)?,
            AstExprKind::Constant(index) => self.constant(*index)?,
            AstExprKind::Attribute(object, name) => {
                let object = self.eval(frame, object)?;
                self.attribute(&object, name)?
            }
            AstExprKind::Subscript(value, index) => {
                let value = self.eval(frame, value)?;
                let index = self.eval(frame, index)?;
                self.subscript(&value, &index)?
            }
            AstExprKind::TupleSlice(value, start, end) => {
                let value = self.eval(frame, value)?;
                let bounds = [*start, *end].map(Datum::int);
                self.tuple_slice(&value, &bounds)?
            }
            AstExprKind::Call(call) => {
                self.set_location(frame, expr.offset);
                self.eval_call(frame, call, expr.offset)?
            }
            AstExprKind::None => Datum::None,
            AstExprKind::Bool(value) => Datum::bool(*value),
            AstExprKind::Int(value) => Datum::int(*value),
            AstExprKind::Float(value) => Datum::Number(ScriptNumber::Float(*value)),
            AstExprKind::Complex(real, imaginary) => {
                let message = format!("the complex number {real}{imaginary:+}j");
                self.unsupported(Error::unsupported(message))
            }
            AstExprKind::Str(text) => Datum::str(text),
            AstExprKind::List(items) => {
                let items = self.eval_all(frame, items)?;
                self.list(items)
            }
            AstExprKind::Tuple(items) => Datum::tuple(self.eval_all(frame, items)?),
            AstExprKind::Dict(entries) => self.eval_dict(frame, entries)?,
            AstExprKind::Annotate(ty, value) | AstExprKind::UncheckedCast(ty, value) => {
                let value = self.eval(frame, value)?;
                self.cast_to_annotation(ty, value)?
            }
            AstExprKind::Uninitialized(_) => Datum::Uninitialized,
            AstExprKind::IsInstance(value, types) => {
                let value = self.eval(frame, value)?;
                self.charge_walk(&value)?;
                Datum::bool(types.iter().any(|ty| self.is_instance(&value, ty)))
            }
        })
    }

    /// Restores the source location of a call after its arguments or its body were run.
    pub(super) fn restore_location(&mut self, frame: &CallFrame, offset: usize) {
        self.set_location(frame, offset);
    }

    /// Reads a variable.
    fn variable(&mut self, frame: &CallFrame, name: &str) -> Result<Datum> {
        let value = frame.locals.get(name).cloned();
        value.ok_or_else(|| Error::source(format!("the variable {name} is not defined")))
    }

    /// Evaluates a qualified name that is not called: a member of an enumeration, or a function.
    fn qualified(&mut self, name: &str) -> Result<Datum> {
        if let Some(member) = self.enum_member(name)? {
            return Ok(member);
        }
        Ok(Datum::Function(name.into()))
    }

    fn eval_dict(&mut self, frame: &CallFrame, entries: &[(AstExpr, AstExpr)]) -> Result<Datum> {
        let mut items = Vec::new();
        for (key, value) in entries {
            items.push((self.eval(frame, key)?, self.eval(frame, value)?));
        }
        Ok(Datum::Dict(Rc::new(ScriptDict {
            entries: RefCell::new(items),
            depth: self.scopes.depth(),
            is_archived: false,
        })))
    }

    /// Makes a new list.
    pub(super) fn list(&self, items: Vec<Datum>) -> Datum {
        Datum::List(Rc::new(ScriptList {
            items: RefCell::new(items),
            depth: self.scopes.depth(),
            is_archived: false,
        }))
    }

    /// Evaluates a literal: a default of a parameter or a constant of a class.
    pub(super) fn literal(&mut self, value: &AstExpr) -> Result<Datum> {
        let frame = CallFrame {
            locals: BTreeMap::new(),
            file: "".into(),
            module: self.place.module.clone(),
        };
        self.eval(&frame, value)
    }

    /// Converts a tensor that is annotated as a number to its only element. Returns other values unchanged.
    fn cast_to_annotation(&mut self, ty: &TypeExpr, value: Datum) -> Result<Datum> {
        let Datum::Tensor(tensor) = &value else {
            return Ok(value);
        };
        let kind = match ty {
            TypeExpr::Number => self.kind_of(tensor)?,
            TypeExpr::Int => NumberKind::Int,
            TypeExpr::Float => NumberKind::Float,
            TypeExpr::Bool => NumberKind::Bool,
            _ => return Ok(value),
        };
        match tensor.number() {
            Some(host) => Ok(Datum::Number(host.number)),
            None => self.converted(kind, &value),
        }
    }

    /// Python's `isinstance`, for a static type.
    fn is_instance(&self, value: &Datum, ty: &TypeExpr) -> bool {
        match (ty, value) {
            (TypeExpr::Any, _) => true,
            (TypeExpr::Optional(_), Datum::None) => true,
            (TypeExpr::Optional(inner), value) => self.is_instance(value, inner),
            (TypeExpr::Union(types), value) => types.iter().any(|ty| self.is_instance(value, ty)),
            (TypeExpr::None, Datum::None) => true,
            (TypeExpr::Tensor, Datum::Tensor(_)) => true,
            (TypeExpr::Number, Datum::Number(_) | Datum::Dynamic(..)) => true,
            (TypeExpr::Int | TypeExpr::Float | TypeExpr::Bool, value) => {
                value.describe() == ty.to_string()
            }
            (TypeExpr::Str, Datum::Str(_)) | (TypeExpr::Device, Datum::Device(_)) => true,
            (TypeExpr::List(inner), Datum::List(list)) => {
                let items = list.items.borrow();
                items.iter().all(|item| self.is_instance(item, inner))
            }
            (TypeExpr::Dict(key, inner), Datum::Dict(dict)) => {
                let entries = dict.entries.borrow();
                let mut entries = entries.iter();
                entries.all(|(k, v)| self.is_instance(k, key) && self.is_instance(v, inner))
            }
            (TypeExpr::Tuple(types), Datum::Tuple(items)) => {
                let mut pairs = types.iter().zip(items.iter());
                types.len() == items.len() && pairs.all(|(ty, item)| self.is_instance(item, ty))
            }
            (TypeExpr::Class(class), Datum::Object(instance)) => *class == *instance.class,
            (TypeExpr::Class(class), Datum::NamedTuple(name, _)) => **class == **name,
            _ => false,
        }
    }
}
