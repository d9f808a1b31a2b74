//! The graphs that are computed on a device. A new kernel family gets a row in `checks.txt`.

use crate::dtype::DType;
use crate::error::{Error, ErrorContext, Result};
use crate::ir::GraphModule;
use crate::kernel::host::HostFunction;
use crate::kernel::materialization::Precision;
use crate::op;
use crate::tensor::Tensor;

use super::functions;
use super::inputs::{InputDeclaration, parse_inputs};

/// The rows: see the beginning of the file.
const ROWS: &str = include_str!("checks.txt");

/// Name of the operator that rows call as a host function.
const HOST_FUNCTION: &str = "onionskin::doctor";

/// A small graph whose results on a device are compared with the host's.
#[derive(Clone, Debug)]
pub(super) struct DoctorCase {
    /// Family of kernels.
    pub(super) group: &'static str,
    /// Name within the group.
    pub(super) name: String,
    inputs: String,
    /// Nodes in the text form, one a line.
    nodes: String,
    /// Storage of f32 values.
    pub(super) precision: Precision,
}

/// All cases, group by group. Registers the host function that some of them call.
///
/// # Errors
/// A row is malformed.
pub(super) fn all_cases() -> Result<Vec<DoctorCase>> {
    op::register(
        HOST_FUNCTION,
        HostFunction::new(HOST_FUNCTION, double_and_increment),
    );
    let mut cases = functions::cases();
    cases.extend(parse_rows(ROWS)?);
    Ok(cases)
}

/// `2 * x + 1`, as the shader in `checks.txt` computes it.
fn double_and_increment(operands: &[Tensor]) -> Result<Vec<Tensor>> {
    let double = |x: &Tensor| {
        let numbers = x.to_f64().iter().map(|x| 2.0 * x + 1.0).collect();
        Tensor::from_f64(DType::F32, x.shape(), numbers)
    };
    operands.iter().map(double).collect()
}

fn parse_rows(text: &'static str) -> Result<Vec<DoctorCase>> {
    let (mut cases, mut group, mut precision) = (Vec::<DoctorCase>::new(), "", Precision::Single);
    for line in text.lines() {
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        if let Some(heading) = line.strip_prefix("== ") {
            let (name, storage) = heading.split_once(" = ").unwrap_or((heading, "f32"));
            (group, precision) = (name, Precision::of(storage.parse()?)?);
            continue;
        }
        match (line.strip_prefix("  "), cases.last_mut()) {
            (Some(node), Some(case)) => case.nodes += &format!("  {node}\n"),
            _ => cases.push(parse_row(line, group, precision).at(|| line.to_string())?),
        }
    }
    Ok(cases)
}

fn parse_row(line: &str, group: &'static str, precision: Precision) -> Result<DoctorCase> {
    let mut parts = line.splitn(3, " |").map(str::trim);
    let (Some(name), Some(inputs), Some(nodes)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(Error::internal("a row of checks is malformed"));
    };
    Ok(DoctorCase::new(group, name, inputs, nodes, precision))
}

impl DoctorCase {
    /// A case whose nodes are separated by `; `.
    pub(super) fn new(
        group: &'static str,
        name: impl Into<String>,
        inputs: impl Into<String>,
        nodes: &str,
        precision: Precision,
    ) -> DoctorCase {
        let nodes = nodes.split("; ").filter(|node| !node.is_empty());
        DoctorCase {
            group,
            name: name.into(),
            inputs: inputs.into(),
            nodes: nodes.map(|node| format!("  {node}\n")).collect(),
            precision,
        }
    }

    /// The inputs and weights.
    pub(super) fn declarations(&self) -> Result<Vec<InputDeclaration>> {
        parse_inputs(&self.inputs)
    }

    /// The text form of the graph.
    pub(super) fn text(&self) -> Result<String> {
        let declarations = self.declarations()?.into_iter();
        let (weights, inputs): (Vec<_>, Vec<_>) = declarations.partition(|input| input.is_weight);
        let typed = |input: &InputDeclaration| format!("{}: {}", input.name, input.ty);
        let weights = weights.iter().map(typed);
        let weights: String = weights.map(|weight| format!("weight {weight}\n")).collect();
        let inputs: Vec<String> = inputs.iter().map(typed).collect();
        let (inputs, nodes) = (inputs.join(", "), &self.nodes);
        Ok(format!("{weights}graph case({inputs}) {{\n{nodes}}}\n"))
    }

    /// The graph, without weights.
    pub(super) fn module(&self) -> Result<GraphModule> {
        self.text()?.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_a_graph() {
        let mut faults = Vec::new();
        for case in all_cases().unwrap() {
            if let Err(error) = case.module() {
                faults.push(format!("{}, {}: {error}", case.group, case.name));
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
