//! Loops. A loop of known length is unrolled; any other loop becomes a region. The region carries values from iteration
//! to iteration: variables, cells and storages that the body changes. Each carried value is a slot ([`super::merge`]).

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Argument, Graph, Region, ValueId};
use crate::scalar::Scalar;
use crate::shape::TensorType;
use crate::trace::script::ast::{AstExpr, Stmt};

use super::Importer;
use super::assigned::assigned;
use super::control::changed_by;
use super::datum::{Datum, NumberKind};
use super::evaluate::CallFrame;
use super::merge::{ResultSlot, Template};
use super::mutable_cell::ResultTarget;
use super::scope::ImportScope;
use super::tensor::TensorRef;
use crate::trace::region_bodies::RegionBody;

/// Name of the value that a loop carries if its body only makes assertions. The name is not an identifier, so no
/// variable of the program has it.
const CHECK_RESULT: &str = "<checked>";

/// The conditions under which a loop ends.
struct LoopControl<'a> {
    /// For a `for` loop: the variable that counts iterations, and the trip count.
    count: Option<(&'a str, TensorRef)>,
    /// For a `while` loop: the condition, and its value before the first iteration.
    condition: Option<(&'a AstExpr, Datum)>,
}

impl Importer<'_> {
    /// Runs a loop over `range(count)`. Unrolls it if the count is known.
    pub(super) fn for_loop(
        &mut self,
        frame: &mut CallFrame,
        variable: &str,
        count: &AstExpr,
        body: &[Stmt],
    ) -> Result<()> {
        let count = self.eval(frame, count)?;
        match &count {
            Datum::Number(number) => {
                let dim = number.to_int(self.builder().symbols())?;
                let trips = self.builder().symbols().specialize(&dim)?;
                for trip in 0..trips {
                    self.charge_iteration()?;
                    frame.locals.insert(variable.to_string(), Datum::int(trip));
                    self.run_block(frame, body)?;
                }
                Ok(())
            }
            Datum::Unknown => {
                frame.locals.insert(variable.to_string(), Datum::Unknown);
                self.scan_for_unsupported(frame, body);
                Ok(())
            }
            Datum::Dynamic(_, tensor) | Datum::Tensor(tensor) => {
                let control = LoopControl {
                    count: Some((variable, tensor.clone())),
                    condition: None,
                };
                self.loop_region(frame, &control, body)
            }
            other => {
                let message = format!("a loop over a {}", other.describe());
                Err(Error::source(message))
            }
        }
    }

    /// Runs a `while` loop. Unrolls iterations for as long as the condition is known.
    pub(super) fn while_loop(
        &mut self,
        frame: &mut CallFrame,
        condition: &AstExpr,
        body: &[Stmt],
    ) -> Result<()> {
        loop {
            match self.eval(frame, condition)? {
                Datum::Number(number) => {
                    if !number.is_truthy(self.builder().symbols())? {
                        return Ok(());
                    }
                    self.charge_iteration()?;
                    self.run_block(frame, body)?;
                }
                Datum::Unknown => {
                    self.scan_for_unsupported(frame, body);
                    return Ok(());
                }
                first => {
                    let control = LoopControl {
                        count: None,
                        condition: Some((condition, first)),
                    };
                    return self.loop_region(frame, &control, body);
                }
            }
        }
    }

    /// Makes a region of a loop. It carries variables that the body assigns and that existed before the loop, and storages
    /// and cells that the body changes. The body is run repeatedly until a run changes no others.
    fn loop_region(
        &mut self,
        frame: &mut CallFrame,
        control: &LoopControl,
        body: &[Stmt],
    ) -> Result<()> {
        let mut bindings = Vec::new();
        let mut slots = Vec::new();
        for name in assigned(body) {
            if let Some(value) = frame.locals.get(&name) {
                self.charge_walk(value)?;
                let template = carried_template(value, &mut slots);
                bindings.push((ResultTarget::Variable(name), template));
            }
        }
        let generator_before = self.generator;
        loop {
            let counts_before = (slots.len(), bindings.len());
            self.generator = generator_before;
            let iteration =
                self.trace_iteration(frame, control, body, &mut bindings, &mut slots)?;
            if let Some((scope, outputs)) = iteration {
                return self.finish_loop(frame, control, bindings, &slots, scope, &outputs);
            }
            if (slots.len(), bindings.len()) == counts_before {
                return Err(Error::internal(
                    "the carried values of a loop do not converge",
                ));
            }
        }
    }

    /// Runs one iteration in a new region body. Returns none if it wrote storages or changed cells that were not carried.
    /// These are then added to the carried ones, for another run.
    fn trace_iteration(
        &mut self,
        frame: &CallFrame,
        control: &LoopControl,
        body: &[Stmt],
        bindings: &mut Vec<(ResultTarget, Template)>,
        slots: &mut Vec<ResultSlot>,
    ) -> Result<Option<(ImportScope, Vec<ValueId>)>> {
        let types = self.carried_types(slots)?;
        self.open_scope();
        let result = self.run_iteration(frame, control, body, bindings, slots, &types);
        let scope = self.close_scope()?;
        let outputs = result?;
        let counts_before = (slots.len(), bindings.len());
        for cell in changed_by(&[&scope]) {
            let is_carried = |target: &ResultTarget| matches!(target, ResultTarget::Cell(known) if known.is_same(&cell));
            if !bindings.iter().any(|(target, _)| is_carried(target)) {
                let template = carried_template(&cell.content(), slots);
                bindings.push((ResultTarget::Cell(cell), template));
            }
        }
        for (storage, _) in &scope.data.written {
            let is_carried = slots.iter().any(
                |slot| matches!(slot, ResultSlot::Storage(known) if std::rc::Rc::ptr_eq(known, storage)),
            );
            if !is_carried {
                slots.push(ResultSlot::Storage(storage.clone()));
            }
        }
        if slots.is_empty() && scope.builder.has_side_effect() {
            // A region has at least one result.
            bindings.push((
                ResultTarget::Variable(CHECK_RESULT.into()),
                carried_template(&Datum::bool(true), slots),
            ));
        }
        Ok(((slots.len(), bindings.len()) == counts_before).then_some((scope, outputs)))
    }

    /// Returns the types of the carried values before the loop, slot by slot.
    fn carried_types(&mut self, slots: &[ResultSlot]) -> Result<Vec<TensorType>> {
        let mut types = Vec::new();
        for slot in slots {
            types.push(match slot {
                ResultSlot::Storage(storage) => {
                    let value = self.storage_value(storage)?;
                    self.scopes.type_of(value)?
                }
                ResultSlot::Value(kind, before, _) => {
                    let id = self.slot_value(before, None)?;
                    let id = self.cast_to_kind(id, *kind)?;
                    self.builder().ty(id)
                }
            });
        }
        Ok(types)
    }

    /// Runs one iteration in the open region body, whose inputs are the iteration number and the carried values of
    /// `types`. Returns its outputs: the condition for another iteration, and the carried values, slot by slot.
    fn run_iteration(
        &mut self,
        frame: &CallFrame,
        control: &LoopControl,
        body: &[Stmt],
        bindings: &[(ResultTarget, Template)],
        slots: &[ResultSlot],
        types: &[TensorType],
    ) -> Result<Vec<ValueId>> {
        let mut frame = frame.clone();
        let mut results = Vec::new();
        let trip = self
            .scopes
            .add_body_input("round", TensorType::new::<i64>(DType::I64, []));
        for (index, ty) in types.iter().enumerate() {
            let is_this_result = |template: &Template| matches!(template, Template::Result(result) if *result == index);
            let variable = bindings
                .iter()
                .find(|(_, template)| is_this_result(template));
            let name = match variable {
                Some((ResultTarget::Variable(name), _)) => name.as_str(),
                _ => "carried",
            };
            results.push(self.scopes.add_body_input(name, ty.clone()));
        }
        self.bind_results(&mut frame, bindings.to_vec(), slots, &results)?;
        if let Some((variable, _)) = &control.count {
            let trip = Datum::Dynamic(NumberKind::Int, self.new_tensor(trip));
            frame.locals.insert((*variable).to_string(), trip);
        }
        self.run_block(&mut frame, body)?;
        let continues = match &control.condition {
            Some((condition, _)) => self.eval(&frame, condition)?,
            None => Datum::bool(true),
        };
        let mut outputs = vec![self.slot_value(&continues, None)?];
        let values = self.carried_values(&frame, bindings, slots)?;
        for ((slot, value), ty) in slots.iter().zip(&values).zip(types) {
            outputs.push(match (slot, value) {
                (ResultSlot::Storage(storage), _) => {
                    let value = self.storage_value(storage)?;
                    self.scopes.capture(value)?
                }
                (ResultSlot::Value(..), Some(value)) => {
                    let id = self.slot_value(value, Some(ty))?;
                    let actual = self.builder().ty(id);
                    self.require_same_type(ty, &actual)?;
                    id
                }
                _ => return Err(Error::internal("a carried value of a loop has no value")),
            });
        }
        Ok(outputs)
    }

    /// Returns the values of the carried variables and cells at the end of an iteration, slot by slot; none for
    /// storages.
    fn carried_values(
        &mut self,
        frame: &CallFrame,
        bindings: &[(ResultTarget, Template)],
        slots: &[ResultSlot],
    ) -> Result<Vec<Option<Datum>>> {
        let mut values: Vec<Option<Datum>> = vec![None; slots.len()];
        for (target, template) in bindings {
            let (what, value) = match target {
                ResultTarget::Variable(name) => (name.clone(), frame.locals.get(name).cloned()),
                ResultTarget::Cell(cell) => (cell.describe(), Some(cell.content())),
            };
            let Some(value) = value else { continue };
            if !fill_slots(template, &value, &mut values) {
                let message = format!("a loop on tensors that changes the structure of {what}");
                let help = "lists that grow within such a loop are not supported";
                return Err(Error::unsupported(message).help(help));
            }
        }
        Ok(values)
    }

    /// Adds the region of a loop to the graph around it, and binds the carried variables, cells and storages to its
    /// results.
    fn finish_loop(
        &mut self,
        frame: &mut CallFrame,
        control: &LoopControl,
        bindings: Vec<(ResultTarget, Template)>,
        slots: &[ResultSlot],
        scope: ImportScope,
        outputs: &[ValueId],
    ) -> Result<()> {
        let trips = match &control.count {
            Some((_, tensor)) => Argument::Value(self.read(tensor)?),
            None => Argument::Number(Scalar::Int(i64::MAX)),
        };
        let initial_condition = match &control.condition {
            Some((_, initial_condition)) => self.converted(NumberKind::Bool, initial_condition)?,
            None => Datum::bool(true),
        };
        let initial_condition = self.slot_value(&initial_condition, None)?;
        let mut arguments = vec![trips, Argument::Value(initial_condition)];
        let mut types = Vec::new();
        for slot in slots {
            let id = match slot {
                ResultSlot::Value(kind, before, _) => {
                    let id = self.slot_value(before, None)?;
                    self.cast_to_kind(id, *kind)?
                }
                ResultSlot::Storage(storage) => {
                    let value = self.storage_value(storage)?;
                    self.scopes.capture(value)?
                }
            };
            types.push(self.builder().ty(id));
            arguments.push(Argument::Value(id));
        }
        let carried = slots.len();
        let body = RegionBody::new(scope, "body", outputs.to_vec());
        let (graphs, captured) = self.scopes.close_bodies(vec![body])?;
        arguments.extend(captured);
        let Ok([body]) = <[Graph; 1]>::try_from(graphs) else {
            return Err(Error::internal("a loop has one body"));
        };
        let results = self.add_region(Region::Loop { body, carried }, arguments, types);
        self.bind_results(frame, bindings, slots, &results)
    }
}

/// Makes a template of the value that a variable or cell has before the loop. The tensors and numbers in it are
/// carried: each becomes a slot.
fn carried_template(value: &Datum, slots: &mut Vec<ResultSlot>) -> Template {
    let mut add_slot = |kind: Option<NumberKind>| {
        slots.push(ResultSlot::Value(kind, value.clone(), value.clone()));
        Template::Result(slots.len() - 1)
    };
    match value {
        Datum::Tensor(_) => add_slot(None),
        Datum::Dynamic(kind, _) => add_slot(Some(*kind)),
        Datum::Number(number) => add_slot(Some(super::merge::number_kind(number))),
        Datum::Tuple(items) => Template::Tuple(
            items
                .iter()
                .map(|item| carried_template(item, slots))
                .collect(),
        ),
        other => Template::Same(other.clone()),
    }
}

/// Stores the tensors and numbers of a value in `values`, by the slots of its template. Returns false if the value has
/// another structure.
fn fill_slots(template: &Template, value: &Datum, values: &mut [Option<Datum>]) -> bool {
    match (template, value) {
        (Template::Result(index), value) => {
            if let Some(slot) = values.get_mut(*index) {
                *slot = Some(value.clone());
            }
            matches!(
                value,
                Datum::Tensor(_) | Datum::Dynamic(..) | Datum::Number(_) | Datum::Uninitialized
            )
        }
        (Template::Tuple(templates), Datum::Tuple(items)) => {
            let mut pairs = templates.iter().zip(items.iter());
            templates.len() == items.len()
                && pairs.all(|(template, item)| fill_slots(template, item, values))
        }
        (Template::Same(before), after) => match (before, after) {
            (Datum::List(a), Datum::List(b)) => std::rc::Rc::ptr_eq(a, b),
            (Datum::None, Datum::None) | (Datum::Uninitialized, _) => true,
            (Datum::Str(a), Datum::Str(b)) => a == b,
            (Datum::Object(a), Datum::Object(b)) => std::rc::Rc::ptr_eq(a, b),
            (Datum::Dict(a), Datum::Dict(b)) => std::rc::Rc::ptr_eq(a, b),
            _ => false,
        },
        _ => false,
    }
}
