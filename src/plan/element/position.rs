//! Positions of elements: a row-major index, coordinates, or both. Each is derived from the other only when it is
//! needed, so that contiguous access stays a plain index.

use crate::dim::Dim;
use crate::kernel::index::{self, Index};

/// Position of an element in a value whose shape the caller knows. At least one of both fields is present.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// Row-major index.
    linear_index: Option<Index>,
    coordinates: Option<Vec<Index>>,
}

impl Position {
    /// Position by row-major index.
    pub fn from_index(index: Index) -> Position {
        Position {
            linear_index: Some(index),
            coordinates: None,
        }
    }

    /// Position by coordinates.
    pub fn from_coordinates(coordinates: Vec<Index>) -> Position {
        Position {
            linear_index: None,
            coordinates: Some(coordinates),
        }
    }

    /// Position by both, which must agree.
    pub fn from_both(index: Index, coordinates: Vec<Index>) -> Position {
        Position {
            linear_index: Some(index),
            coordinates: Some(coordinates),
        }
    }

    /// Returns the row-major index.
    pub fn linear_index(&self, shape: &[Dim]) -> Index {
        match (&self.linear_index, &self.coordinates) {
            (Some(index), _) => index.clone(),
            (None, Some(coordinates)) => index::linearize(coordinates, shape),
            (None, None) => Index::zero(),
        }
    }

    /// Returns the coordinates.
    pub fn coordinates(&self, shape: &[Dim]) -> Vec<Index> {
        match (&self.coordinates, &self.linear_index) {
            (Some(coordinates), _) => coordinates.clone(),
            (None, Some(index)) => index::delinearize(index, shape),
            (None, None) => vec![Index::zero(); shape.len()],
        }
    }

    /// Returns the position of the same element in a value of another shape with as many elements.
    pub fn reshape(&self, from: &[Dim], to: &[Dim]) -> Position {
        Position {
            linear_index: self.linear_index.clone(),
            coordinates: self
                .coordinates
                .as_ref()
                .map(|coordinates| index::reshape(coordinates, from, to)),
        }
    }
}
