//! Cases of modules that PyTorch recorded: inputs, state dict and outputs, which `tests/fixtures/make_module_cases.py` writes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use onionskin::ir::Weights;
use onionskin::tensor::Tensor;
use onionskin::tensor_file;
use onionskin::trace::{Module, TracedTensor, load_state_dict, state, trace_fn};

/// The recorded cases by label, and the failures so far.
pub struct Cases {
    recorded: BTreeMap<String, Weights>,
    checked: BTreeSet<String>,
    failures: Vec<String>,
}

impl Cases {
    pub fn read() -> Cases {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let file = fixtures.join("module_cases.safetensors");
        let mut recorded: BTreeMap<String, Weights> = BTreeMap::new();
        for (name, tensor) in tensor_file::read(&file).unwrap() {
            let (label, name) = name.split_once('/').unwrap();
            let case = recorded.entry(label.to_string()).or_default();
            case.insert(name.to_string(), tensor);
        }
        let (checked, failures) = Default::default();
        Cases {
            recorded,
            checked,
            failures,
        }
    }

    /// Labels of all recorded cases: the name of a module and, after a space, what is special about it.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.recorded.keys().map(String::as_str)
    }

    /// A tensor of a case: `in0`, `out0`, or `state/weight`.
    fn tensor(&self, label: &str, name: &str) -> Option<&Tensor> {
        self.recorded.get(label)?.get(name)
    }

    /// The tensors `{prefix}0`, `{prefix}1` … of a case.
    fn list(&self, label: &str, prefix: &str) -> Vec<Tensor> {
        let tensors = (0..).map_while(|index| self.tensor(label, &format!("{prefix}{index}")));
        tensors.cloned().collect()
    }

    /// The recorded weight of classes or elements of a loss.
    pub fn weight(&self, label: &str, name: &str) -> Tensor {
        self.tensor(label, &format!("state/{name}"))
            .unwrap()
            .clone()
    }

    /// Compares a module with the recorded case.
    pub fn check<M: Module, O: Outputs, const N: usize>(
        &mut self,
        label: &str,
        module: M,
        call: impl Fn(&M, [&TracedTensor; N]) -> O,
    ) {
        let failure = self.failure(label, &module, call);
        self.failures
            .extend(failure.map(|failure| format!("{label}: {failure}")));
        assert!(
            self.checked.insert(label.to_string()),
            "{label} is twice in the table"
        );
    }

    /// How the module differs from the recorded case.
    fn failure<M: Module, O: Outputs, const N: usize>(
        &self,
        label: &str,
        module: &M,
        call: impl Fn(&M, [&TracedTensor; N]) -> O,
    ) -> Option<String> {
        let Some(case) = self.recorded.get(label) else {
            return Some("is not recorded".to_string());
        };
        let entries = case.iter().filter_map(|(name, tensor)| {
            Some((name.strip_prefix("state/")?.to_string(), tensor.clone()))
        });
        if let Err(error) = load_state_dict(module, &entries.collect()) {
            let keys: Vec<String> = state(module).into_iter().map(|(path, _)| path).collect();
            return Some(format!("{error}; the module has {keys:?}"));
        }
        let inputs: Vec<TracedTensor> =
            self.list(label, "in").into_iter().map(Into::into).collect();
        let run = |inputs: Vec<TracedTensor>| {
            let inputs: Vec<&TracedTensor> = inputs.iter().collect();
            call(module, inputs.try_into().unwrap()).list()
        };
        let wanted = self.list(label, "out");
        if let Some(difference) = difference(&run(inputs.clone()), &wanted) {
            return Some(difference);
        }
        let traced = match trace_fn(inputs.clone(), run) {
            Ok(traced) => traced,
            Err(error) => return Some(format!("trace: {error}")),
        };
        let again: Vec<TracedTensor> = traced.call(inputs).unwrap();
        let warning = traced
            .warnings
            .first()
            .map(|warning| warning.message.clone());
        difference(&again, &wanted).or(warning)
    }

    /// Requires that all cases were checked, and that none failed.
    pub fn finish(self) {
        let missing: Vec<&String> = (self.recorded.keys())
            .filter(|label| !self.checked.contains(*label))
            .collect();
        assert!(missing.is_empty(), "not in the table: {missing:?}");
        assert!(self.failures.is_empty(), "{}", self.failures.join("\n"));
    }
}

/// The first difference of results beyond rounding.
fn difference(found: &[TracedTensor], wanted: &[Tensor]) -> Option<String> {
    if found.len() != wanted.len() {
        return Some(format!("{} results, not {}", found.len(), wanted.len()));
    }
    let mut pairs = found.iter().zip(wanted);
    pairs.find_map(|(found, wanted)| {
        let found = match found.to_host() {
            Ok(found) => found,
            Err(error) => return Some(error.to_string()),
        };
        if found.tensor_type() != wanted.tensor_type() {
            return Some(format!(
                "{:?}, not {:?}",
                found.tensor_type(),
                wanted.tensor_type()
            ));
        }
        let floats = |tensor: &Tensor| TracedTensor::from(tensor.clone()).to_vec::<f64>().unwrap();
        let (found, wanted) = (floats(&found), floats(wanted));
        let differs = |(a, b): &(&f64, &f64)| {
            let is_equal = a == b || a.is_nan() && b.is_nan();
            !is_equal && ((*a - *b).abs() > 2e-6 + 1e-5 * b.abs() || a.is_nan() || b.is_nan())
        };
        let index = found.iter().zip(&wanted).position(|pair| differs(&pair))?;
        Some(format!(
            "element {index} is {}, not {}",
            found[index], wanted[index]
        ))
    })
}

/// Results of a call, in order.
pub trait Outputs {
    fn list(self) -> Vec<TracedTensor>;
}

impl Outputs for TracedTensor {
    fn list(self) -> Vec<TracedTensor> {
        vec![self]
    }
}

impl<A: Outputs, B: Outputs> Outputs for (A, B) {
    fn list(self) -> Vec<TracedTensor> {
        [self.0.list(), self.1.list()].concat()
    }
}

impl<A: Outputs> Outputs for Option<A> {
    fn list(self) -> Vec<TracedTensor> {
        self.map(Outputs::list).unwrap_or_default()
    }
}

impl<const N: usize> Outputs for [TracedTensor; N] {
    fn list(self) -> Vec<TracedTensor> {
        self.into()
    }
}
