//! From a graph of primitives to a plan: which values are stored ([`fuse`]), an expression for each element
//! ([`element`]), a kernel for each group, memory and lifetimes.

mod conv;
mod dot;
mod element;
mod fuse;
mod kernel;
mod map;
mod position;
mod reduce;
mod scalar;
mod scan;
mod sort;

use std::collections::{BTreeMap, HashMap};

use self::element::Scope;
use self::fuse::{Fusion, Group, fuse};
use self::kernel::Lowered;
use crate::dim::Dim;
use crate::error::{Error, Place, Result};
use crate::ir::{Definition, Graph, Op, Primitive, ValueId};
use crate::kernel::plan::{
    Capabilities, Kernel, Plan, Slot, SlotId, SlotKind, Step, Storage, Workgroups,
};

/// Plans a graph of primitives for a device. An error lists everything that the device cannot do.
pub fn plan(graph: &Graph, capabilities: &Capabilities) -> Result<Plan> {
    check_types(graph, capabilities)?;
    let fusion = fuse(graph, capabilities)?;
    let mut planner = Planner {
        graph,
        capabilities,
        fusion: &fusion,
        plan: Plan {
            inputs: vec![None; graph.inputs.len()],
            guards: graph.guards.clone(),
            ..Plan::default()
        },
        kernels: HashMap::new(),
        slots: BTreeMap::new(),
    };
    let mut errors = Vec::new();
    for group in &fusion.groups {
        if let Err(error) = planner.group(group) {
            errors.push(error.at_place(&planner.place(group)));
        }
    }
    errors.extend(planner.outputs().err());
    match Error::all(errors) {
        Some(error) => Err(error),
        None => Ok(planner.finish()),
    }
}

/// Every value must have a type that the device can store, and every weight must fit a binding.
fn check_types(graph: &Graph, capabilities: &Capabilities) -> Result<()> {
    let mut errors = Vec::new();
    for info in &graph.values {
        match Storage::of(info.ty.dtype, capabilities) {
            Err(error) => errors.push(error.at(&info.name)),
            Ok(storage) => errors.extend(check_weight(info, storage, capabilities)),
        }
    }
    Error::all(errors).map_or(Ok(()), Err)
}

fn check_weight(
    info: &crate::ir::ValueInfo,
    storage: Storage,
    capabilities: &Capabilities,
) -> Option<Error> {
    let Definition::Weight(name) = &info.definition else {
        return None;
    };
    let numel = u64::try_from(info.ty.numel().as_const()?).ok()?;
    let bytes = numel.saturating_mul(storage.size());
    let limit = capabilities
        .max_binding_size
        .min(capabilities.max_buffer_size);
    (bytes > limit).then(|| {
        Error::plan(format!(
            "the weight {name} takes {bytes} bytes, the device binds at most {limit}"
        ))
        .help(
            "run on a device with larger bindings or on the host, or split the weight in the model",
        )
    })
}

struct Planner<'a> {
    graph: &'a Graph,
    capabilities: &'a Capabilities,
    fusion: &'a Fusion,
    plan: Plan,
    kernels: HashMap<Kernel, usize>,
    slots: BTreeMap<(ValueId, bool), SlotId>,
}

impl<'a> Planner<'a> {
    fn scope(&self) -> Scope<'a> {
        Scope::new(self.graph, self.capabilities, &self.fusion.stored)
    }

    fn place(&self, group: &Group) -> Place {
        let node = group
            .nodes
            .first()
            .and_then(|node| self.graph.nodes.get(*node));
        node.map(|node| node.place.clone()).unwrap_or_default()
    }

    fn group(&mut self, group: &Group) -> Result<()> {
        match self.lower(group) {
            Ok(lowered) if fits(&lowered, self.capabilities) => self.step(lowered, group),
            Ok(lowered) => match self.parts(group)? {
                Some(parts) => parts
                    .into_iter()
                    .try_for_each(|part| self.step(part, group)),
                None => self.step(lowered, group),
            },
            Err(error) => Err(error),
        }
    }

    fn lower(&self, group: &Group) -> Result<Lowered<'a>> {
        let scope = self.scope();
        let Some(anchor) = group.anchor else {
            return map::lower(scope, group);
        };
        let node = &self.graph.nodes[anchor];
        match &node.op {
            Op::Primitive(Primitive::Reduce(reduce)) => reduce::lower(scope, group, node, reduce),
            Op::Primitive(Primitive::ArgReduce(reduce)) => {
                reduce::lower_argument(scope, group, node, reduce)
            }
            Op::Primitive(Primitive::Dot(_)) => dot::lower(scope, group, node),
            Op::Primitive(Primitive::Conv(conv)) => conv::lower(scope, group, node, conv),
            Op::Primitive(Primitive::Scan(scan)) => scan::lower(scope, group, node, scan),
            Op::Primitive(Primitive::Scatter(scatter)) => {
                scan::lower_scatter(scope, group, node, scatter)
            }
            Op::Primitive(Primitive::Sort(sort)) => sort::lower(scope, node, sort),
            _ => Err(element::not_planned(node)),
        }
    }

    /// A concatenation that reads from too many buffers, operand by operand.
    fn parts(&self, group: &Group) -> Result<Option<Vec<Lowered<'a>>>> {
        let Definition::Node(node, _) = self.graph.value(group.root).definition else {
            return Ok(None);
        };
        let node = &self.graph.nodes[node];
        let Op::Primitive(Primitive::Concat(concat)) = &node.op else {
            return Ok(None);
        };
        let mut start = Dim::ZERO;
        let mut parts = Vec::new();
        for operand in node.operands() {
            parts.push(map::part(
                self.scope(),
                group.root,
                operand,
                concat.axis,
                &start,
            )?);
            start = &start + &self.graph.ty(operand).shape[concat.axis];
        }
        Ok(Some(parts))
    }

    /// A dispatch of a kernel, which may be known already.
    fn step(&mut self, mut lowered: Lowered, group: &Group) -> Result<()> {
        if matches!(&lowered.workgroups, Workgroups::Linear(count) if count.is(0)) {
            return Ok(());
        }
        let (kernel, sizes) = lowered.finish(self.label(group))?;
        let next = self.plan.kernels.len();
        let index = *self.kernels.entry(kernel.clone()).or_insert(next);
        if index == next {
            self.plan.kernels.push(kernel);
        }
        let mut bindings = Vec::new();
        for binding in &lowered.scope.buffers {
            bindings.push(self.slot(binding.value, binding.is_copy)?);
        }
        let names = group.nodes.iter().filter_map(|node| {
            let result = self.graph.nodes.get(*node)?.results.first()?;
            Some(self.graph.value(*result).name.clone())
        });
        self.plan.steps.push(Step {
            kernel: index,
            bindings,
            sizes,
            workgroups: lowered.workgroups,
            place: self.place(group),
            nodes: names.collect(),
        });
        Ok(())
    }

    /// The primitives of a group, shortened where there are many.
    fn label(&self, group: &Group) -> String {
        let names: Vec<&str> = group
            .nodes
            .iter()
            .filter_map(|node| self.graph.nodes.get(*node))
            .map(|node| node.op.name())
            .collect();
        match names.as_slice() {
            [] => String::from("copy"),
            [only] => only.to_string(),
            [first, last] => format!("{first}_{last}"),
            [first, .., last] => format!("{first}_to_{last}"),
        }
    }

    fn slot(&mut self, value: ValueId, is_copy: bool) -> Result<SlotId> {
        if let Some(slot) = self.slots.get(&(value, is_copy)) {
            return Ok(*slot);
        }
        let info = self.graph.value(value);
        let id = SlotId(self.plan.slots.len());
        let kind = match &info.definition {
            Definition::Input(index) if !is_copy => {
                self.plan.inputs[*index] = Some(id);
                SlotKind::Input(*index)
            }
            Definition::Weight(name) if !is_copy => SlotKind::Weight(name.clone()),
            _ if is_copy || self.graph.outputs.contains(&value) => SlotKind::Output,
            _ => SlotKind::Temporary { first: 0, last: 0 },
        };
        self.plan.slots.push(Slot {
            name: info.name.clone(),
            dtype: info.ty.dtype,
            storage: Storage::of(info.ty.dtype, self.capabilities)?,
            shape: info.ty.shape.clone(),
            kind,
        });
        self.slots.insert((value, is_copy), id);
        Ok(id)
    }

    /// The slots of the outputs; inputs and weights are copied.
    fn outputs(&mut self) -> Result<()> {
        for output in &self.graph.outputs {
            let is_copy = !matches!(self.graph.value(*output).definition, Definition::Node(..));
            if is_copy && !self.slots.contains_key(&(*output, true)) {
                let group = Group {
                    anchor: None,
                    root: *output,
                    nodes: Vec::new(),
                };
                let lowered = map::copy(self.scope(), *output)?;
                self.step(lowered, &group)?;
            }
            let slot = self.slot(*output, is_copy)?;
            self.plan.outputs.push(slot);
        }
        Ok(())
    }

    /// Fills in lifetimes.
    fn finish(mut self) -> Plan {
        let mut spans: Vec<Option<(usize, usize)>> = vec![None; self.plan.slots.len()];
        for (step, bindings) in self
            .plan
            .steps
            .iter()
            .map(|step| &step.bindings)
            .enumerate()
        {
            for slot in bindings {
                let first = spans[slot.0].map_or(step, |(first, _)| first);
                spans[slot.0] = Some((first, step));
            }
        }
        for (slot, span) in self.plan.slots.iter_mut().zip(spans) {
            if let (SlotKind::Temporary { .. }, Some((first, last))) = (&slot.kind, span) {
                slot.kind = SlotKind::Temporary { first, last };
            }
        }
        self.plan
    }
}

fn fits(lowered: &Lowered, capabilities: &Capabilities) -> bool {
    lowered.scope.buffers.len() <= capabilities.max_storage_buffers as usize
}
