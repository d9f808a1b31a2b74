//! One check: a graph on a device against the host.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::compare::{Difference, Tolerance, compare_tensors};
use crate::dim::Bindings;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::gpu::{GpuDevice, Program, ProgramOptions};
use crate::interp;
use crate::ir::{Graph, GraphModule};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::choice::{KernelVariant, VariantOverrides};
use crate::kernel::materialization::Precision;
use crate::kernel::plan::Plan;
use crate::pass::{self, FoldedModule};
use crate::plan::{self, PlanOptions};
use crate::random::Lcg;
use crate::tensor::Tensor;

use super::cases::DoctorCase;

/// Result of a check.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CheckVerdict {
    /// Every element is within its tolerance.
    Passed,
    /// A number differs, or the device failed; with the reason.
    Failed(String),
    /// The device lacks a feature or a limit, so that no kernels were made; with the reason.
    Refused(String),
    /// The check did not run; with the reason.
    Skipped(String),
}

/// A graph that was computed on a device, and its comparison with the host.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DoctorCheck {
    /// Family of kernels.
    pub group: &'static str,
    /// Name within the group; ends with the kernel variant if one was requested.
    pub name: String,
    /// The result.
    pub verdict: CheckVerdict,
    /// Comparison of each output with the host's: the worst of all runs. Empty if there are no outputs.
    pub differences: Vec<Difference>,
    /// Labels of the kernels that ran.
    pub kernels: Vec<String>,
    /// Time to plan and to compile the kernels.
    pub compile: Duration,
    /// Time of the fastest run.
    pub run: Duration,
    /// The graph in the text form.
    pub graph: String,
}

/// A case with its inputs and the host's results.
pub(super) struct PreparedCase {
    pub(super) case: DoctorCase,
    /// The graph as it is planned, with its weights.
    folded: FoldedModule,
    /// Inputs and expected outputs, for one or two combinations of sizes.
    runs: Vec<(Vec<Tensor>, Vec<Tensor>)>,
}

/// Outputs of a case on a device.
pub(super) struct ComputedCase {
    /// Outputs of each run, two for each of the case's inputs.
    outputs: Vec<Vec<Tensor>>,
    pub(super) kernels: Vec<String>,
    /// Kernel variants of the plan.
    pub(super) variants: BTreeSet<KernelVariant>,
    pub(super) compile: Duration,
    pub(super) run: Duration,
}

impl PreparedCase {
    /// Draws inputs and weights, and computes the results on the host.
    ///
    /// # Errors
    /// The graph is malformed, or the host refuses the inputs.
    pub(super) fn new(case: DoctorCase) -> Result<PreparedCase> {
        let mut module = case.module()?;
        let mut random = Lcg::of_text(&case.name);
        for weight in case.declarations()?.iter().filter(|input| input.is_weight) {
            let tensor = weight.tensor(&Bindings::new(), &mut random)?;
            module.weights.insert(weight.name.clone(), tensor);
        }
        let graph = pass::decompose(module.graph("case")?)?;
        let runs = sizes_of_runs(&graph).into_iter();
        let runs = runs.map(|sizes| run_on_host(&case, &graph, &module, &sizes, &mut random));
        Ok(PreparedCase {
            runs: runs.collect::<Result<_>>()?,
            folded: pass::optimize_lazily(&module)?,
            case,
        })
    }

    /// The graph as it is planned.
    pub(super) fn graph(&self) -> Result<&Graph> {
        let graph = self.folded.graphs.first();
        graph.ok_or_else(|| Error::internal("the passes lost the graph"))
    }

    /// Kernel variants that the products and convolutions of the graph may use on a device.
    pub(super) fn admitted(&self, capabilities: &Capabilities) -> Result<BTreeSet<KernelVariant>> {
        let admitted = plan::admitted(self.graph()?, capabilities, self.case.precision)?;
        Ok(admitted.into_values().flatten().collect())
    }

    /// Computes the case on a device, by a kernel variant if one is given. `None` if the variant cannot be used after all.
    ///
    /// # Errors
    /// Fails if the device cannot compute the graph, or fails to.
    pub(super) fn compute(
        &self,
        device: &GpuDevice,
        variant: Option<KernelVariant>,
    ) -> Result<Option<ComputedCase>> {
        let start = Instant::now();
        let Some(plan) = self.plan(device.capabilities(), variant)? else {
            return Ok(None);
        };
        let options = ProgramOptions {
            release_memory: false,
            ..ProgramOptions::default()
        };
        let program = Program::from_source(device, plan, &self.folded, options)?;
        let compile = start.elapsed();
        let (outputs, run) = self.run_twice(&program)?;
        Ok(Some(ComputedCase {
            outputs,
            kernels: labels(program.plan()),
            variants: variants(program.plan()),
            compile,
            run,
        }))
    }

    /// Runs a program with all inputs, twice each: the second run reuses memory of the first. Returns the fastest time.
    fn run_twice(&self, program: &Program) -> Result<(Vec<Vec<Tensor>>, Duration)> {
        let (mut outputs, mut fastest) = (Vec::new(), Duration::MAX);
        for (inputs, _) in self.runs.iter().flat_map(|run| [run, run]) {
            let start = Instant::now();
            outputs.push(program.run(inputs)?);
            fastest = fastest.min(start.elapsed());
        }
        Ok((outputs, fastest))
    }

    /// The plan for a device, by a kernel variant if one is given; `None` if the variant is not used: no step has it, and there
    /// are no further steps because sums are split.
    pub(super) fn plan(
        &self,
        capabilities: &Capabilities,
        variant: Option<KernelVariant>,
    ) -> Result<Option<Plan>> {
        let Some(variant) = variant else {
            let plan = self.plan_with(capabilities, VariantOverrides::new());
            return plan.map(Some);
        };
        let admitted = plan::admitted(self.graph()?, capabilities, self.case.precision)?;
        let requested = |variant| {
            let overrides = admitted.keys().map(|key| (key.clone(), variant)).collect();
            self.plan_with(capabilities, overrides)
        };
        let plan = requested(variant)?;
        let is_used = match variant {
            KernelVariant::SplitK { .. } => {
                plan.steps.len() > requested(KernelVariant::Portable)?.steps.len()
            }
            variant => variants(&plan).contains(&variant),
        };
        Ok(is_used.then_some(plan))
    }

    fn plan_with(
        &self,
        capabilities: &Capabilities,
        variant_overrides: VariantOverrides,
    ) -> Result<Plan> {
        let options = PlanOptions {
            variant_overrides,
            precision: self.case.precision,
        };
        plan::plan_with_options(self.graph()?, capabilities, &options)
    }

    /// Compares the outputs of all runs with the host's. Returns the worst difference of each output.
    pub(super) fn compare(&self, computed: &ComputedCase) -> Vec<Difference> {
        let mut worst: Vec<Difference> = Vec::new();
        let expected = self
            .runs
            .iter()
            .flat_map(|(_, expected)| [expected, expected]);
        for (found, expected) in computed.outputs.iter().zip(expected) {
            let differences = self.compare_outputs(found, expected);
            match worst.is_empty() {
                true => worst = differences,
                false => worst = worst.into_iter().zip(differences).map(worse).collect(),
            }
        }
        worst
    }

    fn compare_outputs(&self, found: &[Tensor], expected: &[Tensor]) -> Vec<Difference> {
        if found.len() != expected.len() {
            let why = format!("{} outputs instead of {}", found.len(), expected.len());
            return vec![Difference::incomparable("", why)];
        }
        let pairs = found.iter().zip(expected).enumerate();
        let compare = |(index, (found, expected)): (usize, (&Tensor, &Tensor))| {
            let tolerance = tolerance(expected.dtype(), self.case.precision);
            compare_tensors(&index.to_string(), found, expected, tolerance)
        };
        pairs.map(compare).collect()
    }
}

/// Sizes of the symbols in each run: those of the example, and larger ones.
fn sizes_of_runs(graph: &Graph) -> Vec<Bindings> {
    let sizes = graph.hints.clone();
    if sizes.is_empty() {
        return vec![sizes];
    }
    let larger = sizes
        .iter()
        .map(|(symbol, size)| (symbol.clone(), 8 * size + 3));
    let larger = larger.collect();
    vec![sizes, larger]
}

fn run_on_host(
    case: &DoctorCase,
    graph: &Graph,
    module: &GraphModule,
    sizes: &Bindings,
    random: &mut Lcg,
) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
    let declarations = case.declarations()?.into_iter();
    let inputs = declarations.filter(|input| !input.is_weight);
    let inputs = inputs.map(|input| input.tensor(sizes, random));
    let inputs = inputs.collect::<Result<Vec<Tensor>>>()?;
    let outputs = interp::run(graph, &module.weights, &inputs)?;
    Ok((inputs, outputs))
}

/// Tolerance of `verify` and of recorded cases; types and storage of half precision have that of `--dtype f16`.
fn tolerance(dtype: DType, precision: Precision) -> Tolerance {
    let is_half = precision == Precision::Half || matches!(dtype, DType::F16 | DType::BF16);
    match is_half {
        true => Tolerance::HALF,
        false => Tolerance::SINGLE,
    }
}

/// The difference that failed, or the larger one.
fn worse((a, b): (Difference, Difference)) -> Difference {
    let rank =
        |difference: &Difference| (!difference.passed(), difference.wrong, difference.max_abs);
    if rank(&b) > rank(&a) { b } else { a }
}

/// Distinct labels of a plan's kernels, in the order of its steps.
fn labels(plan: &Plan) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    for step in &plan.steps {
        let label = &plan.kernels[step.kernel].label;
        if !labels.contains(label) {
            labels.push(label.clone());
        }
    }
    labels
}

/// Kernel variants of a plan's steps.
fn variants(plan: &Plan) -> BTreeSet<KernelVariant> {
    let choices = plan.steps.iter().filter_map(|step| step.choice.as_ref());
    choices.map(|choice| choice.variant).collect()
}

#[cfg(test)]
mod tests {
    use super::super::cases::all_cases;
    use super::*;

    /// A case with one output of two elements, and a result of a device.
    fn compared(found: Vec<f32>, shape: [usize; 1]) -> Vec<Difference> {
        let case = DoctorCase::new(
            "g",
            "n",
            "x: f32[2]",
            "y = mul x, 2.0; return y",
            Precision::Single,
        );
        let mut prepared = PreparedCase::new(case).unwrap();
        let expected = Tensor::from_vec([2], vec![1.0f32, -3.0]).unwrap();
        prepared.runs[0].1 = vec![expected.clone()];
        let found = Tensor::from_vec(shape, found).unwrap();
        let computed = ComputedCase {
            outputs: vec![vec![expected], vec![found]],
            kernels: Vec::new(),
            variants: BTreeSet::new(),
            compile: Duration::ZERO,
            run: Duration::ZERO,
        };
        prepared.compare(&computed)
    }

    #[test]
    fn equal_outputs_pass() {
        assert!(compared(vec![1.0, -3.0], [2])[0].passed());
        assert!(compared(vec![1.000_01, -3.000_01], [2])[0].passed());
    }

    /// Every fault is found, in the second run too.
    #[test]
    fn wrong_outputs_fail() {
        let wrong = compared(vec![1.0, -3.1], [2]);
        assert_eq!(
            (wrong[0].worst.as_slice(), wrong[0].wrong),
            ([1].as_slice(), 1)
        );
        assert!(!wrong[0].passed() && wrong[0].to_string().contains("instead of -3"));
        assert!(!compared(vec![f32::NAN, -3.0], [2])[0].passed());
        assert!(!compared(vec![f32::INFINITY, -3.0], [2])[0].passed());
        assert!(!compared(vec![1.0], [1])[0].passed());
    }

    /// Rows with special values have their own check, `elementwise: infinities and not-a-number`.
    const UNIFORM: [&str; 3] = ["isnan", "eq", "ne"];

    /// Results that are all equal, infinite or not-a-number on the host would hide faults.
    #[test]
    fn results_on_the_host_tell_faults() {
        let mut dull = Vec::new();
        for case in all_cases().unwrap() {
            let prepared = PreparedCase::new(case).unwrap();
            let outputs = prepared.runs.iter().flat_map(|(_, outputs)| outputs);
            let name = &prepared.case.name;
            if !outputs.into_iter().any(tells_faults) && !UNIFORM.contains(&name.as_str()) {
                dull.push(format!("{}: {name}", prepared.case.group));
            }
        }
        assert!(dull.is_empty(), "{}", dull.join("\n"));
    }

    fn tells_faults(output: &Tensor) -> bool {
        let numbers = output.to_f64();
        let finite = numbers.iter().filter(|number| number.is_finite());
        4 * finite.count() >= numbers.len()
            && (numbers.len() == 1 || numbers.iter().any(|number| *number != numbers[0]))
    }
}
