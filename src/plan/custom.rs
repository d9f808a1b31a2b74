//! User-defined operators: a shader with declared buffers, or a call of a host function between steps.

use std::collections::{BTreeSet, HashSet};

use super::Planner;
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::{Definition, Graph, Node, Op, Primitive, ValueId};
use crate::kernel::dialect::enable_directives;
use crate::kernel::emit::BindingDecl;
use crate::kernel::plan::{Flow, FlowKind, Kernel, SlotId, Workgroups};
use crate::kernel::shader;
use crate::op::{Custom, Shader};
use crate::plan::group::Group;
use crate::plan::kernel::{GeneratedKernel, declarations};

/// Operands and results of host functions.
pub fn host_values(graph: &Graph) -> HashSet<ValueId> {
    let calls = graph.nodes.iter().filter(|node| {
        matches!(&node.op, Op::Primitive(Primitive::Custom(custom)) if custom.shader.is_none())
    });
    let values = calls.flat_map(|node| [node.operands(), node.results.clone()].concat());
    values.collect()
}

impl Planner<'_> {
    /// Plans a user-defined operator.
    pub(super) fn custom(&mut self, node: &Node, custom: &Custom, group: &Group) -> Result<()> {
        match &custom.shader {
            Some(shader) => self.custom_shader(node, custom, shader, group),
            None => self.host_call(node, custom),
        }
    }

    fn host_call(&mut self, node: &Node, custom: &Custom) -> Result<()> {
        let operands = node
            .operands()
            .into_iter()
            .map(|id| self.host_operand_slot(id));
        let operands = operands.collect::<Result<_>>()?;
        let results = node.results.iter().map(|id| self.slot(*id, false));
        let results = results.collect::<Result<_>>()?;
        let names = node.results.iter();
        self.flows.push(Flow {
            kind: FlowKind::Host {
                function: custom.host()?,
                operands,
                results,
                step: self.builder.plan.steps.len(),
            },
            nodes: names.map(|id| self.graph.value(*id).name.clone()).collect(),
            place: node.place.clone(),
        });
        Ok(())
    }

    /// Slot from which an operand is read back. Inputs and weights are copied first.
    fn host_operand_slot(&mut self, value: ValueId) -> Result<SlotId> {
        let is_node_result = matches!(self.graph.value(value).definition, Definition::Node(..));
        if !is_node_result && !self.slots.contains_key(&(value, true)) {
            self.copy_to_slot(value)?;
        }
        self.slot(value, !is_node_result)
    }

    fn custom_shader(
        &mut self,
        node: &Node,
        custom: &Custom,
        shader: &Shader,
        group: &Group,
    ) -> Result<()> {
        let mut scope = self.scope();
        let operands = node.operands();
        let mut names = Vec::new();
        for (letter, values) in [("x", &operands), ("y", &node.results)] {
            for (index, value) in values.iter().enumerate() {
                scope.bind_buffer(*value)?;
                names.push((format!("{letter}{index}"), *value));
            }
        }
        if scope.buffers.len() != names.len() {
            let message = format!(
                "{}: one tensor is bound to two operands, which a shader cannot bind",
                custom.function
            );
            return Err(Error::plan(message)
                .help("pass a copy of the tensor, or declare one operand and read it twice"));
        }
        let pairs = scope.buffers.iter().zip(&names);
        let buffers: Vec<BindingDecl> = pairs
            .map(|(binding, (name, _))| BindingDecl {
                name: name.clone(),
                ..binding.buffer.clone()
            })
            .collect();
        let (sizes, functions) = self.size_functions(&names);
        let sizes_in = self.capabilities.sizes_space();
        let declared = declarations(&buffers, sizes.len(), sizes_in);
        let text = declared + &functions + &shader.wgsl;
        let wgsl = enable_directives(&text) + &text;
        shader::validate(&wgsl, self.capabilities).map_err(|error| error.at(&custom.function))?;
        let kernel = Kernel {
            label: custom.function.clone(),
            wgsl,
            bindings: buffers.iter().map(|buffer| buffer.access).collect(),
            sizes: sizes.len(),
            sizes_space: sizes_in,
            zeroes_workgroup_memory: true,
        };
        let generated = GeneratedKernel {
            checks: Vec::new(),
            kernel,
            sizes,
            workgroups: Workgroups::Grid(shader.workgroups.clone()),
            bindings: scope.buffers,
            choice: None,
            work: None,
            scalar_writes: BTreeSet::new(),
            source: None,
        };
        self.add_step(generated, group, None)
    }

    /// Concatenated sizes of all buffers, and a WGSL function for each buffer that returns its sizes.
    fn size_functions(&self, names: &[(String, ValueId)]) -> (Vec<Dim>, String) {
        let mut sizes: Vec<Dim> = Vec::new();
        let mut functions = String::new();
        for (name, value) in names {
            let first = sizes.len();
            sizes.extend(self.graph.ty(*value).shape.iter().cloned());
            if first < sizes.len() {
                functions += &format!(
                    "\nfn {name}_size(axis: u32) -> u32 {{\n    let place = axis + {first}u;\n    \
                     return sizes[place / 4u][place % 4u];\n}}\n"
                );
            }
        }
        (sizes, functions + "\n")
    }
}
