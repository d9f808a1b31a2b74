//! Recurrent layers. Layers with projected state or more than 512 hidden units are unrolled: the trace fixes the length of
//! their sequences.

use std::borrow::Borrow;

use super::checks::{ArgumentCheck, dtype_error, rank_error, refuse, size_error};
use super::{call_many, init};
use crate::kw;
use crate::trace::native::{
    Arg, Forward, Module, Parameter, TracedTensor, Training, Visitor, example_sizes, ops,
};

/// The function of each step of [`RNN`] and [`RNNCell`](super::RNNCell).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nonlinearity {
    /// The hyperbolic tangent.
    Tanh,
    /// `relu`
    Relu,
}

/// Options and weights of all layers and directions, common to LSTM, GRU and RNN.
#[derive(Clone, Debug)]
struct Cells {
    /// Name of the module.
    name: &'static str,
    operator: &'static str,
    /// Number of gates. Each is a block of rows of the weights.
    gates: usize,
    /// Number of features of the input.
    inputs: usize,
    /// Number of features of the hidden state.
    hidden: usize,
    /// Number of features of an LSTM's projected hidden state.
    projected: Option<usize>,
    /// Number of layers.
    layers: usize,
    bias: bool,
    batch_first: bool,
    bidirectional: bool,
    dropout: f64,
    training: Training,
    /// The weights in PyTorch's order, with their names.
    weights: Vec<(String, Parameter)>,
    check: ArgumentCheck,
}

impl Cells {
    #[track_caller]
    fn new(
        [name, operator]: [&'static str; 2],
        gates: usize,
        inputs: usize,
        hidden: usize,
    ) -> Cells {
        let mut cells = Cells {
            name,
            operator,
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
            check: ArgumentCheck::default(),
        };
        cells.check_arguments();
        cells.draw();
        cells
    }

    /// Checks the sizes and the probability as PyTorch's constructors do.
    #[track_caller]
    fn check_arguments(&mut self) {
        let Cells { hidden, layers, .. } = *self;
        let is_smaller = self.projected.is_none_or(|projected| projected < hidden);
        let check = &mut self.check;
        check.require(hidden > 0, || {
            "hidden_size must be greater than zero".into()
        });
        check.require(layers > 0, || "num_layers must be greater than zero".into());
        check.require(is_smaller, || {
            "proj_size has to be smaller than hidden_size".into()
        });
        check.require_probability(self.dropout);
    }

    fn directions(&self) -> usize {
        if self.bidirectional { 2 } else { 1 }
    }

    /// Number of features of a result.
    fn output_features(&self) -> usize {
        self.projected.unwrap_or(self.hidden)
    }

    /// Names and shapes of the weights for one direction of a layer.
    fn weight_shapes(&self, inputs: usize) -> Vec<(&'static str, Vec<usize>)> {
        let rows = self.gates * self.hidden;
        let mut shapes = vec![
            ("weight_ih", vec![rows, inputs]),
            ("weight_hh", vec![rows, self.output_features()]),
        ];
        if self.bias {
            shapes.extend([("bias_ih", vec![rows]), ("bias_hh", vec![rows])]);
        }
        let projection = |projected| ("weight_hr", vec![projected, self.hidden]);
        shapes.extend(self.projected.map(projection));
        shapes
    }

    /// Draws all weights, with PyTorch's names.
    fn draw(&mut self) {
        self.weights.clear();
        for layer in 0..self.layers {
            let inputs = match layer {
                0 => self.inputs,
                _ => self.output_features() * self.directions(),
            };
            let suffixes = ["", "_reverse"].into_iter().take(self.directions());
            for suffix in suffixes {
                for (name, shape) in self.weight_shapes(inputs) {
                    let weight = init::by_fan_in(&shape, self.hidden);
                    self.weights
                        .push((format!("{name}_l{layer}{suffix}"), weight));
                }
            }
        }
    }

    /// Returns an error if PyTorch refuses the input or the states.
    fn refused(&self, x: &TracedTensor, states: &[&TracedTensor]) -> Option<TracedTensor> {
        let weight = self.weights.first().map(|(_, weight)| weight);
        let mut states = states.iter().enumerate();
        self.check
            .failed()
            .or_else(|| rank_error(self.name, x, &[2, 3]))
            .or_else(|| dtype_error(self.name, x, weight?))
            .or_else(|| size_error(x, -1, self.inputs, "features"))
            .or_else(|| states.find_map(|(index, state)| self.refused_state(x, index, state)))
    }

    /// Returns an error unless the state, hidden (0) or cell (1), has a number of features for each layer, direction and
    /// element of the batch.
    fn refused_state(
        &self,
        x: &TracedTensor,
        index: usize,
        state: &TracedTensor,
    ) -> Option<TracedTensor> {
        let (sizes, found) = (example_sizes(x)?, example_sizes(state)?);
        let batch_axis = if self.batch_first { 0 } else { 1 };
        let batch = (sizes.len() == 3).then(|| sizes.get(batch_axis).copied());
        let layers = self.layers * self.directions();
        let sizes = [
            Some(layers),
            batch.flatten(),
            Some(self.state_features(index)),
        ];
        let wanted: Vec<usize> = sizes.into_iter().flatten().collect();
        let (name, kind) = (self.name, ["hidden", "cell"].get(index)?);
        let message = format!("{name} expects a {kind} state of {wanted:?}, got {found:?}");
        (wanted != found).then(|| refuse(message))
    }

    /// Number of features of state 0 (hidden), those of a result, or of state 1 (cell).
    fn state_features(&self, state: usize) -> usize {
        match state {
            0 => self.output_features(),
            _ => self.hidden,
        }
    }

    /// Initial zeros for state 0 (hidden) or 1 (cell).
    fn initial_state(&self, batch: &TracedTensor, state: usize) -> TracedTensor {
        let axis = if self.batch_first { 0 } else { 1 };
        let sizes = (
            self.layers * self.directions(),
            batch.dim(axis),
            self.state_features(state),
        );
        ops::zeros_with(sizes, kw!(dtype = batch.dtype()))
    }

    /// Calls the operator for an input, which may lack a batch axis, with given or zero states. There are `S` states and
    /// `R` results.
    fn run<const S: usize, const R: usize>(
        &self,
        x: &TracedTensor,
        states: Option<[&TracedTensor; S]>,
    ) -> [TracedTensor; R] {
        if let Some(refused) = self.refused(x, states.as_ref().map_or(&[], |states| states)) {
            return std::array::from_fn(|_| refused.clone());
        }
        let batch_axis = if self.batch_first { 0 } else { 1 };
        let batched = x.rank() != 2;
        let input = if batched {
            x.clone()
        } else {
            x.unsqueeze(batch_axis)
        };
        let states: [TracedTensor; S] = match states {
            None => std::array::from_fn(|state| self.initial_state(&input, state)),
            Some(states) if batched => states.map(Clone::clone),
            Some(states) => states.map(|state| state.unsqueeze(1)),
        };
        let states = Vec::from(states.map(Arg::Tensor));
        // The operator of an LSTM takes a list of two states, the others take one tensor.
        let states = match S {
            1 => states.into_iter().next().unwrap_or(Arg::None),
            _ => Arg::List(states),
        };
        let results = call_many(self.operator, self.arguments(input, states));
        let mut axes = std::iter::once(batch_axis).chain(std::iter::repeat(1));
        match batched {
            true => results,
            false => results.map(|result| result.squeeze_dim(axes.next().unwrap_or(1))),
        }
    }

    /// The operator's arguments in PyTorch's order.
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

    /// Visits the weights and the training flag.
    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (name, weight) in &self.weights {
            visitor.field(name, weight);
        }
        visitor.field("training", &self.training);
    }
}

/// Defines a recurrent module by its operator and number of gates.
macro_rules! recurrent {
    ($($(#[$doc:meta])* $name:ident $operator:literal $gates:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name {
            cells: Cells,
        }

        impl $name {
            /// A layer from `inputs` to `hidden` features: one layer, forwards, with biases.
            #[track_caller]
            pub fn new(inputs: usize, hidden: usize) -> $name {
                let names = [stringify!($name), $operator];
                let cells = Cells::new(names, $gates, inputs, hidden);
                $name { cells }
            }

            /// Number of layers; 1 by default. Draws new weights.
            #[must_use]
            #[track_caller]
            pub fn num_layers(self, layers: usize) -> $name {
                self.with(|cells| cells.layers = layers)
            }

            /// Whether there are biases; true by default. Draws new weights.
            #[must_use]
            pub fn bias(self, bias: bool) -> $name {
                self.with(|cells| cells.bias = bias)
            }

            /// Whether a second set of cells runs backwards; false by default. Draws new weights.
            #[must_use]
            pub fn bidirectional(self, bidirectional: bool) -> $name {
                self.with(|cells| cells.bidirectional = bidirectional)
            }

            /// Whether the batch is the first axis; by default time is.
            #[must_use]
            pub fn batch_first(mut self, batch_first: bool) -> $name {
                self.cells.batch_first = batch_first;
                self
            }

            /// Dropout probability between layers in training mode; 0 by default.
            #[must_use]
            #[track_caller]
            pub fn dropout(mut self, p: f64) -> $name {
                self.cells.dropout = p;
                self.cells.check_arguments();
                self
            }

            /// Changes the options, and draws new weights.
            #[track_caller]
            fn with(mut self, change: impl FnOnce(&mut Cells)) -> $name {
                change(&mut self.cells);
                self.cells.check_arguments();
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
    LSTM "lstm" 4;
    /// `torch.nn.GRU`: results at each time, and the last hidden states.
    GRU "gru" 3;
    /// `torch.nn.RNN`: results at each time, and the last hidden states.
    RNN "rnn_tanh" 1;
}

impl RNN {
    /// The function of each step; `tanh` by default.
    #[must_use]
    pub fn nonlinearity(mut self, nonlinearity: Nonlinearity) -> RNN {
        self.cells.operator = match nonlinearity {
            Nonlinearity::Tanh => "rnn_tanh",
            Nonlinearity::Relu => "rnn_relu",
        };
        self
    }
}

impl LSTM {
    /// Projects results and hidden states to `features` features. Draws new weights.
    #[must_use]
    #[track_caller]
    pub fn proj_size(self, features: usize) -> LSTM {
        self.with(|cells| cells.projected = Some(features))
    }

    /// Calls the operator. Returns the results at each time, and the last hidden and cell states.
    fn run(
        &self,
        x: &TracedTensor,
        states: Option<[&TracedTensor; 2]>,
    ) -> (TracedTensor, (TracedTensor, TracedTensor)) {
        let [result, hidden, cell] = self.cells.run(x, states);
        (result, (hidden, cell))
    }
}

/// Called without states: the initial states are zeros.
impl<X: Borrow<TracedTensor>> Forward<X> for LSTM {
    type Output = (TracedTensor, (TracedTensor, TracedTensor));

    fn forward(&self, x: X) -> Self::Output {
        self.run(x.borrow(), None)
    }
}

/// Called with initial hidden and cell states.
impl<X: Borrow<TracedTensor>, S: Borrow<TracedTensor>> Forward<(X, (S, S))> for LSTM {
    type Output = (TracedTensor, (TracedTensor, TracedTensor));

    fn forward(&self, (x, (hidden, cell)): (X, (S, S))) -> Self::Output {
        self.run(x.borrow(), Some([hidden.borrow(), cell.borrow()]))
    }
}

/// Implements [`Forward`] for modules with one state.
macro_rules! one_state {
    ($($name:ident)*) => {$(
        /// Called without states: the initial states are zeros.
        impl<X: Borrow<TracedTensor>> Forward<X> for $name {
            type Output = (TracedTensor, TracedTensor);

            fn forward(&self, x: X) -> Self::Output {
                self.cells.run::<1, 2>(x.borrow(), None).into()
            }
        }

        /// Called with initial hidden states.
        impl<X: Borrow<TracedTensor>, S: Borrow<TracedTensor>> Forward<(X, S)> for $name {
            type Output = (TracedTensor, TracedTensor);

            fn forward(&self, (x, hidden): (X, S)) -> Self::Output {
                self.cells.run::<1, 2>(x.borrow(), Some([hidden.borrow()])).into()
            }
        }
    )*};
}

one_state!(GRU RNN);
