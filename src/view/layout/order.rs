//! Order of the nodes of each rank: few crossings, and execution order where crossings do not decide.

use super::layered::LayeredGraph;

/// Most rounds of sweeps.
const MAX_ROUNDS: usize = 12;
/// Rounds without improvement after which the search ends.
const MAX_STALE_ROUNDS: usize = 3;

/// Neighbours of a node on one side.
type NeighboursOf = fn(&LayeredGraph, usize) -> &[usize];

/// Sorts the nodes of all ranks.
///
/// A depth-first search gives the first order. Rounds of a sweep up, a sweep down and swaps of neighbours improve it.
/// The order with the fewest crossings is taken, the earliest of equal ones.
pub(super) fn sort_ranks(graph: &mut LayeredGraph) {
    sort_depth_first(graph);
    let (mut fewest, mut best) = (crossings(graph), graph.ranks.clone());
    let mut stale_rounds = 0;
    for _ in 0..MAX_ROUNDS {
        if fewest == 0 || stale_rounds == MAX_STALE_ROUNDS {
            break;
        }
        improve(graph);
        let crossings = crossings(graph);
        stale_rounds += 1;
        if crossings < fewest {
            (fewest, best, stale_rounds) = (crossings, graph.ranks.clone(), 0);
        }
    }
    graph.set_ranks(best);
    sort_neighbours(graph);
}

/// Sorts the neighbours of each node from left to right.
fn sort_neighbours(graph: &mut LayeredGraph) {
    let place = &graph.place;
    for nodes in graph.uppers.iter_mut().chain(&mut graph.lowers) {
        nodes.sort_by_key(|node| place[*node]);
    }
}

/// Sorts nodes as a depth-first search finds them. At each node it enters items before bends, and earlier items first.
fn sort_depth_first(graph: &mut LayeredGraph) {
    let mut is_found = vec![false; graph.rank_of.len()];
    let mut ranks = vec![Vec::new(); graph.ranks.len()];
    let mut stack = roots(graph);
    stack.reverse();
    while let Some(node) = stack.pop() {
        if std::mem::replace(&mut is_found[node], true) {
            continue;
        }
        ranks[graph.rank_of[node]].push(node);
        let mut lowers = graph.lowers[node].clone();
        lowers.sort_unstable();
        stack.extend(lowers.into_iter().rev());
    }
    graph.set_ranks(ranks);
}

/// Returns the nodes with nothing above them: from top to bottom, and isolated ones after all others.
fn roots(graph: &LayeredGraph) -> Vec<usize> {
    let nodes = 0..graph.rank_of.len();
    let mut roots: Vec<usize> = nodes
        .filter(|node| graph.uppers[*node].is_empty())
        .collect();
    roots.sort_by_key(|node| (graph.lowers[*node].is_empty(), graph.rank_of[*node]));
    roots
}

fn improve(graph: &mut LayeredGraph) {
    for rank in (0..graph.ranks.len().saturating_sub(1)).rev() {
        sort_by_barycentre(graph, rank, |graph, node| &graph.lowers[node]);
    }
    for rank in 1..graph.ranks.len() {
        sort_by_barycentre(graph, rank, |graph, node| &graph.uppers[node]);
    }
    for rank in 0..graph.ranks.len() {
        swap_neighbours(graph, rank);
    }
}

/// Sorts the nodes of a rank by the mean place of their neighbours. Nodes without neighbours stay in their places.
fn sort_by_barycentre(graph: &mut LayeredGraph, rank: usize, neighbours: NeighboursOf) {
    let mean = |node: usize| {
        let neighbours = neighbours(graph, node);
        let sum: usize = neighbours.iter().map(|node| graph.place[*node]).sum();
        (!neighbours.is_empty()).then(|| sum as f64 / neighbours.len() as f64)
    };
    let means: Vec<Option<f64>> = graph.ranks[rank].iter().map(|node| mean(*node)).collect();
    let nodes = graph.ranks[rank].iter().zip(&means);
    let mut sorted: Vec<(f64, usize)> = nodes
        .filter_map(|(node, mean)| Some(((*mean)?, *node)))
        .collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut sorted = sorted.into_iter().map(|(_, node)| node);
    let nodes = graph.ranks[rank].iter().zip(&means);
    let order = nodes.map(|(node, mean)| mean.and_then(|_| sorted.next()).unwrap_or(*node));
    let order = order.collect();
    graph.set_rank(rank, order);
}

/// Swaps neighbouring nodes of a rank where fewer lines cross then.
fn swap_neighbours(graph: &mut LayeredGraph, rank: usize) {
    for place in 1..graph.ranks[rank].len() {
        let (left, right) = (graph.ranks[rank][place - 1], graph.ranks[rank][place]);
        if crossings_of_pair(graph, right, left) < crossings_of_pair(graph, left, right) {
            graph.ranks[rank].swap(place - 1, place);
            (graph.place[right], graph.place[left]) = (place - 1, place);
        }
    }
}

/// Returns the weight of the crossings between the edges of two nodes of a rank.
fn crossings_of_pair(graph: &LayeredGraph, left: usize, right: usize) -> usize {
    let sides = [&graph.uppers, &graph.lowers];
    let ends = |node: usize, neighbours: &[Vec<usize>]| edge_ends(graph, node, &neighbours[node]);
    let crossings = sides.map(|side| inversions(&ends(left, side), &ends(right, side)));
    crossings.iter().sum()
}

/// End of an edge in a neighbouring rank.
struct EdgeEnd {
    place: usize,
    weight: usize,
}

/// Returns the ends of edges from a node to its neighbours on one side, from left to right.
///
/// An edge between two items or within a trunk weighs twice as much as one between an item and a bend, so that lines
/// cross where they leave their trunks.
fn edge_ends(graph: &LayeredGraph, node: usize, neighbours: &[usize]) -> Vec<EdgeEnd> {
    let end = |neighbour: &usize| EdgeEnd {
        place: graph.place[*neighbour],
        weight: 1 + usize::from(graph.is_item(node) == graph.is_item(*neighbour)),
    };
    let mut ends: Vec<EdgeEnd> = neighbours.iter().map(end).collect();
    ends.sort_unstable_by_key(|end| end.place);
    ends
}

/// Returns the weight of the pairs of a left and a right end in which the left end lies to the right of the right end.
fn inversions(left: &[EdgeEnd], right: &[EdgeEnd]) -> usize {
    let (mut right, mut before, mut crossings) = (right.iter().peekable(), 0, 0);
    for end in left {
        while let Some(other) = right.next_if(|other| other.place < end.place) {
            before += other.weight;
        }
        crossings += before * end.weight;
    }
    crossings
}

/// Returns the weight of the crossings between all neighbouring ranks: for each, the product of the weights of its edges.
pub(super) fn crossings(graph: &LayeredGraph) -> usize {
    let gaps = graph.ranks.windows(2);
    gaps.map(|pair| crossings_between(graph, &pair[0], pair[1].len()))
        .sum()
}

/// Returns the weight of pairs of edges below a rank whose upper ends are in the other order than their lower ends.
fn crossings_between(graph: &LayeredGraph, upper: &[usize], lower_count: usize) -> usize {
    let mut ends = PrefixSums::new(lower_count);
    let mut crossings = 0;
    for node in upper {
        for end in edge_ends(graph, *node, &graph.lowers[*node]) {
            crossings += end.weight * (ends.total - ends.up_to(end.place));
            ends.add(&end);
        }
    }
    crossings
}

/// Fenwick tree: sums of weights up to a place, in logarithmic time.
struct PrefixSums {
    sums: Vec<usize>,
    total: usize,
}

impl PrefixSums {
    fn new(places: usize) -> PrefixSums {
        PrefixSums {
            sums: vec![0; places + 1],
            total: 0,
        }
    }

    fn add(&mut self, end: &EdgeEnd) {
        let mut index = end.place + 1;
        while index < self.sums.len() {
            self.sums[index] += end.weight;
            index += index & index.wrapping_neg();
        }
        self.total += end.weight;
    }

    /// Returns the weight at a place and before it.
    fn up_to(&self, place: usize) -> usize {
        let (mut index, mut sum) = (place + 1, 0);
        while index > 0 {
            sum += self.sums[index];
            index &= index - 1;
        }
        sum
    }
}
