//! What bytes are, in 64 bits: xxHash (XXH64), whose numbers are the same on every machine and in every version.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Tells bytes apart: equal for equal bytes, and for others equal by chance only. No protection from someone who wants two
/// to be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub u64);

const PRIMES: [u64; 5] = [
    0x9E37_79B1_85EB_CA87,
    0xC2B2_AE3D_27D4_EB4F,
    0x1656_67B1_9E37_79F9,
    0x85EB_CA77_C2B2_AE63,
    0x27D4_EB2F_1656_67C5,
];

impl Digest {
    /// The digest of bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        let (stripes, rest) = bytes.as_chunks::<32>();
        let mut sum = match stripes {
            [] => PRIMES[4],
            _ => merge(stripes),
        };
        sum = sum.wrapping_add(bytes.len() as u64);
        let (words, rest) = rest.as_chunks::<8>();
        for word in words {
            sum = (sum ^ round(0, u64::from_le_bytes(*word))).rotate_left(27);
            sum = sum.wrapping_mul(PRIMES[0]).wrapping_add(PRIMES[3]);
        }
        let (halves, rest) = rest.as_chunks::<4>();
        for half in halves {
            let half = u64::from(u32::from_le_bytes(*half));
            sum = (sum ^ half.wrapping_mul(PRIMES[0])).rotate_left(23);
            sum = sum.wrapping_mul(PRIMES[1]).wrapping_add(PRIMES[2]);
        }
        for byte in rest {
            sum = (sum ^ u64::from(*byte).wrapping_mul(PRIMES[4])).rotate_left(11);
            sum = sum.wrapping_mul(PRIMES[0]);
        }
        Digest(avalanche(sum))
    }

    /// The digest of a tensor's type and elements.
    pub fn of_tensor(tensor: &Tensor) -> Digest {
        let elements = Digest::of(tensor.bytes());
        Digest::of(format!("{}: {elements}", tensor.tensor_type()).as_bytes())
    }
}

/// Four sums side by side, of which a processor computes several at a time.
fn merge(stripes: &[[u8; 32]]) -> u64 {
    let both = PRIMES[0].wrapping_add(PRIMES[1]);
    let mut sums = [both, PRIMES[1], 0, PRIMES[0].wrapping_neg()];
    for stripe in stripes {
        for (sum, word) in sums.iter_mut().zip(stripe.as_chunks().0) {
            *sum = round(*sum, u64::from_le_bytes(*word));
        }
    }
    let turned = sums.iter().zip([1, 7, 12, 18]);
    let turned = turned.map(|(sum, by)| sum.rotate_left(by));
    let whole = turned.fold(0, u64::wrapping_add);
    sums.iter().fold(whole, |whole, sum| {
        let mixed = (whole ^ round(0, *sum)).wrapping_mul(PRIMES[0]);
        mixed.wrapping_add(PRIMES[3])
    })
}

fn round(sum: u64, word: u64) -> u64 {
    let sum = sum.wrapping_add(word.wrapping_mul(PRIMES[1]));
    sum.rotate_left(31).wrapping_mul(PRIMES[0])
}

fn avalanche(mut sum: u64) -> u64 {
    sum = (sum ^ sum >> 33).wrapping_mul(PRIMES[1]);
    sum = (sum ^ sum >> 29).wrapping_mul(PRIMES[2]);
    sum ^ sum >> 32
}

/// Sixteen hexadecimal digits.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Digest> {
        let number = u64::from_str_radix(text, 16).ok().map(Digest);
        let same = number.filter(|number| number.to_string() == text);
        same.ok_or_else(|| Error::format(format!("{text:?} is no digest")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_specification() {
        for (text, number) in [
            ("", 0xef46_db37_51d8_e999),
            ("a", 0xd24e_c4f1_a98c_6e5b),
            ("abc", 0x44bc_2cf5_ad77_0999),
            (
                "Nobody inspects the spammish repetition",
                0xfbce_a83c_8a37_8bf1,
            ),
        ] {
            assert_eq!(Digest::of(text.as_bytes()), Digest(number), "{text}");
        }
    }

    #[test]
    fn every_bit_and_every_length_counts() {
        let bytes: Vec<u8> = (0..100u32).map(|i| (i * 37) as u8).collect();
        let mut seen = std::collections::HashSet::new();
        for length in 0..=bytes.len() {
            assert!(seen.insert(Digest::of(&bytes[..length])));
        }
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(seen.insert(Digest::of(&other)), "bit {bit}");
        }
    }

    #[test]
    fn text_is_read_back() {
        let digest = Digest(0x12ab);
        assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
        for wrong in ["", "12AB", "00000000000012AB", "12ab", "x"] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }
}
