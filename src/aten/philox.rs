//! Random bits as a function of a seed, a call's counter and an element's index: Philox 4x32-10 (Salmon, Moraes, Dror and
//! Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011). It uses integer primitives only, which give identical bits on
//! every device.
//!
//! For tensors of up to one element for each thread, the layout is that of PyTorch's generator on CUDA devices. The
//! seed is the key, the call's counter the low words of the Philox counter, the element's index its high words. A word
//! has 32 bits. A block has four output words; each element has a block of its own and mostly uses the first word.

use std::f64::consts::PI;

use crate::dtype::DType;
use crate::ir::{Argument, Builder, Value};
use crate::op::BinaryFunction;
use crate::scalar::Scalar;
use crate::shape::Shape;

use super::{Args, Operator};

const ROUNDS: usize = 10;
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// Increments of the key's words in each round (the Weyl constants).
const KEY_INCREMENTS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// The random number generator of a run: each call that draws numbers takes the next counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generator {
    /// Distinguishes sequences.
    pub seed: u64,
    /// Counter of the next call.
    pub counter: u64,
}

impl Generator {
    /// A sequence at its beginning.
    pub const fn new(seed: u64) -> Generator {
        Generator { seed, counter: 0 }
    }
}

impl Operator {
    /// True if a call with these arguments draws random numbers: dropout does so in training only.
    pub fn is_random(&'static self, arguments: &[Argument]) -> bool {
        let builder = Builder::new("draws");
        let draws = self.row.is_random;
        draws.is_some_and(|draws| draws(&Args::new(&builder, self, arguments)))
    }

    /// Seed and counter of a call that draws, if both are known numbers.
    pub fn random_position(&'static self, arguments: &[Argument]) -> Option<Generator> {
        let number = |name| match arguments.get(self.schema.position(name)?)? {
            Argument::Number(number) => Some(number.to_i64().cast_unsigned()),
            _ => None,
        };
        let (seed, counter) = (number(SEED)?, number(COUNTER)?);
        let draws = self.is_random(arguments);
        draws.then_some(Generator { seed, counter })
    }

    /// True if a call takes its counter from a tensor.
    pub fn has_tensor_counter(&'static self, arguments: &[Argument]) -> bool {
        let position = self.schema.position(COUNTER);
        let counter = position.and_then(|position| arguments.get(position));
        matches!(counter, Some(Argument::Value(_)))
    }

    /// Makes a call that draws take its counter from an `i64` scalar, which may count up to 2^31.
    pub fn set_counter(&'static self, arguments: &mut [Argument], counter: Argument) {
        let position = self.schema.position(COUNTER);
        if let Some(slot) = position.and_then(|position| arguments.get_mut(position)) {
            *slot = counter;
        }
    }

    /// Gives a call that draws the generator's seed and next counter, unless it already has a seed.
    pub fn seed_call(&'static self, arguments: &mut [Argument], generator: &mut Generator) {
        let positions = [SEED, COUNTER].map(|name| self.schema.position(name));
        let [Some(seed), Some(counter)] = positions else {
            return;
        };
        let is_unseeded = matches!(arguments.get(seed), Some(Argument::None));
        if !is_unseeded || !self.is_random(arguments) {
            return;
        }
        let numbers = [(seed, generator.seed), (counter, generator.counter)];
        for (position, number) in numbers {
            if let Some(slot) = arguments.get_mut(position) {
                *slot = Argument::Number(Scalar::Int(number.cast_signed()));
            }
        }
        generator.counter = generator.counter.wrapping_add(1);
    }
}

/// Name of the parameter for the seed. Rows that draw random numbers have it after PyTorch's parameters.
pub(super) const SEED: &str = "seed";
/// Name of the parameter for the counter, which follows the seed.
pub(super) const COUNTER: &str = "counter";

/// The random bits of one call.
pub(super) struct Philox<'g> {
    builder: &'g Builder,
    seed: u64,
    counter: CallCounter<'g>,
}

/// A call's counter.
enum CallCounter<'g> {
    /// A number.
    Known(u64),
    /// An `i64` scalar.
    Value(Value<'g>),
}

impl<'g> Philox<'g> {
    /// The bits of a call for its seed and counter; absent ones are 0.
    pub fn of(a: &Args<'g>) -> Philox<'g> {
        let word = |name| a.optional_int(name).unwrap_or(0).cast_unsigned();
        let counter = match a.get(COUNTER) {
            Argument::Value(id) => CallCounter::Value(a.builder().value(id)),
            _ => CallCounter::Known(word(COUNTER)),
        };
        Philox {
            builder: a.builder(),
            seed: word(SEED),
            counter,
        }
    }

    /// The four words of each element's block.
    fn words(&self, shape: Shape) -> [Value<'g>; 4] {
        let word = |word: u64| {
            self.builder
                .full(DType::I32, shape.clone(), signed(word as u32))
        };
        let count = crate::dim::Dim::product(&shape);
        let index = self.builder.iota(DType::I32, vec![count], 0);
        let [low, high] = match self.counter {
            CallCounter::Known(counter) => [word(counter), word(counter >> 32)],
            CallCounter::Value(counter) => [counter.to(DType::I32).expand(shape.clone()), word(0)],
        };
        let counter = [low, high, index.reshape(shape.clone()), word(0)];
        philox_block(counter, [self.seed as u32, (self.seed >> 32) as u32])
    }

    /// The first of the four words of each element.
    pub fn bits(&self, shape: Shape) -> Value<'g> {
        self.words(shape)[0]
    }

    /// Numbers in [0, 1) with as many random bits as the mantissa of the dtype.
    pub fn uniform(&self, dtype: DType, shape: Shape) -> Value<'g> {
        let [first, second, ..] = self.words(shape);
        if dtype == DType::F64 {
            let high = leading_bits(first, 27, DType::F64) * (1i64 << 26) as f64;
            return (high + leading_bits(second, 26, DType::F64)) * 2f64.powi(-53);
        }
        let digits = match dtype {
            DType::F16 => 11,
            DType::BF16 => 8,
            _ => 24,
        };
        (leading_bits(first, digits, DType::F32) * 2f64.powi(-digits)).to(dtype)
    }

    /// Numbers in (0, 1], in single or double precision.
    pub fn positive(&self, dtype: DType, shape: Shape) -> Value<'g> {
        interval_centre(self.words(shape)[0], dtype)
    }

    /// Normally distributed numbers by the Box-Muller transform, in single or double precision.
    pub fn normal(&self, dtype: DType, shape: Shape) -> Value<'g> {
        let [first, second, ..] = self.words(shape);
        let radius = (interval_centre(first, dtype).log() * -2.0).sqrt();
        radius * (interval_centre(second, dtype) * (2.0 * PI)).sin()
    }
}

/// The middle of the interval that a word's 24 leading bits select between 0 and 1; never 0.
fn interval_centre(word: Value, dtype: DType) -> Value {
    leading_bits(word, 24, dtype) * 2f64.powi(-24) + 2f64.powi(-25)
}

/// The leading bits of a word as a float.
fn leading_bits(word: Value, bits: i32, dtype: DType) -> Value {
    let shifted = word.bitwise_right_shift(i64::from(32 - bits));
    shifted.bitwise_and((1i64 << bits) - 1).to(dtype)
}

/// A word reinterpreted as `i32`.
fn signed(word: u32) -> Scalar {
    Scalar::Int(i64::from(word.cast_signed()))
}

/// The Philox block of a counter and a key.
fn philox_block<'g>(mut counter: [Value<'g>; 4], mut key: [u32; 2]) -> [Value<'g>; 4] {
    for _ in 0..ROUNDS {
        let [a, b, c, d] = counter;
        let [first, second] = MULTIPLIERS.map(signed);
        counter = [
            mul_high(c, second)
                .bitwise_xor(b)
                .bitwise_xor(signed(key[0])),
            c * second,
            mul_high(a, first)
                .bitwise_xor(d)
                .bitwise_xor(signed(key[1])),
            a * first,
        ];
        key = [
            key[0].wrapping_add(KEY_INCREMENTS[0]),
            key[1].wrapping_add(KEY_INCREMENTS[1]),
        ];
    }
    counter
}

/// The high word of the product of two words.
pub(super) fn mul_high(word: Value, factor: Scalar) -> Value {
    word.combine(BinaryFunction::MulHigh, factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interp;
    use crate::ir::Weights;

    /// Known answers published by the authors (Random123, `kat_vectors`).
    #[test]
    fn blocks_match_known_answers() {
        let cases: [([u32; 4], [u32; 2], [u32; 4]); 3] = [
            (
                [0; 4],
                [0; 2],
                [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8],
            ),
            (
                [!0; 4],
                [!0; 2],
                [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd],
            ),
            (
                [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
                [0xa4093822, 0x299f31d0],
                [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
            ),
        ];
        for (counter, key, wanted) in cases {
            let builder = Builder::new("block");
            let words = counter.map(|word| builder.full(DType::I32, Shape::new(), signed(word)));
            let results = philox_block(words, key).map(|word| word.id());
            let graph = builder.finish(&results, Vec::new(), None).unwrap();
            let found = interp::run(&graph, &Weights::new(), &[]).unwrap();
            let found: Vec<u32> = found.iter().map(|word| word.to_i64()[0] as u32).collect();
            assert_eq!(found, wanted);
        }
    }
}
