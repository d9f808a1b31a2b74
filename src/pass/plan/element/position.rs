//! Where in a value an element is: a place in row-major order, coordinates, or both. Each is derived from the other only
//! when it is needed, so that contiguous access stays a plain index.

use crate::dim::Dim;
use crate::kernel::index::{self, Index};

/// An element of a value whose shape is known to who asks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    place: Option<Index>,
    coordinates: Option<Vec<Index>>,
}

impl Position {
    /// From the place in row-major order.
    pub fn at(place: Index) -> Position {
        Position {
            place: Some(place),
            coordinates: None,
        }
    }

    /// From coordinates.
    pub fn of(coordinates: Vec<Index>) -> Position {
        Position {
            place: None,
            coordinates: Some(coordinates),
        }
    }

    /// From both, which must agree.
    pub fn both(place: Index, coordinates: Vec<Index>) -> Position {
        Position {
            place: Some(place),
            coordinates: Some(coordinates),
        }
    }

    /// The place in row-major order.
    pub fn place(&self, shape: &[Dim]) -> Index {
        match (&self.place, &self.coordinates) {
            (Some(place), _) => place.clone(),
            (None, Some(coordinates)) => index::linear(coordinates, shape),
            (None, None) => Index::zero(),
        }
    }

    /// The coordinates.
    pub fn coordinates(&self, shape: &[Dim]) -> Vec<Index> {
        match (&self.coordinates, &self.place) {
            (Some(coordinates), _) => coordinates.clone(),
            (None, Some(place)) => index::coordinates(place, shape),
            (None, None) => vec![Index::zero(); shape.len()],
        }
    }

    /// The same element of a value of another shape of as many elements.
    pub fn reshape(&self, from: &[Dim], to: &[Dim]) -> Position {
        Position {
            place: self.place.clone(),
            coordinates: self
                .coordinates
                .as_ref()
                .map(|coordinates| index::reshape(coordinates, from, to)),
        }
    }
}
