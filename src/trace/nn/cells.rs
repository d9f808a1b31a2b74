//! Recurrent cells: one step of a recurrent layer.

use std::borrow::Borrow;

use super::checks::{ArgumentCheck, dtype_error, rank_error, refuse, size_error};
use super::recurrent::Nonlinearity;
use super::{call_many, init};
use crate::kw;
use crate::trace::Module;
use crate::trace::native::{Arg, Forward, TracedTensor, Visitor, example_sizes, ops};

/// Weights of a cell.
#[derive(Debug, Module)]
struct Weights {
    weight_ih: TracedTensor,
    weight_hh: TracedTensor,
    bias_ih: Option<TracedTensor>,
    bias_hh: Option<TracedTensor>,
    /// Number of features of the input.
    inputs: usize,
    /// Number of features of the states.
    hidden: usize,
    check: ArgumentCheck,
}

impl Weights {
    /// Weights with `gates` blocks of rows.
    #[track_caller]
    fn new(gates: usize, inputs: usize, hidden: usize) -> Weights {
        let draw = |shape: &[usize]| init::by_fan_in(shape, hidden);
        let rows = gates * hidden;
        Weights {
            weight_ih: draw(&[rows, inputs]),
            weight_hh: draw(&[rows, hidden]),
            bias_ih: Some(draw(&[rows])),
            bias_hh: Some(draw(&[rows])),
            inputs,
            hidden,
            check: ArgumentCheck::of(hidden > 0, || {
                "hidden_size must be greater than zero".into()
            }),
        }
    }

    /// Drops the biases unless they are wanted.
    fn retain_biases(&mut self, wanted: bool) {
        for bias in [&mut self.bias_ih, &mut self.bias_hh] {
            *bias = bias.take().filter(|_| wanted);
        }
    }

    /// Returns an error if the input or a state of the cell `name` has a wrong type or shape.
    fn refused(
        &self,
        name: &str,
        x: &TracedTensor,
        states: &[&TracedTensor],
    ) -> Option<TracedTensor> {
        let mut states = states.iter();
        self.check
            .failed()
            .or_else(|| rank_error(name, x, &[1, 2]))
            .or_else(|| dtype_error(name, x, &self.weight_ih))
            .or_else(|| size_error(x, -1, self.inputs, "features"))
            .or_else(|| states.find_map(|state| self.refused_state(name, x, state)))
    }

    /// Returns an error unless the state has the batch of the input and the features of the cell.
    fn refused_state(
        &self,
        name: &str,
        x: &TracedTensor,
        state: &TracedTensor,
    ) -> Option<TracedTensor> {
        let (mut wanted, found) = (example_sizes(x)?, example_sizes(state)?);
        *wanted.last_mut()? = self.hidden;
        let message = format!("{name} expects a state of {wanted:?}, got {found:?}");
        (wanted != found).then(|| refuse(message))
    }

    /// Calls the operator for an input, which may lack a batch axis, with given or zero states.
    fn run<const S: usize>(
        &self,
        [name, operator]: [&str; 2],
        x: &TracedTensor,
        states: Option<[&TracedTensor; S]>,
    ) -> [TracedTensor; S] {
        if let Some(refused) = self.refused(name, x, states.as_ref().map_or(&[], |states| states)) {
            return std::array::from_fn(|_| refused.clone());
        }
        if x.rank() == 2 {
            return self.step(operator, x, states.map(|states| states.map(Clone::clone)));
        }
        let states = states.map(|states| states.map(|state| state.unsqueeze(0)));
        let results = self.step(operator, &x.unsqueeze(0), states);
        results.map(|result| result.squeeze_dim(0))
    }

    /// Calls the operator for a batch.
    fn step<const S: usize>(
        &self,
        operator: &str,
        x: &TracedTensor,
        states: Option<[TracedTensor; S]>,
    ) -> [TracedTensor; S] {
        let states = states.unwrap_or_else(|| {
            let sizes = vec![x.dim(0).into(), Arg::from(self.hidden)];
            let zeros =
                ops::zeros_with(Arg::List(sizes), kw!(dtype = x.dtype(), pin_memory = false));
            std::array::from_fn(|_| zeros.clone())
        });
        let mut states = Vec::from(states.map(Arg::Tensor));
        // The operator of an LSTM takes a list of two states, the others take one tensor.
        let states = match S {
            1 => states.pop().unwrap_or(Arg::None),
            _ => Arg::List(states),
        };
        let weights = [(&self.weight_ih).into(), (&self.weight_hh).into()];
        let biases = [self.bias_ih.as_ref().into(), self.bias_hh.as_ref().into()];
        let arguments = [x.into(), states].into_iter().chain(weights).chain(biases);
        call_many(operator, arguments.collect())
    }
}

/// Defines a cell by its number of gates, its result and the types of its states.
macro_rules! cells {
    ($($(#[$doc:meta])* $name:ident $gates:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name {
            weights: Weights,
            operator: &'static str,
        }

        impl $name {
            /// Whether there are biases; true by default.
            #[must_use]
            pub fn bias(mut self, bias: bool) -> $name {
                self.weights.retain_biases(bias);
                self
            }

            #[track_caller]
            fn with_operator(operator: &'static str, inputs: usize, hidden: usize) -> $name {
                $name { weights: Weights::new($gates, inputs, hidden), operator }
            }
        }

        impl Module for $name {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                visitor.module(self);
                self.weights.visit(visitor);
            }
        }
    )*};
}

cells! {
    /// `torch.nn.RNNCell`: the next hidden state.
    RNNCell 1;
    /// `torch.nn.GRUCell`: the next hidden state.
    GRUCell 3;
    /// `torch.nn.LSTMCell`: the next hidden and cell states.
    LSTMCell 4;
}

impl RNNCell {
    /// A cell from `inputs` to `hidden` features, with biases and `tanh`.
    #[track_caller]
    pub fn new(inputs: usize, hidden: usize) -> RNNCell {
        RNNCell::with_operator("rnn_tanh_cell", inputs, hidden)
    }

    /// The function of each step; `tanh` by default.
    #[must_use]
    pub fn nonlinearity(mut self, nonlinearity: Nonlinearity) -> RNNCell {
        self.operator = match nonlinearity {
            Nonlinearity::Tanh => "rnn_tanh_cell",
            Nonlinearity::Relu => "rnn_relu_cell",
        };
        self
    }
}

impl GRUCell {
    /// A cell from `inputs` to `hidden` features, with biases.
    #[track_caller]
    pub fn new(inputs: usize, hidden: usize) -> GRUCell {
        GRUCell::with_operator("gru_cell", inputs, hidden)
    }
}

impl LSTMCell {
    /// A cell from `inputs` to `hidden` features, with biases.
    #[track_caller]
    pub fn new(inputs: usize, hidden: usize) -> LSTMCell {
        LSTMCell::with_operator("lstm_cell", inputs, hidden)
    }
}

/// Implements [`Forward`] for cells with one state.
macro_rules! one_state {
    ($($name:ident)*) => {$(
        /// Called without a state: the initial state is zeros.
        impl<X: Borrow<TracedTensor>> Forward<X> for $name {
            type Output = TracedTensor;

            fn forward(&self, x: X) -> TracedTensor {
                let [state] = self.weights.run([stringify!($name), self.operator], x.borrow(), None);
                state
            }
        }

        /// Called with a state.
        impl<X: Borrow<TracedTensor>, S: Borrow<TracedTensor>> Forward<(X, S)> for $name {
            type Output = TracedTensor;

            fn forward(&self, (x, state): (X, S)) -> TracedTensor {
                let names = [stringify!($name), self.operator];
                let [state] = self.weights.run(names, x.borrow(), Some([state.borrow()]));
                state
            }
        }
    )*};
}

one_state!(RNNCell GRUCell);

/// Called without states: the initial states are zeros.
impl<X: Borrow<TracedTensor>> Forward<X> for LSTMCell {
    type Output = (TracedTensor, TracedTensor);

    fn forward(&self, x: X) -> Self::Output {
        let names = ["LSTMCell", self.operator];
        self.weights.run::<2>(names, x.borrow(), None).into()
    }
}

/// Called with hidden and cell states.
impl<X: Borrow<TracedTensor>, S: Borrow<TracedTensor>> Forward<(X, (S, S))> for LSTMCell {
    type Output = (TracedTensor, TracedTensor);

    fn forward(&self, (x, (hidden, cell)): (X, (S, S))) -> Self::Output {
        let states = Some([hidden.borrow(), cell.borrow()]);
        let names = ["LSTMCell", self.operator];
        self.weights.run(names, x.borrow(), states).into()
    }
}
