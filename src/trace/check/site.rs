//! Where in a run something happened: a value, and the bodies of regions that it stands in.

use std::fmt;

use super::canonical::first_result;
use crate::error::Place;
use crate::interp::{Event, Part, Within};
use crate::ir::ValueId;

/// A value that a node computed, wherever it stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Site {
    /// Its name, behind those of the regions that it stands in: `steps/x`.
    pub value: String,
    /// The operation that made it.
    pub op: String,
    /// Where it stands in the user's model.
    pub place: Place,
    /// The bodies of regions that were run to get there, outermost first.
    pub within: Vec<Passage>,
}

/// The body of a region on the way to a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Passage {
    /// Which body.
    pub part: Part,
    /// The first value that the region makes, named as that of a [`Site`].
    pub region: String,
    /// `if`, `loop` or `call`.
    pub op: String,
    /// Where the region stands in the user's model.
    pub place: Place,
}

impl Site {
    /// The result `id` of a node that has run.
    pub fn of(event: &Event, id: ValueId) -> Site {
        Site {
            value: event.graph.value(id).name.clone(),
            op: event.node.op.name().to_string(),
            place: event.node.place.clone(),
            within: Vec::new(),
        }
        .through(event.within)
    }

    /// The first result of a node that has run.
    pub fn of_node(event: &Event) -> Site {
        let first = event.node.results.first();
        first.map_or_else(Site::default, |id| Site::of(event, *id))
    }

    /// What tells a value from those of other rounds and other branches.
    pub fn key(&self) -> (String, Vec<Part>) {
        let parts = self.within.iter().map(|passage| passage.part);
        (self.value.clone(), parts.collect())
    }

    /// A site in the body of a region, seen from the graph that was called.
    #[must_use]
    pub fn through(mut self, within: Option<&Within>) -> Site {
        let mut next = within;
        while let Some(within) = next {
            let region = first_result(within.graph, within.region).unwrap_or_default();
            self.value = format!("{region}/{}", self.value);
            for passage in &mut self.within {
                passage.region = format!("{region}/{}", passage.region);
            }
            let passage = Passage {
                part: within.part,
                region,
                op: within.region.op.name().to_string(),
                place: within.region.place.clone(),
            };
            self.within.insert(0, passage);
            next = within.outer;
        }
        self
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}{}", self.value, self.op, at(&self.place))?;
        for passage in self.within.iter().rev() {
            write!(f, "\n  in {passage}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Passage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            Part::Body => write!(f, "the body")?,
            Part::Then => write!(f, "the branch of a true condition")?,
            Part::Otherwise => write!(f, "the branch of a false condition")?,
            Part::Round(trip) => write!(f, "round {}", trip + 1)?,
        }
        write!(f, " of {} = {}{}", self.region, self.op, at(&self.place))
    }
}

fn at(place: &Place) -> String {
    match place.is_unknown() {
        true => String::new(),
        false => format!("  @ {place}"),
    }
}
