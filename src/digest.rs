//! 128-bit digests of bytes: XXH3, which gives the same result on every machine and in every version.

use std::fmt;
use std::str::FromStr;

use xxhash_rust::xxh3::xxh3_128;

use crate::error::{Error, Result};
use crate::shape::TensorType;
use crate::tensor::Tensor;

/// A 128-bit hash. Different bytes have equal digests only by chance; it does not resist deliberate collisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub u128);

impl Digest {
    /// The digest of bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(xxh3_128(bytes))
    }

    /// The digest of a tensor's type and elements.
    ///
    /// # Errors
    /// The elements are in a file that cannot be read.
    pub fn of_tensor(tensor: &Tensor) -> Result<Digest> {
        let loaded = tensor.load()?;
        Ok(Digest::of_elements(&tensor.tensor_type(), loaded.bytes()))
    }

    /// The digest of a tensor of a type from the bytes of its elements.
    pub fn of_elements(ty: &TensorType, bytes: &[u8]) -> Digest {
        let elements = Digest::of(bytes);
        Digest::of(format!("{ty}: {elements}").as_bytes())
    }
}

/// Thirty-two hexadecimal digits.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Digest> {
        let number = u128::from_str_radix(text, 16).ok().map(Digest);
        let same = number.filter(|number| number.to_string() == text);
        let expected = "expected a digest of 32 lower-case hexadecimal digits";
        same.ok_or_else(|| Error::format(format!("{expected}, found {text:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_count_as_well_as_elements() {
        let floats = Tensor::from_vec([2, 3], vec![1f32; 6]).unwrap();
        let digest = Digest::of_tensor(&floats).unwrap();
        assert_eq!(Digest::of_tensor(&floats.clone()).unwrap(), digest);
        assert_ne!(
            Digest::of_tensor(&floats.reshape([3, 2]).unwrap()).unwrap(),
            digest
        );
        let integers = Tensor::from_vec([2, 3], vec![1f32.to_bits().cast_signed(); 6]).unwrap();
        assert_eq!(integers.bytes(), floats.bytes());
        assert_ne!(Digest::of_tensor(&integers).unwrap(), digest);
    }

    #[test]
    fn text_is_read_back() {
        let digest = Digest(0x12ab);
        assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
        for wrong in ["", "12AB", &digest.to_string().to_uppercase(), "12ab", "x"] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }
}
