//! The axes that layer normalisations work on.

/// Sizes of the last axes: `768`, `[768]` or `[14, 14]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormalizedShape(pub Vec<i64>);

/// Converts a size. One that is too large fits no tensor.
fn size<T>(size: T) -> i64
where
    i64: TryFrom<T>,
{
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// Implements conversions of one size and of lists of sizes.
macro_rules! sizes {
    ($($number:ty)*) => {$(
        impl From<$number> for NormalizedShape {
            fn from(number: $number) -> NormalizedShape {
                NormalizedShape(vec![size(number)])
            }
        }

        impl<const N: usize> From<[$number; N]> for NormalizedShape {
            fn from(numbers: [$number; N]) -> NormalizedShape {
                NormalizedShape(numbers.into_iter().map(size).collect())
            }
        }

        impl From<Vec<$number>> for NormalizedShape {
            fn from(numbers: Vec<$number>) -> NormalizedShape {
                NormalizedShape(numbers.into_iter().map(size).collect())
            }
        }
    )*};
}

sizes!(i32 i64 usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_all_types_are_shapes() {
        let features = 8usize;
        assert_eq!(NormalizedShape::from(8), NormalizedShape(vec![8]));
        assert_eq!(NormalizedShape::from(features), NormalizedShape(vec![8]));
        assert_eq!(NormalizedShape::from([4, 8]), NormalizedShape(vec![4, 8]));
        assert_eq!(
            NormalizedShape::from(vec![4i64, 8]),
            NormalizedShape::from([4, features])
        );
    }
}
