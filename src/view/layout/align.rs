//! Vertical alignment: which nodes of neighbouring ranks share a horizontal position.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::layered::LayeredGraph;

/// Vertical lines: each node belongs to one block, and a block has at most one node in a rank.
pub(super) struct Blocks {
    /// Block of each node.
    pub(super) of: Vec<usize>,
    pub(super) count: usize,
}

/// Kinds of edges, the most important first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum EdgeClass {
    /// On a path with as many items as the longest of the graph.
    LongestPath,
    /// Between two bends.
    Trunk,
    Other,
}

/// Order in which edges become vertical: by class, on longer paths first, then at the medians of neighbours, then from
/// left to right.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Priority {
    class: EdgeClass,
    path: Reverse<usize>,
    distance_from_medians: usize,
    places: (usize, usize),
}

struct Edge {
    upper: usize,
    lower: usize,
    priority: Priority,
}

/// Returns the blocks of a sorted graph. Edges become vertical in the order of their priority; an edge does not if it
/// crosses a vertical one, or if one of its ends is on a vertical edge on the same side. After each `height` ranks all
/// blocks end, except for those on the longest path.
pub(super) fn blocks(graph: &LayeredGraph, height: usize) -> Blocks {
    let mut edges = edges(graph);
    edges.retain(|edge| {
        let is_longest_path = edge.priority.class == EdgeClass::LongestPath;
        is_longest_path || !graph.rank_of[edge.lower].is_multiple_of(height)
    });
    edges.sort_unstable_by(|a, b| (&a.priority, a.upper).cmp(&(&b.priority, b.upper)));
    let mut aligned = vec![GapAlignment::default(); graph.ranks.len()];
    let mut upper_of = vec![None; graph.rank_of.len()];
    for edge in edges {
        let (upper, lower) = (graph.place[edge.upper], graph.place[edge.lower]);
        if upper_of[edge.lower].is_none() && aligned[graph.rank_of[edge.upper]].insert(upper, lower)
        {
            upper_of[edge.lower] = Some(edge.upper);
        }
    }
    Blocks::new(graph, &upper_of)
}

/// Vertical edges between two ranks: the lower place of each upper place.
#[derive(Clone, Default)]
struct GapAlignment(BTreeMap<usize, usize>);

impl GapAlignment {
    /// Adds an edge and returns true, unless it crosses another one or begins where another one does.
    fn insert(&mut self, upper: usize, lower: usize) -> bool {
        let left = self.0.range(..=upper).next_back();
        let right = self.0.range(upper..).next();
        let is_free = left.is_none_or(|(other, end)| *other < upper && *end < lower)
            && right.is_none_or(|(other, end)| upper < *other && lower < *end);
        if is_free {
            self.0.insert(upper, lower);
        }
        is_free
    }
}

impl Blocks {
    fn new(graph: &LayeredGraph, upper_of: &[Option<usize>]) -> Blocks {
        let mut blocks = Blocks {
            of: vec![0; graph.rank_of.len()],
            count: 0,
        };
        for node in graph.ranks.iter().flatten() {
            blocks.of[*node] = match upper_of[*node] {
                Some(upper) => blocks.of[upper],
                None => {
                    blocks.count += 1;
                    blocks.count - 1
                }
            };
        }
        blocks
    }
}

fn edges(graph: &LayeredGraph) -> Vec<Edge> {
    let (above, below) = (path_lengths_above(graph), path_lengths_below(graph));
    let longest = above.iter().max().copied().unwrap_or(0);
    let edge = |upper: usize, lower: usize| Edge {
        upper,
        lower,
        priority: priority(graph, upper, lower, above[upper] + below[lower], longest),
    };
    let uppers = graph.lowers.iter().enumerate();
    let edges = uppers.flat_map(|(upper, lowers)| lowers.iter().map(move |lower| (upper, *lower)));
    edges.map(|(upper, lower)| edge(upper, lower)).collect()
}

/// Returns the priority of an edge on a path with a number of items, where the longest path has `longest` items.
fn priority(
    graph: &LayeredGraph,
    upper: usize,
    lower: usize,
    path: usize,
    longest: usize,
) -> Priority {
    let class = match (
        path == longest,
        graph.is_item(upper) || graph.is_item(lower),
    ) {
        (true, _) => EdgeClass::LongestPath,
        (_, false) => EdgeClass::Trunk,
        _ => EdgeClass::Other,
    };
    Priority {
        class,
        path: Reverse(path),
        distance_from_medians: distance_from_median(graph, &graph.lowers[upper], lower)
            + distance_from_median(graph, &graph.uppers[lower], upper),
        places: (graph.place[upper], graph.place[lower]),
    }
}

/// Returns twice the distance of a node from the middle of the nodes, counted in nodes.
fn distance_from_median(graph: &LayeredGraph, nodes: &[usize], node: usize) -> usize {
    let before = nodes.partition_point(|other| graph.place[*other] < graph.place[node]);
    (2 * before).abs_diff(nodes.len() - 1)
}

/// Returns the number of items on the longest path that ends in each node.
fn path_lengths_above(graph: &LayeredGraph) -> Vec<usize> {
    let mut lengths = vec![0; graph.rank_of.len()];
    for node in graph.ranks.iter().flatten() {
        let longest = graph.uppers[*node]
            .iter()
            .map(|upper| lengths[*upper])
            .max();
        lengths[*node] = longest.unwrap_or(0) + usize::from(graph.is_item(*node));
    }
    lengths
}

/// Returns the number of items on the longest path that begins in each node.
fn path_lengths_below(graph: &LayeredGraph) -> Vec<usize> {
    let mut lengths = vec![0; graph.rank_of.len()];
    for node in graph.ranks.iter().rev().flatten() {
        let longest = graph.lowers[*node]
            .iter()
            .map(|lower| lengths[*lower])
            .max();
        lengths[*node] = longest.unwrap_or(0) + usize::from(graph.is_item(*node));
    }
    lengths
}
