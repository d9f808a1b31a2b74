//! Regions: their bodies become blocks of steps of the enclosing plan and share its kernels, weights and memory.
//!
//! The host reads back conditions and trip counts that depend on tensors. Each value that a loop carries has one slot,
//! which is written before the loop and by copies at the end of each iteration.

use std::collections::BTreeMap;

use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::{Argument, Definition, Graph, Node, Region};
use crate::kernel::plan::{Flow, FlowKind, SlotId, SlotKind, StepBlock, TripCount};
use crate::pass::constant::known_number;
use crate::plan::{Fusion, Planner, custom};
use crate::scalar::Scalar;

/// The body of a region, with its sizes expressed in those of the enclosing graph.
struct PlannedBody {
    graph: Graph,
    /// Slots of the inputs; `None` for the iteration number of a loop, which nothing reads.
    input_slots: Vec<Option<SlotId>>,
    /// Slots that the outputs are written to, where they exist already.
    output_slots: Vec<Option<SlotId>>,
}

impl Planner<'_> {
    /// Plans a region: steps for its bodies, and the flow that controls when they run.
    pub(super) fn plan_region(&mut self, node: &Node, region: &Region) -> Result<()> {
        let kind = match region {
            Region::If { then, otherwise } => self.plan_if(node, [then, otherwise])?,
            Region::Loop { body, carried } => self.plan_loop(node, body, *carried)?,
            Region::Call { .. } => {
                return Err(Error::internal("a call must be inlined before planning"));
            }
        };
        let names = node.results.iter();
        self.flows.push(Flow {
            kind,
            nodes: names.map(|id| self.slot_name(*id)).collect(),
            place: node.place.clone(),
        });
        Ok(())
    }

    /// Plans both branches of a condition. The result is the flow that chooses between them.
    fn plan_if(&mut self, node: &Node, branches: [&Graph; 2]) -> Result<FlowKind> {
        let [condition, inputs @ ..] = node.arguments.as_slice() else {
            return Err(Error::internal("an if lacks its condition"));
        };
        let condition = self.argument_slot(condition)?;
        let mut blocks = Vec::new();
        for branch in branches {
            let body = PlannedBody {
                graph: self.in_enclosing_sizes(branch, inputs),
                input_slots: self.argument_slots(inputs)?,
                output_slots: self.result_slots(node)?,
            };
            blocks.push(self.plan_body(node, &body, |_| Ok(()))?.0);
        }
        let [then, otherwise] = <[StepBlock; 2]>::try_from(blocks)
            .map_err(|_| Error::internal("an if must have two branches"))?;
        Ok(FlowKind::If {
            condition,
            then,
            otherwise,
        })
    }

    /// Plans a loop. The first `carried` values that enter it change in each iteration; the others are constant.
    fn plan_loop(&mut self, node: &Node, body: &Graph, carried: usize) -> Result<FlowKind> {
        let [trips, first, inputs @ ..] = node.arguments.as_slice() else {
            return Err(Error::internal("a loop lacks its trip count or condition"));
        };
        let trips = match trips {
            Argument::Number(number) => TripCount::Size(Dim::from(number.to_i64())),
            Argument::Size(size) => TripCount::Size(size.clone()),
            tensor => TripCount::Slot(self.argument_slot(tensor)?),
        };
        let first = match known_number(self.graph, first) {
            Some(number) if number.to_f64() != 0.0 => None,
            _ => Some(self.argument_slot(first)?),
        };
        let carried_slots = self.result_slots(node)?;
        for (argument, slot) in inputs.iter().zip(&carried_slots) {
            self.copy_to(argument, *slot)?;
        }
        let constants = self.argument_slots(inputs.get(carried..).unwrap_or_default())?;
        let iteration = Argument::Number(Scalar::Int(0));
        let arguments = [std::slice::from_ref(&iteration), inputs].concat();
        let body = PlannedBody {
            graph: self.in_enclosing_sizes(body, &arguments),
            input_slots: [vec![None], carried_slots.clone(), constants].concat(),
            output_slots: vec![None; 1 + carried],
        };
        let (body, next_condition) =
            self.plan_body(node, &body, |planner| planner.end_iteration(&carried_slots))?;
        Ok(FlowKind::Loop {
            trips,
            initial_condition: first,
            next_condition,
            body,
        })
    }

    /// Ends a loop's body: once all new values of carried values are computed, copies them to `carried_slots`. Returns
    /// the slot of the condition for another iteration; `None` if that is always true.
    fn end_iteration(&mut self, carried_slots: &[Option<SlotId>]) -> Result<Option<SlotId>> {
        let graph = self.graph;
        let [condition, next @ ..] = graph.outputs.as_slice() else {
            return Err(Error::internal(
                "the body of a loop must return the next condition",
            ));
        };
        for (index, (value, slot)) in next.iter().zip(carried_slots).enumerate() {
            if graph.inputs.get(index + 1) != Some(value) {
                self.copy_to(&Argument::Value(*value), *slot)?;
            }
        }
        let condition = Argument::Value(*condition);
        match known_number(graph, &condition) {
            Some(number) if number.to_f64() != 0.0 => Ok(None),
            _ => self.argument_slot(&condition).map(Some),
        }
    }

    /// Plans a body as a block of steps of the same plan, then calls `last`. Returns the block and the result of
    /// `last`.
    fn plan_body<T: Default>(
        &mut self,
        region: &Node,
        body: &PlannedBody,
        last: impl FnOnce(&mut Planner) -> Result<T>,
    ) -> Result<(StepBlock, T)> {
        let PlannedBody {
            graph,
            input_slots,
            output_slots,
        } = body;
        let name = region.results.first().map(|id| &self.graph.value(*id).name);
        let name = name.map_or("", String::as_str);
        let prefix = format!("{}{name}/", self.prefix);
        let region_index = region
            .results
            .first()
            .map(|id| &self.graph.value(*id).definition);
        let region_index = match region_index {
            Some(Definition::Node(index, _)) => Some(*index),
            _ => None,
        };
        let order = self.order.iter().copied().chain(region_index).collect();
        let fusion = Fusion::of(graph, self.capabilities, self.request.within(&prefix))?;
        let start = self.builder.plan.steps.len();
        let mut written = vec![false; graph.values.len()];
        let mut slots = BTreeMap::new();
        for (id, slot) in graph.inputs.iter().zip(input_slots) {
            if let Some(slot) = slot {
                let kind = &self.builder.plan.slots[slot.0].kind;
                written[id.index()] = !matches!(kind, SlotKind::Input(_) | SlotKind::Weight(_));
                slots.insert((*id, false), *slot);
            }
        }
        for (id, slot) in graph.outputs.iter().zip(output_slots) {
            slots.extend(slot.map(|slot| ((*id, false), slot)));
        }
        let mut planner = Planner {
            graph,
            capabilities: self.capabilities,
            request: self.request,
            fusion: &fusion,
            builder: self.builder,
            slots,
            converted: BTreeMap::new(),
            written: &written,
            prefix,
            order,
            makes_checks: true,
            host_values: custom::host_values(graph),
            outputs: graph.outputs.iter().copied().collect(),
            flows: Vec::new(),
        };
        let mut value = T::default();
        planner.run(|planner| last(planner).map(|result| value = result))?;
        let flows = planner.flows;
        let steps = start..self.builder.plan.steps.len();
        Ok((StepBlock { steps, flows }, value))
    }

    /// A region's body with its sizes expressed in those of this graph. `arguments` are the inputs of the body.
    fn in_enclosing_sizes(&self, body: &Graph, arguments: &[Argument]) -> Graph {
        body.with_sizes_of(arguments, |id| self.graph.ty(id).clone())
    }

    /// Slot of an argument of a region, which must be a tensor.
    fn argument_slot(&mut self, argument: &Argument) -> Result<SlotId> {
        match argument {
            Argument::Value(id) => {
                // A body reads weights in rows.
                self.count_whole_row_reads(*id);
                self.slot(*id, false)
            }
            _ => Err(Error::internal(
                "an argument of a region must be a value, number or size",
            )),
        }
    }

    fn argument_slots(&mut self, arguments: &[Argument]) -> Result<Vec<Option<SlotId>>> {
        let slots = arguments.iter();
        slots
            .map(|argument| self.argument_slot(argument).map(Some))
            .collect()
    }

    fn result_slots(&mut self, node: &Node) -> Result<Vec<Option<SlotId>>> {
        let results = node.results.iter();
        results.map(|id| self.slot(*id, false).map(Some)).collect()
    }

    /// Adds a step that copies a value to a slot.
    fn copy_to(&mut self, argument: &Argument, slot: Option<SlotId>) -> Result<()> {
        let (Argument::Value(id), Some(slot)) = (argument, slot) else {
            return Err(Error::internal("a value carried by a loop is not a tensor"));
        };
        let previous = self.slots.insert((*id, true), slot);
        self.copy_to_slot(*id)?;
        self.slots.remove(&(*id, true));
        self.slots.extend(previous.map(|slot| ((*id, true), slot)));
        Ok(())
    }
}
