//! Winograd's convolution by tiles of 2×2 positions: F(2×2, 3×3).
//!
//! A tile of the result sees 4×4 positions of its input. These become 16 numbers, `Bᵀ d B`, and so does a filter of 3×3
//! taps, `G g Gᵀ`. Their products are summed over channels, which makes 16 numbers again, and of these the four positions,
//! `Aᵀ m A`. So a convolution is 16 products of matrices, and 16 multiplications stand for 36. The factors are 0, 1 and 1/2,
//! so that no more is lost to rounding than by sums over taps. With larger tiles it would be: 4×4 positions lose a digit.

/// Positions of a tile along an axis.
pub const PLACES: usize = 2;

/// Taps of a filter along an axis.
pub const TAPS: usize = 3;

/// Positions of the input that a tile sees along an axis.
pub const SIDE: usize = PLACES + TAPS - 1;

/// Numbers of a tile, each of a product of matrices of its own.
pub const MATRICES: usize = SIDE * SIDE;

/// `Bᵀ`, for what a tile sees.
pub const SEEN: [[i8; SIDE]; SIDE] = [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]];

/// `Aᵀ`, for what the products sum up to.
pub const SUMMED: [[i8; SIDE]; PLACES] = [[1, 1, 1, 0], [0, 1, -1, -1]];

/// `G`, for filters.
const FILTER: [[f64; TAPS]; SIDE] = [
    [1.0, 0.0, 0.0],
    [0.5, 0.5, 0.5],
    [0.5, -0.5, 0.5],
    [0.0, 0.0, 1.0],
];

/// The numbers of filters whose taps lie behind each other: the first number of all filters, then the second ones. Each is
/// rounded once.
pub fn filters(taps: &[f32]) -> Vec<f32> {
    let count = taps.len() / (TAPS * TAPS);
    let mut numbers = vec![0.0; MATRICES * count];
    for (filter, taps) in taps.chunks_exact(TAPS * TAPS).enumerate() {
        let rows = FILTER.map(|by| [0, 1, 2].map(|x| dot(by, |y| taps[y * TAPS + x].into())));
        for (matrix, number) in rows
            .iter()
            .flat_map(|row| FILTER.map(|by| dot(by, |x| row[x])))
            .enumerate()
        {
            numbers[matrix * count + filter] = number as f32;
        }
    }
    numbers
}

fn dot(by: [f64; TAPS], number: impl Fn(usize) -> f64) -> f64 {
    let products = by.iter().enumerate().map(|(k, by)| by * number(k));
    products.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a tile sees, by rows or columns and then by the others, times a matrix.
    fn turned<const N: usize, const M: usize>(by: [[i8; N]; M], d: [[f64; N]; N]) -> [[f64; M]; M] {
        let sum = |by: [i8; N], number: &dyn Fn(usize) -> f64| {
            (0..N).map(|k| f64::from(by[k]) * number(k)).sum::<f64>()
        };
        by.map(|row| by.map(|column| sum(row, &|y| sum(column, &|x| d[y][x]))))
    }

    #[test]
    fn a_tile_is_what_sums_over_taps_are() {
        let mut next = 1.0f64;
        let mut number = || {
            next = (next * 7.0 + 3.0) % 31.0;
            next - 15.0
        };
        let seen = [[(); SIDE]; SIDE].map(|row| row.map(|()| number()));
        let taps = [(); TAPS * TAPS].map(|()| number());
        let filter = filters(&taps.map(|tap| tap as f32));
        let mut products = turned(SEEN, seen);
        for (product, filter) in products.iter_mut().flatten().zip(filter) {
            *product *= f64::from(filter);
        }
        let found = turned(SUMMED, products);
        for (y, x) in (0..PLACES).flat_map(|y| (0..PLACES).map(move |x| (y, x))) {
            let sum: f64 = (0..TAPS * TAPS)
                .map(|tap| taps[tap] * seen[y + tap / TAPS][x + tap % TAPS])
                .sum();
            assert_eq!(found[y][x], sum);
        }
    }
}
