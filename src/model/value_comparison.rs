//! Comparison of every value that a device keeps with the oracle, which interprets the graph.

use serde_json::{Value as Json, json};

use crate::compare::{Difference, Tolerance};
use crate::error::Result;
use crate::item::Item;
use crate::trace::check::{Divergence, ValueSite, value_difference};

use super::Session;
use super::oracle_runs::{OracleRuns, SearchOptions, SearchProgress, ValueReader};

/// A value of a device, compared with the oracle's.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ComparedValue {
    /// The value in the graph that the device runs.
    pub site: ValueSite,
    /// The difference of the value. Its relative tolerance refers to the largest expected element.
    pub difference: Difference,
}

/// Comparison of all values that a device keeps.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ValueComparison {
    /// The values, in the order in which the oracle computes them. Values that were fused into kernels exist only on the
    /// oracle and are left out.
    pub values: Vec<ComparedValue>,
    /// Progress when the time limit passed; `None` if all values were compared.
    pub stopped: Option<SearchProgress>,
}

impl ComparedValue {
    /// The figures of [`Difference::to_json`], after the value's name and its operation, and before its place.
    pub fn to_json(&self) -> Json {
        let ValueSite {
            value, op, place, ..
        } = &self.site;
        let mut object = serde_json::Map::new();
        object.insert("value".to_string(), json!(value));
        object.insert("op".to_string(), json!(op));
        if let Json::Object(figures) = self.difference.to_json() {
            object.extend(figures);
        }
        let location = place.location.as_ref().map(ToString::to_string);
        object.insert("module".to_string(), json!(place.module));
        object.insert("location".to_string(), json!(location));
        Json::Object(object)
    }

    /// Share of wrong elements; infinite if the value cannot be compared.
    fn wrong_share(&self) -> f64 {
        match &self.difference.incomparable {
            Some(_) => f64::INFINITY,
            None => self.difference.wrong as f64 / self.difference.numel.max(1) as f64,
        }
    }
}

impl ValueComparison {
    /// The first value beyond its tolerance.
    pub fn first_divergence(&self) -> Option<Divergence> {
        let mut values = self.values.iter();
        let first = values.find(|value| !value.difference.passed())?;
        Some(Divergence::new(
            first.site.clone(),
            first.difference.clone(),
        ))
    }

    /// The values with the largest share of wrong elements first; among equal ones, those with the largest absolute
    /// difference first.
    pub fn worst_first(&self) -> Vec<&ComparedValue> {
        let mut values: Vec<&ComparedValue> = self.values.iter().collect();
        values.sort_by(|a, b| {
            let shares = b.wrong_share().total_cmp(&a.wrong_share());
            shares.then(b.difference.max_abs.total_cmp(&a.difference.max_abs))
        });
        values
    }
}

/// Runs a call on a session's device and on the oracle, and compares every value of the graph that has memory of its own
/// on the device. Results of regions are compared, values within their bodies are not.
///
/// Memory is bounded as for [`first_divergence`](super::first_divergence). There are no values if the host runs the
/// session: it is the oracle.
///
/// # Errors
/// Fails if the call fails on either side.
pub fn compare_values(
    session: &Session,
    arguments: &[Item],
    tolerance: Tolerance,
    options: SearchOptions,
) -> Result<ValueComparison> {
    let (compiled, inputs) = session.compile_for(arguments)?;
    let Some(program) = &compiled.program else {
        return Ok(ValueComparison::default());
    };
    let weights = compiled.weights()?;
    let oracle = OracleRuns::new(weights.as_ref(), options.limit);
    let graph = &compiled.lowered;
    let mut reader = ValueReader::new(program, graph, compiled.bind(&inputs)?, &inputs);
    let mut values = Vec::new();
    let outcome = oracle.run(graph, &inputs, options.progress, &mut |event| {
        if event.frame.is_some() {
            return Ok(());
        }
        for (id, expected) in event.node.results.iter().zip(event.results) {
            let site = ValueSite::of_result(event, *id);
            if let Some(got) = reader.take(&site.value)? {
                let difference = value_difference(&site.value, &got, expected, tolerance);
                values.push(ComparedValue { site, difference });
            }
        }
        Ok(())
    });
    let stopped = oracle.take_stopped();
    match (outcome, stopped) {
        (Err(error), None) => Err(error),
        _ => Ok(ValueComparison { values, stopped }),
    }
}
