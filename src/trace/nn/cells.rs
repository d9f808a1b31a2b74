//! Recurrent cells: one step of a recurrent layer.

use std::borrow::Borrow;

use super::checks::{ArgumentCheck, dtype_error, rank_error, refuse, size_error};
use super::init;
use super::recurrent::Nonlinearity;
use crate::kw;
use crate::trace::Module;
use crate::trace::native::{Forward, Parameter, TracedTensor, Visitor, example_sizes, ops, unpack};

/// Weights of a cell.
#[derive(Clone, Debug, Module)]
struct Weights {
    weight_ih: Parameter,
    weight_hh: Parameter,
    bias_ih: Option<Parameter>,
    bias_hh: Option<Parameter>,
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

    /// Returns an error unless the state has the element type and batch of the input, and the features of the cell.
    fn refused_state(
        &self,
        name: &str,
        x: &TracedTensor,
        state: &TracedTensor,
    ) -> Option<TracedTensor> {
        if state.dtype() != x.dtype() {
            let (wanted, found) = (x.dtype(), state.dtype());
            return Some(refuse(format!(
                "{name} expects a state of {wanted} like its input, got {found}"
            )));
        }
        let (mut wanted, found) = (example_sizes(x)?, example_sizes(state)?);
        *wanted.last_mut()? = self.hidden;
        let message = format!("{name} expects a state of {wanted:?}, got {found:?}");
        (wanted != found).then(|| refuse(message))
    }

    /// Takes a step for an input, which may lack a batch axis, with given or zero states.
    fn run<const S: usize>(
        &self,
        name: &str,
        x: &TracedTensor,
        states: Option<[&TracedTensor; S]>,
        step: impl Fn(&Weights, &TracedTensor, [TracedTensor; S]) -> [TracedTensor; S],
    ) -> [TracedTensor; S] {
        if let Some(refused) = self.refused(name, x, states.as_ref().map_or(&[], |states| states)) {
            return std::array::from_fn(|_| refused.clone());
        }
        let is_batched = x.rank() == 2;
        let batch = |x: &TracedTensor| match is_batched {
            true => x.clone(),
            false => x.unsqueeze(0),
        };
        let x = batch(x);
        let states = match states {
            Some(states) => states.map(batch),
            None => self.initial_states(&x),
        };
        let results = step(self, &x, states);
        match is_batched {
            true => results,
            false => results.map(|result| result.squeeze_dim(0)),
        }
    }

    /// Initial zeros, one tensor for all states.
    fn initial_states<const S: usize>(&self, x: &TracedTensor) -> [TracedTensor; S] {
        let sizes = (x.dim(0), self.hidden);
        let zeros = ops::zeros_with(sizes, kw!(dtype = x.dtype()));
        std::array::from_fn(|_| zeros.clone())
    }

    /// The part of the gates that depends on the input.
    fn of_input(&self, x: &TracedTensor) -> TracedTensor {
        x.linear_with(&self.weight_ih, kw!(bias = self.bias_ih.as_deref()))
    }

    /// The part of the gates that depends on the hidden state.
    fn of_state(&self, state: &TracedTensor) -> TracedTensor {
        state.linear_with(&self.weight_hh, kw!(bias = self.bias_hh.as_deref()))
    }
}

/// Splits `N` gates.
fn gates<const N: usize>(gates: &TracedTensor) -> [TracedTensor; N] {
    unpack(gates.unsafe_chunk_with(N as i64, kw!(dim = 1)))
}

/// The next hidden and cell states of an LSTM.
fn lstm_step(
    weights: &Weights,
    x: &TracedTensor,
    [hidden, cell]: [TracedTensor; 2],
) -> [TracedTensor; 2] {
    let all = weights.of_state(&hidden) + weights.of_input(x);
    let [input, forget, update, output] = gates::<4>(&all);
    let (input, forget) = (input.sigmoid(), forget.sigmoid());
    let (update, output) = (update.tanh(), output.sigmoid());
    let cell = forget * cell + input * update;
    [output * cell.tanh(), cell]
}

/// The next hidden state of a GRU.
fn gru_step(weights: &Weights, x: &TracedTensor, [hidden]: [TracedTensor; 1]) -> [TracedTensor; 1] {
    let [reset, update, new] = gates::<3>(&weights.of_input(x));
    let [old_reset, old_update, old_new] = gates::<3>(&weights.of_state(&hidden));
    let reset = (old_reset + reset).sigmoid();
    let update = (old_update + update).sigmoid();
    let new = (new + old_new * reset).tanh();
    [(hidden - &new) * update + new]
}

/// The next hidden state of a plain recurrent cell.
fn rnn_step(
    weights: &Weights,
    x: &TracedTensor,
    [hidden]: [TracedTensor; 1],
    nonlinearity: Nonlinearity,
) -> [TracedTensor; 1] {
    let sum = weights.of_state(&hidden) + weights.of_input(x);
    [match nonlinearity {
        Nonlinearity::Tanh => sum.tanh(),
        Nonlinearity::Relu => sum.relu(),
    }]
}

/// Defines a cell by its number of gates.
macro_rules! cells {
    ($($(#[$doc:meta])* $name:ident $gates:literal { $($field:ident: $type:ty = $default:expr)? };)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name {
            weights: Weights,
            $($field: $type,)?
        }

        impl $name {
            /// A cell from `inputs` to `hidden` features, with biases.
            #[track_caller]
            pub fn new(inputs: usize, hidden: usize) -> $name {
                $name { weights: Weights::new($gates, inputs, hidden), $($field: $default)? }
            }

            /// Whether there are biases; true by default.
            #[must_use]
            pub fn bias(mut self, bias: bool) -> $name {
                self.weights.retain_biases(bias);
                self
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
    RNNCell 1 { nonlinearity: Nonlinearity = Nonlinearity::Tanh };
    /// `torch.nn.GRUCell`: the next hidden state.
    GRUCell 3 {};
    /// `torch.nn.LSTMCell`: the next hidden and cell states.
    LSTMCell 4 {};
}

impl RNNCell {
    /// The function of each step; `tanh` by default.
    #[must_use]
    pub fn nonlinearity(mut self, nonlinearity: Nonlinearity) -> RNNCell {
        self.nonlinearity = nonlinearity;
        self
    }

    fn run(&self, x: &TracedTensor, state: Option<&TracedTensor>) -> TracedTensor {
        let step = |weights: &Weights, x: &TracedTensor, state| {
            rnn_step(weights, x, state, self.nonlinearity)
        };
        let states = state.map(|state| [state]);
        let [state] = self.weights.run("RNNCell", x, states, step);
        state
    }
}

impl GRUCell {
    fn run(&self, x: &TracedTensor, state: Option<&TracedTensor>) -> TracedTensor {
        let states = state.map(|state| [state]);
        let [state] = self.weights.run("GRUCell", x, states, gru_step);
        state
    }
}

/// Implements [`Forward`] for cells with one state.
macro_rules! one_state {
    ($($name:ident)*) => {$(
        /// Called without a state: the initial state is zeros.
        impl<X: Borrow<TracedTensor>> Forward<X> for $name {
            type Output = TracedTensor;

            fn forward(&self, x: X) -> TracedTensor {
                self.run(x.borrow(), None)
            }
        }

        /// Called with a state.
        impl<X: Borrow<TracedTensor>, S: Borrow<TracedTensor>> Forward<(X, S)> for $name {
            type Output = TracedTensor;

            fn forward(&self, (x, state): (X, S)) -> TracedTensor {
                self.run(x.borrow(), Some(state.borrow()))
            }
        }
    )*};
}

one_state!(RNNCell GRUCell);

/// Called without states: the initial states are zeros.
impl<X: Borrow<TracedTensor>> Forward<X> for LSTMCell {
    type Output = (TracedTensor, TracedTensor);

    fn forward(&self, x: X) -> Self::Output {
        let weights = &self.weights;
        weights.run("LSTMCell", x.borrow(), None, lstm_step).into()
    }
}

/// Called with hidden and cell states.
impl<X: Borrow<TracedTensor>, S: Borrow<TracedTensor>> Forward<(X, (S, S))> for LSTMCell {
    type Output = (TracedTensor, TracedTensor);

    fn forward(&self, (x, (hidden, cell)): (X, (S, S))) -> Self::Output {
        let states = Some([hidden.borrow(), cell.borrow()]);
        let weights = &self.weights;
        weights
            .run("LSTMCell", x.borrow(), states, lstm_step)
            .into()
    }
}
