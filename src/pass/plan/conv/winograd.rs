//! Convolutions of 3×3 taps by tiles, where subgroups are the lanes of a vector: see [`winograd`](crate::kernel::winograd).
//!
//! One kernel in three stages. A workgroup has tiles of its own and goes through all stages with them, so that it waits for no
//! other; what it keeps from one stage to the next lies in memory that only it reads.

mod scratch;
mod share;
mod transform;
mod workgroup;

use self::workgroup::Workgroup;
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::{Graph, Node};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::emit::Statement;
use crate::kernel::layout::Run;
use crate::kernel::winograd::{Places, TAPS};
use crate::kernel::work::Work;
use crate::op::Conv;
use crate::pass::plan::conv::Sizes;
use crate::pass::plan::cost::example;
use crate::pass::plan::element::Scope;
use crate::pass::plan::element::quad::is_whole;
use crate::pass::plan::group::Group;
use crate::pass::plan::kernel::Lowered;
use crate::pass::plan::kernel::work::behind;
use crate::pass::plan::product::tile::{self, Extent, Packed, Rows, Sums};

const TEMPLATE: &str = include_str!("../../../../shaders/winograd.wgsl");

/// Bytes of a number.
const SINGLE: i64 = size_of::<f32>() as i64;

/// The panels of a filter for tiles of an extent; none where a convolution has no tiles: it has other taps or steps, channels in
/// no quads, or more than a workgroup can sum up.
pub fn panels(
    graph: &Graph,
    capabilities: &Capabilities,
    node: &Node,
    (conv, places, extent): (&Conv, Places, Extent),
) -> Option<Packed> {
    let lanes = capabilities
        .lanes()
        .filter(|_| capabilities.subgroup_barriers)?;
    let sizes = Sizes::new(graph, node, conv).ok()?;
    let is_plain = conv.axes.len() == 2
        && conv
            .axes
            .iter()
            .all(|axis| [axis.stride, axis.dilation, axis.base_dilation] == [1; 3]);
    let has_taps = sizes.taps.iter().all(|size| size.is(TAPS as i64));
    let are_quads = [&sizes.channels, &sizes.outputs].into_iter().all(is_whole);
    if !is_plain || !has_taps || !are_quads {
        return None;
    }
    let known = |size: &Dim| usize::try_from(size.as_const()?).ok();
    let (groups, channels) = (known(&sizes.groups)?, known(&sizes.channels)?);
    let outputs = known(&sizes.outputs)?;
    if !share::is_within_iterations(places, channels) {
        return None;
    }
    let run = |count, stride| Run { count, stride };
    let matrices = run(places.matrices() * groups, outputs * channels);
    let (depth, columns) = (vec![run(channels, 1)], run(outputs, channels));
    let mut packed = extent.packed(lanes, matrices, (depth, columns));
    packed.panels.transformed = Some(places);
    Some(packed)
}

/// The sums that the second stage is, of a kernel whose text depends on what is told of it.
pub fn sums(
    graph: &Graph,
    capabilities: &Capabilities,
    node: &Node,
    (conv, places, text): (&Conv, Places, &str),
) -> Option<Sums> {
    let lanes = capabilities.lanes()?;
    let packed = panels(graph, capabilities, node, (conv, places, Extent::ANY))?;
    let sizes = Sizes::new(graph, node, conv).ok()?;
    let tiles = Dim::product(&tiles(&graph.ty(*node.results.first()?).shape, places)?);
    let of_all = [&sizes.groups, &tiles, &sizes.channels, &sizes.outputs];
    let of_all = of_all.map(|size| example(graph, size));
    Some(Sums {
        text: format!("{text} by tiles of {}", places.count()),
        left: Rows::Together,
        sizes: [packed.panels.outer.count, of_all[1]],
        panels: packed.panels,
        whole: Some(share::whole(
            (places, lanes),
            of_all,
            capabilities.max_binding_size,
        )),
    })
}

/// Images, and tiles along both axes of each, of a convolution with a result of this shape; none of what is no image.
pub fn tiles(result: &[Dim], places: Places) -> Option<[Dim; 3]> {
    let [batch, _, height, width] = result else {
        return None;
    };
    let along = |size: &Dim| size.ceil_div(&Dim::from(places.count()));
    Some([batch.clone(), along(height), along(width)])
}

/// A convolution with its epilogue.
pub fn lower<'a>(
    scope: Scope<'a>,
    group: &Group,
    node: &Node,
    (conv, places, extent): (&Conv, Places, Extent),
) -> Result<Lowered<'a>> {
    let of = (conv, places, extent);
    let packed = panels(scope.graph, scope.capabilities, node, of);
    let missing = || Error::internal("the filter of a convolution by tiles has no panels");
    let packed = packed.ok_or_else(missing)?;
    by_panels(scope, group, node, (conv, places, packed))
}

/// The same by panels of the filter.
pub fn by_panels<'a>(
    mut scope: Scope<'a>,
    group: &Group,
    node: &Node,
    (conv, places, packed): (&Conv, Places, Packed),
) -> Result<Lowered<'a>> {
    let sizes = Sizes::new(scope.graph, node, conv)?;
    let bands = packed.bands;
    let workgroup = Workgroup::new(&mut scope, &sizes, (places, packed))?;
    // The workgroup is a subgroup, whose lanes go in step: what all of them have written is there for the next instruction.
    let barrier = || Statement::Line(String::from("subgroupBarrier();"));
    let mut statements = vec![workgroup.surplus.clone()];
    // What tiles see is read in words where that is faster, what products read of it is not.
    scope.reads_words = true;
    statements.extend(workgroup.seen(&mut scope)?);
    scope.reads_words = false;
    statements.push(barrier());
    statements.extend(workgroup.summed(&mut scope)?);
    statements.push(barrier());
    statements.extend(workgroup.output(&mut scope, group)?);
    let work = work(&scope, group, (&sizes, places, &workgroup))?;
    let (count, holes) = (workgroup.count.clone(), tile::holes(workgroup.lanes, bands));
    let mut lowered = Lowered::of_workgroups(scope, TEMPLATE, statements, count);
    lowered.holes = holes;
    Ok(Lowered {
        title: Some("winograd"),
        work: Some(work),
        ..lowered
    })
}

/// What a kernel does: transforms and products, and what it reads and writes for others.
fn work(
    scope: &Scope,
    group: &Group,
    (sizes, places, workgroup): (&Sizes, Places, &Workgroup),
) -> Result<Work> {
    let behind = behind(scope, group)?;
    let filters = &sizes.groups * &sizes.channels * &sizes.outputs * places.matrices() as i64;
    let products = &filters * workgroup.all_tiles() * 2;
    Ok(Work {
        operations: workgroup.transforms() + products + behind.operations,
        bytes: (scope.graph.ty(sizes.x).numel() + filters) * SINGLE + behind.bytes,
        ..Work::default()
    })
}
