//! Identifies a value within a run, also in the bodies of regions.

use std::fmt;

use super::canonical::first_result;
use crate::error::SourcePlace;
use crate::interp::{BodyFrame, BodyKind, NodeEvent};
use crate::ir::ValueId;

/// A value that a node computed, with the region bodies around the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValueSite {
    /// Name of the value, prefixed by the names of the enclosing regions: `steps/x`.
    pub value: String,
    /// The operation that computed it.
    pub op: String,
    /// Place in the user's model.
    pub place: SourcePlace,
    /// The enclosing region bodies, outermost first.
    pub enclosing: Vec<EnclosingBody>,
}

/// A region body that encloses a value.
#[derive(Clone, Debug, PartialEq)]
pub struct EnclosingBody {
    /// The body within the region.
    pub body: BodyKind,
    /// Name of the region's first result, prefixed like that of a [`ValueSite`].
    pub region: String,
    /// `if`, `loop` or `call`.
    pub op: String,
    /// The region's place in the user's model.
    pub place: SourcePlace,
}

impl ValueSite {
    /// Describes the result `id` of a node that has run.
    pub fn of_result(event: &NodeEvent, id: ValueId) -> ValueSite {
        ValueSite {
            value: event.graph.value(id).name.clone(),
            op: event.node.op.name().to_string(),
            place: event.node.place.clone(),
            enclosing: Vec::new(),
        }
        .enclosed_by(event.frame)
    }

    /// Describes the first result of a node that has run.
    pub fn of_first_result(event: &NodeEvent) -> ValueSite {
        let first = event.node.results.first();
        first.map_or_else(ValueSite::default, |id| ValueSite::of_result(event, *id))
    }

    /// A key that distinguishes the value from those of other loop iterations and branches.
    pub fn key(&self) -> (String, Vec<BodyKind>) {
        let bodies = self.enclosing.iter().map(|enclosing| enclosing.body);
        (self.value.clone(), bodies.collect())
    }

    /// Adds the enclosing regions to a site within a region body, up to the graph that was called.
    #[must_use]
    pub fn enclosed_by(mut self, frame: Option<&BodyFrame>) -> ValueSite {
        let mut next = frame;
        while let Some(frame) = next {
            let region = first_result(frame.graph, frame.region).unwrap_or_default();
            self.value = format!("{region}/{}", self.value);
            for enclosing in &mut self.enclosing {
                enclosing.region = format!("{region}/{}", enclosing.region);
            }
            let enclosing = EnclosingBody {
                body: frame.kind,
                region,
                op: frame.region.op.name().to_string(),
                place: frame.region.place.clone(),
            };
            self.enclosing.insert(0, enclosing);
            next = frame.outer;
        }
        self
    }
}

impl fmt::Display for ValueSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} = {}{}",
            self.value,
            self.op,
            place_suffix(&self.place)
        )?;
        for enclosing in self.enclosing.iter().rev() {
            write!(f, "\n  in {enclosing}")?;
        }
        Ok(())
    }
}

impl fmt::Display for EnclosingBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.body {
            BodyKind::Body => write!(f, "the body")?,
            BodyKind::Then => write!(f, "the true branch")?,
            BodyKind::Otherwise => write!(f, "the false branch")?,
            BodyKind::Iteration(trip) => write!(f, "iteration {}", trip + 1)?,
        }
        write!(
            f,
            " of {} = {}{}",
            self.region,
            self.op,
            place_suffix(&self.place)
        )
    }
}

/// A source place for the end of a line; empty if unknown.
fn place_suffix(place: &SourcePlace) -> String {
    match place.is_unknown() {
        true => String::new(),
        false => format!("  @ {place}"),
    }
}
