//! Ranks of items: the longest path from above, with slack taken out below.

use super::{LayoutItem, Net, Pin};

/// Returns the rank of each item. Ranks count from 0 without gaps.
///
/// A net leads to a lower rank, except to items before its source, which stay above it.
pub(super) fn ranks(items: &[LayoutItem], nets: &[Net]) -> Vec<usize> {
    let edges = DownwardEdges::new(items, nets);
    let mut ranks = edges.longest_paths(items);
    edges.stack_isolated_items(items, &mut ranks);
    pin_last_items(items, &mut ranks);
    edges.tighten(items, &mut ranks);
    without_gaps(ranks)
}

/// Edges between items, from the earlier to the later one in `order`.
struct DownwardEdges {
    /// Items above each item.
    uppers: Vec<Vec<usize>>,
    /// Items below each item.
    lowers: Vec<Vec<usize>>,
    /// Number of nets that leave an item downwards, less the number of those that reach it from above.
    surplus: Vec<isize>,
    /// All items: first those of the first rank, then unpinned ones, then those of the last rank.
    order: Vec<usize>,
}

/// Position of an item in the downward order.
fn downward_key(items: &[LayoutItem], item: usize) -> (u8, usize) {
    let class = match items[item].pin {
        Some(Pin::First) => 0,
        None => 1,
        Some(Pin::Last) => 2,
    };
    (class, item)
}

fn is_pinned_to(item: &LayoutItem, pin: Pin) -> bool {
    item.pin == Some(pin)
}

impl DownwardEdges {
    fn new(items: &[LayoutItem], nets: &[Net]) -> DownwardEdges {
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by_key(|item| downward_key(items, *item));
        let mut edges = DownwardEdges {
            uppers: vec![Vec::new(); items.len()],
            lowers: vec![Vec::new(); items.len()],
            surplus: vec![0; items.len()],
            order,
        };
        for net in nets {
            edges.add(items, net);
        }
        edges
    }

    fn add(&mut self, items: &[LayoutItem], net: &Net) {
        let source = net.source;
        let shares_rank =
            |target: usize| items[target].pin.is_some() && items[target].pin == items[source].pin;
        let (mut leads_down, mut leads_up) = (false, false);
        for target in net
            .targets
            .iter()
            .copied()
            .filter(|target| !shares_rank(*target))
        {
            if downward_key(items, source) < downward_key(items, target) {
                leads_down = true;
                self.surplus[target] -= 1;
                self.connect(source, target);
            } else {
                leads_up = true;
                self.surplus[target] += 1;
                self.connect(target, source);
            }
        }
        if leads_down || leads_up {
            self.surplus[source] += isize::from(leads_down) - isize::from(leads_up);
        }
    }

    fn connect(&mut self, upper: usize, lower: usize) {
        self.lowers[upper].push(lower);
        self.uppers[lower].push(upper);
    }

    /// Returns the longest path to each item from above. Items of the last rank follow later.
    fn longest_paths(&self, items: &[LayoutItem]) -> Vec<usize> {
        let start = first_free_rank(items);
        let mut ranks = vec![0; items.len()];
        for item in self
            .order
            .iter()
            .copied()
            .filter(|item| !is_pinned_to(&items[*item], Pin::First))
        {
            let below = self.uppers[item]
                .iter()
                .map(|upper| ranks[*upper] + 1)
                .max();
            ranks[item] = below.unwrap_or(start).max(start);
        }
        ranks
    }

    /// Arranges items without any net in rows, as many rows as columns.
    fn stack_isolated_items(&self, items: &[LayoutItem], ranks: &mut [usize]) {
        let is_isolated = |item: &usize| {
            let is_connected = !self.uppers[*item].is_empty() || !self.lowers[*item].is_empty();
            items[*item].pin.is_none() && !is_connected
        };
        let isolated: Vec<usize> = (0..items.len()).filter(is_isolated).collect();
        let columns = (isolated.len() as f64).sqrt().ceil().max(1.0) as usize;
        for (index, item) in isolated.into_iter().enumerate() {
            ranks[item] = first_free_rank(items) + index / columns;
        }
    }

    /// Moves items down to just above the first item that reads them, where that makes no line longer: constants, and
    /// items that more nets leave than reach.
    fn tighten(&self, items: &[LayoutItem], ranks: &mut [usize]) {
        let constant = self.constants(items);
        for item in self
            .order
            .iter()
            .copied()
            .rev()
            .filter(|item| items[*item].pin.is_none())
        {
            let first_reader = self.lowers[item].iter().map(|lower| ranks[*lower]).min();
            if let Some(reader) = first_reader.filter(|_| constant[item] || 0 < self.surplus[item])
            {
                ranks[item] = ranks[item].max(reader - 1);
            }
        }
    }

    /// Returns which items have nothing above them; if inputs are pinned, also which depend on such items alone.
    fn constants(&self, items: &[LayoutItem]) -> Vec<bool> {
        let has_inputs = first_free_rank(items) == 1;
        let mut constant = vec![false; items.len()];
        for item in self.order.iter().copied() {
            let depends_on_constants =
                || has_inputs && self.uppers[item].iter().all(|upper| constant[*upper]);
            constant[item] = items[item].pin.is_none()
                && (self.uppers[item].is_empty() || depends_on_constants());
        }
        constant
    }
}

/// Returns the first rank for items without a pin.
fn first_free_rank(items: &[LayoutItem]) -> usize {
    usize::from(items.iter().any(|item| is_pinned_to(item, Pin::First)))
}

fn pin_last_items(items: &[LayoutItem], ranks: &mut [usize]) {
    let others = items
        .iter()
        .zip(&*ranks)
        .filter(|(item, _)| !is_pinned_to(item, Pin::Last));
    let last = others.map(|(_, rank)| rank + 1).max().unwrap_or(0);
    for (item, rank) in items.iter().zip(ranks) {
        if is_pinned_to(item, Pin::Last) {
            *rank = last;
        }
    }
}

/// Renumbers ranks so that each has an item.
fn without_gaps(mut ranks: Vec<usize>) -> Vec<usize> {
    let count = ranks.iter().max().map_or(0, |rank| rank + 1);
    let mut number = vec![0; count];
    for rank in &ranks {
        number[*rank] = 1;
    }
    let mut next = 0;
    for number in &mut number {
        next += std::mem::replace(number, next);
    }
    for rank in &mut ranks {
        *rank = number[*rank];
    }
    ranks
}
