//! Winograd's convolution of 3×3 taps by tiles: F(2×2, 3×3) and F(4×4, 3×3).
//!
//! A tile of m×m positions of the result sees (m + 2)² positions of its input. These become as many numbers, `B d Bᵀ`, and so
//! does a filter of 3×3 taps, `G g Gᵀ`. Their products are summed over channels, which makes (m + 2)² numbers again, and of
//! these the positions, `A m Aᵀ`. So a convolution is a product of matrices for each number of a tile: 16 multiplications
//! stand for 36 with tiles of 2×2 positions, 36 for 144 with tiles of 4×4.
//!
//! # Exactness
//!
//! A number of a tile is a polynomial's value at a point, and `A` has powers of these points. Three points and infinity will
//! do for 2×2 positions: 0 and ±1, whose factors 0, 1 and 1/2 lose no more to rounding than sums over taps do. Four by four
//! take two points more, and powers up to the third. Of all 0, ±p, ±q in eighths up to 4, 5/8 and 3/2 lose least: about three
//! times what 2×2 positions lose, and less than half of what 0, ±1, ±2 do, of which textbooks have the matrices. Of
//! random numbers of 256 channels, errors measured 1.5e-6 of the largest position with 4×4, 4.0e-7 with 2×2, and 9.1e-7 where
//! taps are added up; [`Places::loss`] bounds them (`cargo test --test variants lose_what_is_said -- --nocapture`). The points
//! are sums of two powers of two: no factor of `A` or `B` is rounded, and those of `G` only where a filter's numbers are.

/// Taps of a filter along an axis.
pub const TAPS: usize = 3;

/// Rows of factors.
pub type Matrix = &'static [&'static [f64]];

/// Positions of a tile along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Places {
    /// Two.
    Two,
    /// Four.
    Four,
}

impl Places {
    /// All sizes of tiles.
    pub const ALL: [Places; 2] = [Places::Two, Places::Four];

    /// How many.
    pub fn count(self) -> usize {
        self.summed().len()
    }

    /// Positions of the input that a tile sees along an axis.
    pub fn side(self) -> usize {
        self.seen().len()
    }

    /// Numbers of a tile, each of a product of matrices of its own.
    pub fn matrices(self) -> usize {
        self.side() * self.side()
    }

    /// The largest error of a convolution of numbers of single precision, as part of its largest result.
    pub fn loss(self) -> f64 {
        match self {
            Places::Two => 1e-6,
            Places::Four => 4e-6,
        }
    }

    /// `B`, for what a tile sees.
    pub fn seen(self) -> Matrix {
        match self {
            Places::Two => &[
                &[1.0, 0.0, -1.0, 0.0],
                &[0.0, 1.0, 1.0, 0.0],
                &[0.0, -1.0, 1.0, 0.0],
                &[0.0, 1.0, 0.0, -1.0],
            ],
            Places::Four => &[
                &[PP * QQ, 0.0, -PP - QQ, 0.0, 1.0, 0.0],
                &[0.0, -P * QQ, -QQ, P, 1.0, 0.0],
                &[0.0, P * QQ, -QQ, -P, 1.0, 0.0],
                &[0.0, -Q * PP, -PP, Q, 1.0, 0.0],
                &[0.0, Q * PP, -PP, -Q, 1.0, 0.0],
                &[0.0, PP * QQ, 0.0, -PP - QQ, 0.0, 1.0],
            ],
        }
    }

    /// `A`, for what the products sum up to.
    pub fn summed(self) -> Matrix {
        match self {
            Places::Two => &[&[1.0, 1.0, 1.0, 0.0], &[0.0, 1.0, -1.0, -1.0]],
            Places::Four => &[
                &[1.0, 1.0, 1.0, 1.0, 1.0, 0.0],
                &[0.0, P, -P, Q, -Q, 0.0],
                &[0.0, PP, PP, QQ, QQ, 0.0],
                &[0.0, P * PP, -P * PP, Q * QQ, -Q * QQ, 1.0],
            ],
        }
    }

    /// `G`, for filters.
    fn filter(self) -> &'static [[f64; TAPS]] {
        match self {
            Places::Two => &[
                [1.0, 0.0, 0.0],
                [0.5, 0.5, 0.5],
                [0.5, -0.5, 0.5],
                [0.0, 0.0, 1.0],
            ],
            Places::Four => {
                const OF_P: f64 = 2.0 * PP * (PP - QQ);
                const OF_Q: f64 = 2.0 * QQ * (QQ - PP);
                &[
                    [1.0 / (PP * QQ), 0.0, 0.0],
                    [1.0 / OF_P, P / OF_P, PP / OF_P],
                    [1.0 / OF_P, -P / OF_P, PP / OF_P],
                    [1.0 / OF_Q, Q / OF_Q, QQ / OF_Q],
                    [1.0 / OF_Q, -Q / OF_Q, QQ / OF_Q],
                    [0.0, 0.0, 1.0],
                ]
            }
        }
    }

    /// The number of a filter that is an element of a matrix, by the matrix. It is computed in double precision and rounded once.
    pub fn number(self, matrix: usize, taps: &[f32; TAPS * TAPS]) -> f32 {
        let [down, across] = [matrix / self.side(), matrix % self.side()].map(|i| self.filter()[i]);
        dot(&across, |x| dot(&down, |y| taps[y * TAPS + x].into())) as f32
    }
}

/// Points of tiles of 4×4 positions, beside 0, their negatives and infinity, and the squares of these.
const P: f64 = 5.0 / 8.0;
const Q: f64 = 3.0 / 2.0;
const PP: f64 = P * P;
const QQ: f64 = Q * Q;

fn dot(by: &[f64], number: impl Fn(usize) -> f64) -> f64 {
    let products = by.iter().enumerate().map(|(k, by)| by * number(k));
    products.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of a tile, by rows and columns, times a matrix from both sides.
    fn turned(by: Matrix, d: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let row = |row: &&[f64]| {
            let column = |column: &&[f64]| dot(row, |y| dot(column, |x| d[y][x]));
            by.iter().map(column).collect()
        };
        by.iter().map(row).collect()
    }

    #[test]
    fn a_tile_is_what_sums_over_taps_are() {
        let mut next = 1.0f64;
        let mut number = || {
            next = (next * 7.0 + 3.0) % 31.0;
            next - 15.0
        };
        for places in Places::ALL {
            let side = places.side();
            let seen: Vec<Vec<f64>> = (0..side)
                .map(|_| (0..side).map(|_| number()).collect())
                .collect();
            let taps = [(); TAPS * TAPS].map(|()| number());
            let single = taps.map(|tap| tap as f32);
            let filter = (0..places.matrices()).map(|matrix| places.number(matrix, &single));
            let mut products = turned(places.seen(), &seen);
            for (product, filter) in products.iter_mut().flatten().zip(filter) {
                *product *= f64::from(filter);
            }
            let found = turned(places.summed(), &products);
            for (y, x) in (0..places.count()).flat_map(|y| (0..places.count()).map(move |x| (y, x)))
            {
                let products = (0..TAPS * TAPS)
                    .map(|tap| taps[tap] * seen[y + tap / TAPS][x + tap % TAPS])
                    .collect::<Vec<f64>>();
                let scale: f64 = products.iter().map(|product| product.abs()).sum();
                let error = (found[y][x] - products.iter().sum::<f64>()).abs();
                assert!(error <= 1e-6 * scale, "{places:?}: {error} of {scale}");
            }
        }
    }
}
