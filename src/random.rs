//! Reproducible random numbers.

/// A linear congruential generator (Knuth's MMIX). Equal seeds give equal numbers on every machine.
pub struct Lcg(pub u64);

impl Lcg {
    /// A generator whose seed is a hash of a text (FNV-1a).
    pub fn of_text(text: &str) -> Lcg {
        let mix = |seed: u64, byte: u8| (seed ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        Lcg(text.bytes().fold(0xcbf2_9ce4_8422_2325, mix))
    }

    /// The next number, from 0, inclusive, to 1, exclusive.
    pub fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}
