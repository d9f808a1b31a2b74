//! Recurrent layers. Those that project their state, or have more than 512 hidden units, are unrolled: the trace fixes how long
//! their sequences are.

use std::borrow::Borrow;

use super::{init, many};
use crate::kw;
use crate::trace::native::{Arg, Forward, Module, TracedTensor, Training, Visitor, ops};

/// What LSTM, GRU and RNN have in common.
#[derive(Debug)]
struct Cells {
    /// How many blocks of rows a weight has: gates.
    gates: usize,
    inputs: usize,
    hidden: usize,
    /// What the hidden state of an LSTM is projected to.
    projected: Option<usize>,
    layers: usize,
    bias: bool,
    batch_first: bool,
    bidirectional: bool,
    dropout: f64,
    training: Training,
    weights: Vec<(String, TracedTensor)>,
}

impl Cells {
    fn new(gates: usize, inputs: usize, hidden: usize) -> Cells {
        let mut cells = Cells {
            gates,
            inputs,
            hidden,
            projected: None,
            layers: 1,
            bias: true,
            batch_first: false,
            bidirectional: false,
            dropout: 0.0,
            training: Training::default(),
            weights: Vec::new(),
        };
        cells.draw();
        cells
    }

    fn directions(&self) -> usize {
        if self.bidirectional { 2 } else { 1 }
    }

    /// Features of a result.
    fn outputs(&self) -> usize {
        self.projected.unwrap_or(self.hidden)
    }

    /// Names and shapes of the weights of a layer in one direction.
    fn shapes(&self, inputs: usize) -> Vec<(&'static str, Vec<usize>)> {
        let rows = self.gates * self.hidden;
        let mut shapes = vec![
            ("weight_ih", vec![rows, inputs]),
            ("weight_hh", vec![rows, self.outputs()]),
        ];
        if self.bias {
            shapes.extend([("bias_ih", vec![rows]), ("bias_hh", vec![rows])]);
        }
        let projection = |projected| ("weight_hr", vec![projected, self.hidden]);
        shapes.extend(self.projected.map(projection));
        shapes
    }

    /// Makes the weights, with PyTorch's names.
    fn draw(&mut self) {
        self.weights.clear();
        for layer in 0..self.layers {
            let inputs = match layer {
                0 => self.inputs,
                _ => self.outputs() * self.directions(),
            };
            let endings = ["", "_reverse"].into_iter().take(self.directions());
            for ending in endings {
                for (name, shape) in self.shapes(inputs) {
                    let weight = init::by_fan_in(&shape, self.hidden);
                    self.weights
                        .push((format!("{name}_l{layer}{ending}"), weight));
                }
            }
        }
    }

    /// The first of the states has the features of a result, the second those of a cell.
    fn zeros(&self, batch: &TracedTensor, state: usize) -> TracedTensor {
        let features = if state == 0 {
            self.outputs()
        } else {
            self.hidden
        };
        let axis = if self.batch_first { 0 } else { 1 };
        let sizes: [Arg; 3] = [
            (self.layers * self.directions()).into(),
            batch.dim(axis).into(),
            features.into(),
        ];
        let named = kw!(dtype = batch.dtype(), pin_memory = false);
        ops::zeros_with(Arg::List(sizes.into()), named)
    }

    /// Calls the operator for an input, with or without a batch axis, and states that may be given.
    fn run<const S: usize, const R: usize>(
        &self,
        name: &str,
        x: &TracedTensor,
        states: Option<[&TracedTensor; S]>,
    ) -> [TracedTensor; R] {
        let batch_axis = if self.batch_first { 0 } else { 1 };
        let batched = x.rank() != 2;
        let input = if batched {
            x.clone()
        } else {
            x.unsqueeze(batch_axis)
        };
        let states: [TracedTensor; S] = match states {
            None => std::array::from_fn(|state| self.zeros(&input, state)),
            Some(states) if batched => states.map(Clone::clone),
            Some(states) => states.map(|state| state.unsqueeze(1)),
        };
        let states = Vec::from(states.map(Arg::Tensor));
        // An LSTM takes a list of its two states, the others take theirs.
        let states = match S {
            1 => states.into_iter().next().unwrap_or(Arg::None),
            _ => Arg::List(states),
        };
        let results = many(name, self.arguments(input, states));
        let mut axes = std::iter::once(batch_axis).chain(std::iter::repeat(1));
        match batched {
            true => results,
            false => results.map(|result| result.squeeze_dim(axes.next().unwrap_or(1))),
        }
    }

    fn arguments(&self, input: TracedTensor, states: Arg) -> Vec<Arg> {
        let weights = self.weights.iter();
        let weights = weights.map(|(_, weight)| Arg::from(weight));
        vec![
            input.into(),
            states,
            Arg::List(weights.collect()),
            self.bias.into(),
            self.layers.into(),
            self.dropout.into(),
            self.training.is_on().into(),
            self.bidirectional.into(),
            self.batch_first.into(),
        ]
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (name, weight) in &self.weights {
            visitor.field(name, weight);
        }
        visitor.field("training", &self.training);
    }
}

macro_rules! recurrent {
    ($($(#[$doc:meta])* $name:ident $gates:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name {
            cells: Cells,
        }

        impl $name {
            /// From `inputs` to `hidden` features: one layer, forwards, with biases.
            pub fn new(inputs: usize, hidden: usize) -> $name {
                let cells = Cells::new($gates, inputs, hidden);
                $name { cells }
            }

            /// How many layers there are; 1 by default. Draws the weights anew.
            #[must_use]
            pub fn num_layers(self, layers: usize) -> $name {
                self.with(|cells| cells.layers = layers)
            }

            /// Whether there are biases; there are by default. Draws the weights anew.
            #[must_use]
            pub fn bias(self, bias: bool) -> $name {
                self.with(|cells| cells.bias = bias)
            }

            /// Whether a second set of cells runs backwards; none does by default. Draws the weights anew.
            #[must_use]
            pub fn bidirectional(self, bidirectional: bool) -> $name {
                self.with(|cells| cells.bidirectional = bidirectional)
            }

            /// Whether the first axis is that of the batch; it is that of time by default.
            #[must_use]
            pub fn batch_first(mut self, batch_first: bool) -> $name {
                self.cells.batch_first = batch_first;
                self
            }

            /// Dropout between layers in training; none by default.
            #[must_use]
            pub fn dropout(mut self, p: f64) -> $name {
                self.cells.dropout = p;
                self
            }

            fn with(mut self, change: impl FnOnce(&mut Cells)) -> $name {
                change(&mut self.cells);
                self.cells.draw();
                self
            }
        }

        impl Module for $name {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                visitor.module(self);
                self.cells.visit(visitor);
            }
        }
    )*};
}

recurrent! {
    /// `torch.nn.LSTM`: results at each time, and the last hidden and cell states.
    LSTM 4;
    /// `torch.nn.GRU`: results at each time, and the last hidden states.
    GRU 3;
    /// `torch.nn.RNN` with `tanh`: results at each time, and the last hidden states.
    RNN 1;
}

impl LSTM {
    /// Projects results and hidden states to so many features. Draws the weights anew.
    #[must_use]
    pub fn proj_size(self, features: usize) -> LSTM {
        self.with(|cells| cells.projected = Some(features))
    }

    fn run(
        &self,
        x: &TracedTensor,
        states: Option<[&TracedTensor; 2]>,
    ) -> (TracedTensor, (TracedTensor, TracedTensor)) {
        let [result, hidden, cell] = self.cells.run("lstm", x, states);
        (result, (hidden, cell))
    }
}

/// The states are zeros at first.
impl<X: Borrow<TracedTensor>> Forward<X> for LSTM {
    type Output = (TracedTensor, (TracedTensor, TracedTensor));

    fn forward(&self, x: X) -> Self::Output {
        self.run(x.borrow(), None)
    }
}

/// With hidden and cell states.
impl<X: Borrow<TracedTensor>, S: Borrow<TracedTensor>> Forward<(X, (S, S))> for LSTM {
    type Output = (TracedTensor, (TracedTensor, TracedTensor));

    fn forward(&self, (x, (hidden, cell)): (X, (S, S))) -> Self::Output {
        self.run(x.borrow(), Some([hidden.borrow(), cell.borrow()]))
    }
}

macro_rules! one_state {
    ($($name:ident $operator:literal;)*) => {$(
        /// The states are zeros at first.
        impl<X: Borrow<TracedTensor>> Forward<X> for $name {
            type Output = (TracedTensor, TracedTensor);

            fn forward(&self, x: X) -> Self::Output {
                self.cells.run::<1, 2>($operator, x.borrow(), None).into()
            }
        }

        /// With hidden states.
        impl<X: Borrow<TracedTensor>, S: Borrow<TracedTensor>> Forward<(X, S)> for $name {
            type Output = (TracedTensor, TracedTensor);

            fn forward(&self, (x, hidden): (X, S)) -> Self::Output {
                self.cells.run::<1, 2>($operator, x.borrow(), Some([hidden.borrow()])).into()
            }
        }
    )*};
}

one_state! {
    GRU "gru";
    RNN "rnn_tanh";
}
