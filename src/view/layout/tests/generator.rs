//! Random graphs, equal in every run.

use super::{LayoutItem, Net, Pin};

/// Xorshift generator with a seed other than 0.
pub(super) struct Random(pub(super) u64);

impl Random {
    /// Returns an integer below a limit.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    fn pin(&mut self) -> Option<Pin> {
        match self.below(8) {
            0 => Some(Pin::First),
            1 => Some(Pin::Last),
            _ => None,
        }
    }

    fn item(&mut self) -> LayoutItem {
        let (width, height) = (self.below(90) as f32, self.below(50) as f32);
        let pin = self.pin();
        LayoutItem { width, height, pin }
    }

    fn net(&mut self, items: usize) -> Net {
        let source = self.below(items);
        let target = |random: &mut Random| match random.below(4) {
            0 => random.below(items),
            _ => (source + random.below(6)) % items,
        };
        let targets = (0..1 + self.below(4)).map(|_| target(self)).collect();
        Net { source, targets }
    }

    fn graph(&mut self) -> (Vec<LayoutItem>, Vec<Net>) {
        let items: Vec<LayoutItem> = (0..1 + self.below(60)).map(|_| self.item()).collect();
        let nets = (0..self.below(2 * items.len())).map(|_| self.net(items.len()));
        let nets = nets.collect();
        (items, nets)
    }
}

/// Graphs with cycles, values that their own item reads, targets given twice, and pins at both ends.
pub(super) fn random_graphs() -> impl Iterator<Item = (Vec<LayoutItem>, Vec<Net>)> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    (0..200).map(move |_| random.graph())
}
