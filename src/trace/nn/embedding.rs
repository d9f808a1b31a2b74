//! Embedding tables.

use std::borrow::Borrow;

use super::checks::{ArgumentCheck, integer_error, refuse};
use super::init;
use crate::kw;
use crate::trace::Module;
use crate::trace::native::{Forward, Parameter, TracedTensor, ops};

/// The rows of a table and how they are looked up, common to both modules.
#[derive(Clone, Debug, Module)]
struct Table {
    weight: Parameter,
    count: usize,
    padding_idx: Option<i64>,
    max_norm: Option<f64>,
    norm_type: f64,
    check: ArgumentCheck,
}

impl Table {
    fn new(count: usize, features: usize) -> Table {
        Table {
            weight: Parameter::new([count, features], init::normal(0.0, 1.0)),
            count,
            padding_idx: None,
            max_norm: None,
            norm_type: 2.0,
            check: ArgumentCheck::default(),
        }
    }

    /// Sets the row that is padding, counted from the end if negative.
    #[track_caller]
    fn set_padding_idx(&mut self, row: i64) {
        let count = i64::try_from(self.count).unwrap_or(i64::MAX);
        self.check.require((-count..count).contains(&row), || {
            format!("padding_idx must be within num_embeddings ({count}), but got {row}")
        });
        self.padding_idx = Some(if row < 0 { row + count } else { row });
    }

    /// The table with the norm of the used rows limited. Unlike in PyTorch the parameter itself does not change.
    fn normalised(&self, ids: &TracedTensor) -> TracedTensor {
        match self.max_norm {
            None => (*self.weight).clone(),
            Some(max_norm) => self.weight.embedding_renorm(ids, max_norm, self.norm_type),
        }
    }
}

/// Defines the options of both modules.
macro_rules! options {
    ($name:ident) => {
        impl $name {
            /// The largest norm of a row: longer rows are scaled. There is no limit by default. Unlike in PyTorch the table
            /// itself does not change.
            #[must_use]
            pub fn max_norm(mut self, max_norm: f64) -> $name {
                self.table.max_norm = Some(max_norm);
                self
            }

            /// The degree of the norm for `max_norm`; 2 by default.
            #[must_use]
            pub fn norm_type(mut self, norm_type: f64) -> $name {
                self.table.norm_type = norm_type;
                self
            }

            /// The table, `[count, features]`.
            pub fn weight(&self) -> &Parameter {
                &self.table.weight
            }
        }

        impl Module for $name {
            fn visit(&self, visitor: &mut crate::trace::Visitor<'_>) {
                visitor.module(self);
                self.table.visit(visitor);
            }
        }
    };
}

options!(Embedding);
options!(EmbeddingBag);

/// `torch.nn.Embedding`: a row of a table for each index.
#[derive(Clone, Debug)]
pub struct Embedding {
    table: Table,
}

impl Embedding {
    /// A table of `count` rows with `features` numbers each.
    pub fn new(count: usize, features: usize) -> Embedding {
        let table = Table::new(count, features);
        Embedding { table }
    }

    /// The row that training does not change. Unlike in PyTorch its initial values are not zeros.
    #[must_use]
    #[track_caller]
    pub fn padding_idx(mut self, row: i64) -> Embedding {
        self.table.set_padding_idx(row);
        self
    }
}

impl<X: Borrow<TracedTensor>> Forward<X> for Embedding {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        let (x, table) = (x.borrow(), &self.table);
        let refused = table.check.failed();
        if let Some(refused) = refused.or_else(|| integer_error("Embedding", x)) {
            return refused;
        }
        table
            .normalised(x)
            .embedding_with(x, kw!(padding_idx = table.padding_idx.unwrap_or(-1)))
    }
}

/// How [`EmbeddingBag`] reduces the rows of a bag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BagMode {
    /// The sum of the rows.
    Sum,
    /// The mean of the rows.
    Mean,
    /// The maximum over the rows.
    Max,
}

/// `torch.nn.EmbeddingBag`: the sum, mean or maximum of the rows for each bag of indices.
#[derive(Clone, Debug)]
pub struct EmbeddingBag {
    table: Table,
    mode: BagMode,
    include_last_offset: bool,
}

impl EmbeddingBag {
    /// A table of `count` rows with `features` numbers each; the result is the mean of a bag's rows.
    pub fn new(count: usize, features: usize) -> EmbeddingBag {
        EmbeddingBag {
            table: Table::new(count, features),
            mode: BagMode::Mean,
            include_last_offset: false,
        }
    }

    /// How to reduce the rows; to their mean by default.
    #[must_use]
    pub fn mode(mut self, mode: BagMode) -> EmbeddingBag {
        self.mode = mode;
        self
    }

    /// Whether the last offset is the end of the last bag; false by default.
    #[must_use]
    pub fn include_last_offset(mut self, include: bool) -> EmbeddingBag {
        self.include_last_offset = include;
        self
    }

    /// The row that bags leave out.
    #[must_use]
    #[track_caller]
    pub fn padding_idx(mut self, row: i64) -> EmbeddingBag {
        self.table.set_padding_idx(row);
        self
    }

    /// Returns an error if PyTorch refuses the input.
    fn refused(&self, bags: &Bags) -> Option<TracedTensor> {
        let message = match (bags.ids.rank(), &bags.offsets) {
            (1, None) => "EmbeddingBag expects offsets for 1D input",
            (2, Some(_)) => "EmbeddingBag expects no offsets for 2D input: each row is a bag",
            (1 | 2, _) if bags.weights.is_some() && self.mode != BagMode::Sum => {
                "EmbeddingBag takes per_sample_weights for the mode Sum only"
            }
            (1 | 2, _) => "",
            _ => "EmbeddingBag expects 1D or 2D input",
        };
        let is_refused = bags.ids.error().is_none() && !message.is_empty();
        self.table
            .check
            .failed()
            .or_else(|| integer_error("EmbeddingBag", &bags.ids))
            .or_else(|| is_refused.then(|| refuse(message.to_string())))
    }
}

/// Input of [`EmbeddingBag`].
#[derive(Clone, Debug)]
pub struct Bags {
    ids: TracedTensor,
    offsets: Option<TracedTensor>,
    weights: Option<TracedTensor>,
}

impl Bags {
    /// Indices `[bags, length]`, or of all bags one after the other, with offsets.
    pub fn new(ids: &TracedTensor) -> Bags {
        Bags {
            ids: ids.clone(),
            offsets: None,
            weights: None,
        }
    }

    /// The first index of each bag.
    #[must_use]
    pub fn offsets(mut self, offsets: &TracedTensor) -> Bags {
        self.offsets = Some(offsets.clone());
        self
    }

    /// A factor for each index.
    #[must_use]
    pub fn per_sample_weights(mut self, weights: &TracedTensor) -> Bags {
        self.weights = Some(weights.clone());
        self
    }

    /// Indices, offsets and factors as lists of all bags.
    fn flattened(&self) -> (TracedTensor, TracedTensor, Option<TracedTensor>) {
        if let Some(offsets) = &self.offsets {
            return (self.ids.clone(), offsets.clone(), self.weights.clone());
        }
        let ids = &self.ids;
        let offsets =
            ops::arange_start_with(0, ids.numel(), kw!(step = ids.dim(1), dtype = ids.dtype()));
        let weights = self.weights.as_ref().map(|weights| weights.reshape([-1]));
        (ids.reshape([-1]), offsets, weights)
    }
}

impl Forward<Bags> for EmbeddingBag {
    type Output = TracedTensor;

    fn forward(&self, bags: Bags) -> TracedTensor {
        if let Some(refused) = self.refused(&bags) {
            return refused;
        }
        let (ids, offsets, weights) = bags.flattened();
        let (table, mode) = (self.table.normalised(&ids), self.mode as i64);
        let (rows, ..) = table.embedding_bag_padding_idx(
            &ids,
            &offsets,
            false,
            mode,
            false,
            weights,
            self.include_last_offset,
            self.table.padding_idx,
        );
        rows
    }
}

/// Called with indices `[bags, length]`.
impl<X: Borrow<TracedTensor>> Forward<X> for EmbeddingBag {
    type Output = TracedTensor;

    fn forward(&self, x: X) -> TracedTensor {
        self.forward(Bags::new(x.borrow()))
    }
}
