mod generator;

use generator::{Random, random_graphs};

use super::layered::LayeredGraph;
use super::*;

const SPACING: Spacing = Spacing {
    item: 20.0,
    rank: 40.0,
    line: 12.0,
};
/// Rounding of positions to `f32`, in CSS pixels.
const ROUNDING: f32 = 0.01;

fn boxes(count: usize) -> Vec<LayoutItem> {
    let item = |index: usize| LayoutItem {
        width: 50.0 + 7.0 * (index % 4) as f32,
        height: 30.0,
        pin: None,
    };
    (0..count).map(item).collect()
}

fn nets(of: &[(usize, &[usize])]) -> Vec<Net> {
    let net = |(source, targets): &(usize, &[usize])| Net {
        source: *source,
        targets: targets.to_vec(),
    };
    of.iter().map(net).collect()
}

fn chain(count: usize) -> Vec<Net> {
    let net = |source| Net {
        source,
        targets: vec![source + 1],
    };
    (0..count - 1).map(net).collect()
}

fn laid_out(count: usize, of: &[(usize, &[usize])]) -> LevelLayout {
    layout(&boxes(count), &nets(of), SPACING)
}

fn assert_vertical(layout: &LevelLayout, items: &[usize]) {
    let first = layout.items[items[0]].x;
    for item in items {
        assert_eq!(layout.items[*item].x, first, "item {item}");
    }
}

/// Returns the left and right edge of all boxes and bends of each rank, and whether they are boxes.
fn extents(items: &[LayoutItem], layout: &LevelLayout) -> Vec<Vec<(f32, f32, bool)>> {
    let mut extents = vec![Vec::new(); layout.ranks.len()];
    for (item, place) in items.iter().zip(&layout.items) {
        let half = item.width / 2.0;
        extents[place.rank].push((place.x - half, place.x + half, true));
    }
    for bend in layout.routes.iter().flat_map(|route| &route.bends) {
        extents[bend.rank].push((bend.x, bend.x, false));
    }
    for extents in &mut extents {
        extents.sort_by(|a, b| (a.0 + a.1).total_cmp(&(b.0 + b.1)));
    }
    extents
}

#[test]
fn boxes_and_lines_keep_their_distances() {
    for (items, nets) in random_graphs() {
        let layout = layout(&items, &nets, SPACING);
        for rank in extents(&items, &layout) {
            for pair in rank.windows(2) {
                let are_boxes = pair[0].2 && pair[1].2;
                let least = if are_boxes {
                    SPACING.item
                } else {
                    SPACING.line
                };
                assert!(least - ROUNDING <= pair[1].0 - pair[0].1, "{pair:?}");
            }
        }
    }
}

#[test]
fn layouts_begin_at_zero_and_contain_all() {
    for (items, nets) in random_graphs() {
        let layout = layout(&items, &nets, SPACING);
        let extents = extents(&items, &layout).concat();
        let left = extents
            .iter()
            .map(|extent| extent.0)
            .fold(f32::MAX, f32::min);
        let right = extents.iter().map(|extent| extent.1).fold(0.0, f32::max);
        assert!(left.abs() < ROUNDING, "{left}");
        assert!((right - layout.width).abs() < ROUNDING, "{right}");
        let last = layout.ranks.last().expect("a rank");
        assert_eq!(last.top + last.height, layout.height);
    }
}

#[test]
fn ranks_follow_each_other_and_contain_their_items() {
    for (items, nets) in random_graphs() {
        let layout = layout(&items, &nets, SPACING);
        for pair in layout.ranks.windows(2) {
            assert_eq!(pair[1].top, pair[0].top + pair[0].height + SPACING.rank);
        }
        for (rank, band) in layout.ranks.iter().enumerate() {
            let placed = items.iter().zip(&layout.items);
            let own = placed.filter(|(_, place)| place.rank == rank);
            let heights: Vec<f32> = own.map(|(item, _)| item.height).collect();
            assert_eq!(heights.iter().copied().fold(-1.0, f32::max), band.height);
        }
    }
}

/// Returns the position of an item in the downward order.
fn order_of(items: &[LayoutItem], item: usize) -> (u8, usize) {
    match items[item].pin {
        Some(Pin::First) => (0, item),
        None => (1, item),
        Some(Pin::Last) => (2, item),
    }
}

#[test]
fn edges_lead_down_in_execution_order() {
    for (items, nets) in random_graphs() {
        let layout = layout(&items, &nets, SPACING);
        let edges = nets
            .iter()
            .flat_map(|net| net.targets.iter().map(|target| (net.source, *target)));
        for (source, target) in edges.filter(|(source, target)| source != target) {
            let (from, to) = (layout.items[source].rank, layout.items[target].rank);
            let shares_pin = items[source].pin.is_some() && items[source].pin == items[target].pin;
            let leads_down = order_of(&items, source) < order_of(&items, target);
            let expected = if shares_pin {
                from == to
            } else {
                (from < to) == leads_down && from != to
            };
            assert!(expected, "{source} in rank {from}, {target} in rank {to}");
        }
    }
}

#[test]
fn pinned_items_have_their_ranks_alone() {
    for (items, nets) in random_graphs() {
        let layout = layout(&items, &nets, SPACING);
        let last = layout.ranks.len() - 1;
        for (pin, rank) in [(Pin::First, 0), (Pin::Last, last)] {
            if items.iter().any(|item| item.pin == Some(pin)) {
                for (item, place) in items.iter().zip(&layout.items) {
                    assert_eq!(item.pin == Some(pin), place.rank == rank);
                }
            }
        }
    }
}

/// Checks that each target hangs on a bend or on the source, or is a stub, and that no bend is superfluous.
fn assert_route(layout: &LevelLayout, net: &Net, route: &Route) {
    let source = layout.items[net.source].rank as isize;
    let distance = |target: usize| layout.items[target].rank as isize - source;
    let routed = net
        .targets
        .iter()
        .filter(|target| **target != net.source && !route.stubs.contains(target));
    let distances: Vec<isize> = routed.map(|target| distance(*target)).collect();
    let downwards = distances.iter().all(|distance| 0 < *distance);
    assert!(
        downwards || distances.iter().all(|distance| *distance < 0),
        "{distances:?}"
    );
    let farthest = distances
        .iter()
        .map(|distance| distance.unsigned_abs())
        .max();
    assert_eq!(route.bends.len(), farthest.unwrap_or(1) - 1);
    assert!(farthest.unwrap_or(1) <= MAX_ROUTED_RANKS);
    for (bend, step) in route.bends.iter().zip(1..) {
        assert_eq!(
            bend.rank as isize,
            if downwards {
                source + step
            } else {
                source - step
            }
        );
    }
    let is_stub = |target: usize| !(1..=MAX_ROUTED_RANKS as isize).contains(&distance(target));
    assert!(
        !downwards || distances.is_empty() || route.stubs.iter().all(|target| is_stub(*target))
    );
}

#[test]
fn trunks_pass_consecutive_ranks() {
    for (items, nets) in random_graphs() {
        let layout = layout(&items, &nets, SPACING);
        assert_eq!(layout.routes.len(), nets.len());
        for (net, route) in nets.iter().zip(&layout.routes) {
            assert_route(&layout, net, route);
        }
    }
}

#[test]
fn layouts_are_deterministic() {
    for (items, nets) in random_graphs().take(50) {
        assert_eq!(
            layout(&items, &nets, SPACING),
            layout(&items, &nets, SPACING)
        );
    }
}

fn assert_finite(layout: &LevelLayout) {
    let bands = layout.ranks.iter().flat_map(|band| [band.top, band.height]);
    let places = layout.items.iter().map(|place| place.x);
    let bends = layout
        .routes
        .iter()
        .flat_map(|route| &route.bends)
        .map(|bend| bend.x);
    let all = bands
        .chain(places)
        .chain(bends)
        .chain([layout.width, layout.height]);
    assert!(all.clone().all(f32::is_finite), "{layout:?}");
    assert!(all.clone().all(|length| 0.0 <= length), "{layout:?}");
}

#[test]
fn unusual_sizes_and_indices_give_finite_layouts() {
    let lengths = [0.0, -3.0, f32::NAN, f32::INFINITY, f32::MAX];
    let items = lengths.map(|length| LayoutItem {
        width: length,
        height: length,
        pin: None,
    });
    let nets = nets(&[(0, &[1, 2, 3, 4, 99, 0, 1]), (99, &[0]), (4, &[0, 2])]);
    for length in lengths {
        let spacing = Spacing {
            item: length,
            rank: length,
            line: length,
        };
        assert_finite(&layout(&items, &nets, spacing));
    }
    assert_finite(&layout(&[], &[], SPACING));
    assert_finite(&layout(&items[..1], &[], SPACING));
    assert_finite(&layout(&items, &[], SPACING));
}

#[test]
fn an_empty_layout_has_no_size() {
    let layout = layout(&[], &nets(&[(0, &[1])]), SPACING);
    assert_eq!(
        (layout.width, layout.height, layout.ranks.len()),
        (0.0, 0.0, 0)
    );
    assert_eq!(
        layout.routes[0],
        Route {
            bends: Vec::new(),
            stubs: Vec::new()
        }
    );
}

#[test]
fn a_chain_is_vertical() {
    let layout = layout(&boxes(30), &chain(30), SPACING);
    assert_vertical(&layout, &Vec::from_iter(0..30));
    assert_eq!(layout.ranks.len(), 30);
    assert_eq!(layout.width, 71.0);
}

#[test]
fn the_line_of_a_residual_block_passes_beside_its_chain() {
    let layout = laid_out(
        6,
        &[(0, &[1]), (1, &[2, 4]), (2, &[3]), (3, &[4]), (4, &[5])],
    );
    assert_vertical(&layout, &[0, 1, 2, 3, 4, 5]);
    let bends = &layout.routes[1].bends;
    assert_eq!(
        bends.iter().map(|bend| bend.rank).collect::<Vec<_>>(),
        [2, 3]
    );
    assert_eq!(bends[0].x, bends[1].x);
    // The wider of the two boxes that the line passes is 71 pixels wide.
    assert_eq!(bends[0].x - layout.items[2].x, 71.0 / 2.0 + SPACING.line);
}

#[test]
fn residual_blocks_with_a_projection_keep_their_chain_vertical() {
    // Three blocks of two layers, and a shorter branch with one layer beside the second block.
    let edges: &[(usize, &[usize])] = &[
        (0, &[1, 3]),
        (1, &[2]),
        (2, &[3]),
        (3, &[4, 6]),
        (4, &[5]),
        (5, &[7]),
        (6, &[7]),
        (7, &[8, 10]),
        (8, &[9]),
        (9, &[10]),
    ];
    assert_vertical(&laid_out(11, edges), &[0, 1, 2, 3, 4, 5, 7, 8, 9, 10]);
}

#[test]
fn constants_stand_beside_a_vertical_chain_above_their_readers() {
    // Items 0 to 2 are constants: the weights of item 6, and a factor of item 8.
    let edges: &[(usize, &[usize])] = &[
        (0, &[6]),
        (1, &[6]),
        (2, &[8]),
        (3, &[4]),
        (4, &[5]),
        (5, &[6]),
        (6, &[7]),
        (7, &[8]),
    ];
    let layout = laid_out(9, edges);
    assert_vertical(&layout, &[3, 4, 5, 6, 7, 8]);
    let ranks = layout.items.iter().map(|place| place.rank);
    assert_eq!(ranks.collect::<Vec<_>>(), [2, 2, 4, 0, 1, 2, 3, 4, 5]);
}

#[test]
fn what_depends_on_constants_alone_moves_down_with_them() {
    let mut items = boxes(6);
    items[1].pin = Some(Pin::First);
    // A constant and its reshaping lead to item 5, which ends the chain of item 1.
    let nets = nets(&[(0, &[2]), (2, &[5]), (1, &[3]), (3, &[4]), (4, &[5])]);
    let layout = layout(&items, &nets, SPACING);
    let ranks = layout.items.iter().map(|place| place.rank);
    assert_eq!(ranks.collect::<Vec<_>>(), [1, 0, 2, 1, 2, 3]);
}

#[test]
fn parallel_branches_stand_in_execution_order() {
    let layout = laid_out(
        6,
        &[(0, &[3, 1, 2]), (1, &[4]), (2, &[4]), (3, &[4]), (4, &[5])],
    );
    let [query, key, value] = [1, 2, 3].map(|item| layout.items[item]);
    assert!(query.x < key.x && key.x < value.x, "{layout:?}");
    assert_eq!([query.rank, key.rank, value.rank], [1, 1, 1]);
    assert_vertical(&layout, &[0, 2, 4, 5]);
}

#[test]
fn pinned_ports_stand_in_order_where_no_crossing_decides() {
    let mut items = boxes(7);
    for port in 0..3 {
        items[4 + port].pin = Some(Pin::First);
    }
    let layout = layout(
        &items,
        &nets(&[(4, &[0]), (5, &[0]), (6, &[0]), (0, &[1])]),
        SPACING,
    );
    assert!(layout.items[4].x < layout.items[5].x && layout.items[5].x < layout.items[6].x);
}

fn crossings(items: &[LayoutItem], nets: &[Net]) -> usize {
    let nets: Vec<Net> = nets.iter().map(|net| net.cleaned(items.len())).collect();
    let mut graph = LayeredGraph::new(rank::ranks(items, &nets), &nets);
    order::sort_ranks(&mut graph);
    order::crossings(&graph)
}

#[test]
fn a_tree_has_no_crossings() {
    // Children of a binary tree, the right half of each level first.
    let nets = (0..15).rev().map(|source| Net {
        source,
        targets: vec![2 * source + 2, 2 * source + 1],
    });
    assert_eq!(crossings(&boxes(31), &nets.collect::<Vec<_>>()), 0);
}

#[test]
fn sweeps_untangle_a_planar_graph() {
    // Depth-first order has item 4 below item 1 left of item 5, which items 0 and 1 read crosswise.
    let edges = nets(&[(0, &[5, 6]), (1, &[4]), (2, &[4, 6]), (3, &[5])]);
    assert_eq!(crossings(&boxes(7), &edges), 0);
}

#[test]
fn crossings_weigh_the_product_of_their_edges() {
    let nets = nets(&[(0, &[3, 4, 5]), (1, &[3, 4, 5]), (2, &[3, 4, 5])]);
    // The complete graph of 3 and 3 items has 3 * 3 crossings in every order. Edges between items weigh 2.
    assert_eq!(crossings(&boxes(6), &nets), 9 * 2 * 2);
}

#[test]
fn isolated_items_form_a_square() {
    let layout = laid_out(100, &[]);
    assert_eq!(layout.ranks.len(), 10);
    assert_eq!(layout.height, 10.0 * 30.0 + 9.0 * SPACING.rank);
}

#[test]
fn far_targets_are_stubs() {
    let count = MAX_ROUTED_RANKS + 2;
    let mut nets = chain(count);
    nets[0].targets.extend([count - 1, count - 2]);
    let layout = layout(&boxes(count), &nets, SPACING);
    assert_eq!(layout.routes[0].stubs, [count - 1]);
    assert_eq!(layout.routes[0].bends.len(), MAX_ROUTED_RANKS - 1);
}

#[test]
fn a_line_against_the_order_bends_upwards() {
    let layout = laid_out(4, &[(0, &[1]), (1, &[2]), (2, &[3]), (3, &[0])]);
    let ranks = layout.routes[3].bends.iter().map(|bend| bend.rank);
    assert_eq!(ranks.collect::<Vec<_>>(), [2, 1]);
    assert_vertical(&layout, &[0, 1, 2, 3]);
}

#[test]
fn long_lines_do_not_stretch_a_layout() {
    let mut random = Random(7);
    let mut nets = Vec::new();
    for source in 0..600 {
        let targets = vec![source + 1 + random.below(40), source + 1 + random.below(40)];
        nets.push(Net { source, targets });
    }
    let items = boxes(640);
    let layout = layout(&items, &nets, SPACING);
    let widths = extents(&items, &layout).into_iter().map(|rank| {
        let sizes: f32 = rank.iter().map(|extent| extent.1 - extent.0).sum();
        let gaps = rank.windows(2).map(|pair| {
            if pair[0].2 && pair[1].2 {
                SPACING.item
            } else {
                SPACING.line
            }
        });
        sizes + gaps.sum::<f32>()
    });
    let widest = widths.fold(0.0, f32::max);
    assert!(
        layout.width < 2.0 * widest + 71.0,
        "{} of {widest}",
        layout.width
    );
}

/// Returns a chain with a line over 20 ranks from every fourth item.
fn long_chain(count: usize) -> Vec<Net> {
    let mut nets = chain(count);
    for source in (0..count - 20).step_by(4) {
        nets[source].targets.push(source + 20);
    }
    nets
}

#[test]
fn lines_add_nodes_for_the_ranks_that_they_pass() {
    for count in [100, 1000] {
        let nets = long_chain(count);
        let graph = LayeredGraph::new(rank::ranks(&boxes(count), &nets), &nets);
        assert_eq!(graph.rank_of.len(), count + (count - 20) / 4 * 19);
    }
}

#[test]
fn deep_graphs_need_no_deep_stack() {
    let layout = layout(&boxes(8000), &long_chain(8000), SPACING);
    assert_vertical(&layout, &Vec::from_iter(0..8000));
}
