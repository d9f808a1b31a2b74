//! Outputs without a single number: all elements are NaN.

use super::checker::Checker;
use super::evaluate::inputs;
use super::value_site::ValueSite;
use super::{Finding, Id};
use crate::error::Result;
use crate::interp;
use crate::item::Item;
use crate::tensor::Tensor;

impl Checker<'_> {
    /// Reports the outputs of `result`, the result for the arguments `set`, that are all NaN.
    pub(super) fn report_not_a_number(&mut self, label: &str, set: &[Item], result: &Item) {
        for (path, leaf) in result.leaves() {
            let Item::Tensor(tensor) = leaf else { continue };
            if tensor.numel() > 0 && count_nan(tensor) == tensor.numel() {
                let count = tensor.numel();
                let message = format!("output{path}: all elements ({count}) are NaN");
                let finding = Finding::new(Id::NotANumber, message);
                let finding = match self.first_nan(set) {
                    Ok(Some(site)) => finding
                        .at(&site.place)
                        .with_value_name(&site.value)
                        .details([format!(
                            "{} ({}) is the first value with a NaN",
                            site.value, site.op
                        )]),
                    _ => finding,
                };
                self.report.add(finding, label);
            }
        }
    }

    /// The first value of the graph that has a NaN.
    fn first_nan(&self, set: &[Item]) -> Result<Option<ValueSite>> {
        let inputs = inputs(self.graph, &self.traced.module, set)?;
        let mut first = None;
        let weights = &self.traced.module.weights;
        interp::run_observed(self.graph, weights, &inputs, &mut |event| {
            if first.is_none() && event.results.iter().any(|result| count_nan(result) > 0) {
                first = Some(ValueSite::of_first_result(event));
            }
            Ok(())
        })?;
        Ok(first)
    }
}

/// Number of elements that are NaN.
fn count_nan(tensor: &Tensor) -> usize {
    if !tensor.dtype().is_float() {
        return 0;
    }
    tensor
        .to_f64()
        .into_iter()
        .filter(|value| value.is_nan())
        .count()
}
