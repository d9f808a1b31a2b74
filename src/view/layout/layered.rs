//! A graph in ranks, whose edges connect neighbouring ranks only.

use std::ops::Range;

use super::{MAX_ROUTED_RANKS, Net};

/// Items and bends as nodes in ranks. Nodes below `items` are the items, the others are bends.
pub(super) struct LayeredGraph {
    pub(super) items: usize,
    /// Rank of each node.
    pub(super) rank_of: Vec<usize>,
    /// Nodes of each rank from left to right.
    pub(super) ranks: Vec<Vec<usize>>,
    /// Index of each node in its rank.
    pub(super) place: Vec<usize>,
    /// Neighbours of each node in the rank above.
    pub(super) uppers: Vec<Vec<usize>>,
    /// Neighbours of each node in the rank below.
    pub(super) lowers: Vec<Vec<usize>>,
    /// Trunk of each net.
    pub(super) trunks: Vec<Trunk>,
}

/// Bends of a net, and targets that its line does not lead to.
pub(super) struct Trunk {
    /// Nodes of the bends, starting next to the source.
    pub(super) nodes: Range<usize>,
    pub(super) stubs: Vec<usize>,
}

impl LayeredGraph {
    /// Returns the graph of items with ranks and of nets whose targets ascend.
    pub(super) fn new(ranks: Vec<usize>, nets: &[Net]) -> LayeredGraph {
        let items = ranks.len();
        let mut graph = LayeredGraph {
            items,
            rank_of: ranks,
            ranks: Vec::new(),
            place: Vec::new(),
            uppers: vec![Vec::new(); items],
            lowers: vec![Vec::new(); items],
            trunks: Vec::with_capacity(nets.len()),
        };
        for net in nets {
            let trunk = graph.add(net);
            graph.trunks.push(trunk);
        }
        graph.collect_ranks();
        graph
    }

    /// Puts the nodes into their ranks, in the order of their numbers.
    fn collect_ranks(&mut self) {
        let count = self.rank_of.iter().max().map_or(0, |rank| rank + 1);
        let mut ranks = vec![Vec::new(); count];
        for (node, rank) in self.rank_of.iter().enumerate() {
            ranks[*rank].push(node);
        }
        self.place = vec![0; self.rank_of.len()];
        self.set_ranks(ranks);
    }

    fn add(&mut self, net: &Net) -> Trunk {
        let Some(source) = self.rank_of.get(net.source).copied() else {
            return Trunk {
                nodes: 0..0,
                stubs: Vec::new(),
            };
        };
        let down = |target: usize| self.rank_of[target] as isize - source as isize;
        let is_near = |target: usize| (1..=MAX_ROUTED_RANKS).contains(&down(target).unsigned_abs());
        let leads_down = net
            .targets
            .iter()
            .any(|target| is_near(*target) && 0 < down(*target));
        let is_routed = |target: &usize| is_near(*target) && (0 < down(*target)) == leads_down;
        let (routed, stubs): (Vec<usize>, Vec<usize>) =
            net.targets.iter().partition(|target| is_routed(target));
        let nodes = self.add_trunk(net.source, &routed, leads_down);
        Trunk { nodes, stubs }
    }

    /// Adds the bends between an item and its farthest target, and the edges along them to all targets.
    fn add_trunk(&mut self, source: usize, targets: &[usize], leads_down: bool) -> Range<usize> {
        let start = self.rank_of[source];
        let farthest = targets
            .iter()
            .map(|target| self.rank_of[*target].abs_diff(start))
            .max();
        let nodes = self.rank_of.len()..self.rank_of.len() + farthest.unwrap_or(1) - 1;
        let mut end = source;
        for (node, distance) in nodes.clone().zip(1..) {
            self.rank_of.push(if leads_down {
                start + distance
            } else {
                start - distance
            });
            self.uppers.push(Vec::new());
            self.lowers.push(Vec::new());
            self.connect(end, node);
            end = node;
        }
        for target in targets {
            let distance = self.rank_of[*target].abs_diff(start);
            let trunk = if distance == 1 {
                source
            } else {
                nodes.start + distance - 2
            };
            self.connect(trunk, *target);
        }
        nodes
    }

    fn connect(&mut self, a: usize, b: usize) {
        let (upper, lower) = if self.rank_of[a] < self.rank_of[b] {
            (a, b)
        } else {
            (b, a)
        };
        self.lowers[upper].push(lower);
        self.uppers[lower].push(upper);
    }

    pub(super) fn is_item(&self, node: usize) -> bool {
        node < self.items
    }

    /// Sets the order of the nodes of all ranks.
    pub(super) fn set_ranks(&mut self, ranks: Vec<Vec<usize>>) {
        self.ranks = ranks;
        for (place, node) in self.ranks.iter().flat_map(|nodes| nodes.iter().enumerate()) {
            self.place[*node] = place;
        }
    }

    /// Sets the order of the nodes of one rank.
    pub(super) fn set_rank(&mut self, rank: usize, nodes: Vec<usize>) {
        for (place, node) in nodes.iter().enumerate() {
            self.place[*node] = place;
        }
        self.ranks[rank] = nodes;
    }
}
