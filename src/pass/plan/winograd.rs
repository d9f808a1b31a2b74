//! Convolutions of 3×3 taps by tiles, where subgroups are eight invocations: see [`winograd`](crate::kernel::winograd).
//!
//! Three kernels, the last of which has the epilogue. Each asks for what it reads in tiles, as it might ask for quads; so
//! the planner puts the others in front of it, and convolutions that see the same share what they see.

use super::Planner;
use super::conv::Sizes;
use super::element::Scope;
use super::fuse::Group;
use super::image;
use super::kernel::{Lowered, guarded, invocation};
use super::quad::{QUAD, is_whole};
use super::tile::{self, Right, Tiling, shared};
use super::variant::example;
use super::work::behind;
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::{Graph, Node, ValueId};
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, Pool, Type};
use crate::kernel::index::{self, Index};
use crate::kernel::layout::{Layout, Panels, Run, Tiles};
use crate::kernel::winograd::{MATRICES, PLACES, SEEN, SIDE, SUMMED, TAPS};
use crate::kernel::work::Work;
use crate::op::Conv;

const TEMPLATE: &str = include_str!("../../../shaders/winograd.wgsl");

/// Bytes of a number.
const SINGLE: i64 = size_of::<f32>() as i64;

/// Additions that make the numbers of a tile out of what it sees.
const ADDITIONS_SEEN: usize = 32;
/// Additions that make its positions out of sums.
const ADDITIONS_SUMMED: usize = 24;

/// The panels of a filter; none where a convolution has no tiles: it has other taps or steps, or channels in no quads.
pub fn panels(graph: &Graph, node: &Node, conv: &Conv) -> Option<Panels> {
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
    let [_, _, tiles @ ..] = Tiles::Summed.shape(&graph.ty(sizes.result).shape)?;
    let known = |size: &Dim| usize::try_from(size.as_const()?).ok();
    let (groups, channels) = (known(&sizes.groups)?, known(&sizes.channels)?);
    let outputs = known(&sizes.outputs)?;
    let run = |count, stride| Run { count, stride };
    let matrices = run(MATRICES * groups, outputs * channels);
    let expected = [matrices.count, example(graph, &Dim::product(&tiles))];
    let (depth, columns) = (vec![run(channels, 1)], run(outputs, channels));
    Some(Panels {
        transformed: true,
        ..tile::panels(matrices, depth, columns, expected)
    })
}

/// How the input of a convolution lies in tiles.
fn seen(conv: &Conv) -> Result<Tiles> {
    let [down, across] = conv.axes.as_slice() else {
        return Err(Error::internal("tiles of an image that has not two axes"));
    };
    Ok(Tiles::Seen {
        low: [down.low, across.low],
        high: [down.high, across.high],
    })
}

impl Planner<'_> {
    /// What the last kernel of a convolution by tiles reads, or the one in front of it.
    pub(super) fn tiles(&mut self, tiles: &Tiles, group: &Group) -> Result<()> {
        let Some(anchor) = group.anchor else {
            return Err(Error::internal("tiles that no convolution asks for"));
        };
        let result = self.graph.nodes[anchor].results.first();
        let group = Group {
            root: result.copied().unwrap_or(group.root),
            nodes: vec![anchor],
            ..group.clone()
        };
        let made = self.of_tiles(&group, tiles)?;
        self.step(made, &group, None)
    }
}

/// A value in tiles.
struct Tiled {
    value: ValueId,
    layout: Layout,
    /// Matrices, and what is counted in each.
    shape: [Dim; 5],
}

impl Tiled {
    fn new(graph: &Graph, value: ValueId, tiles: Tiles) -> Result<Tiled> {
        let shape = tiles.shape(&graph.ty(value).shape);
        Ok(Tiled {
            value,
            layout: Layout::Tiles(tiles),
            shape: shape.ok_or_else(|| Error::internal("tiles of what is no image"))?,
        })
    }

    /// Vectors of a matrix.
    fn count(&self) -> Dim {
        Dim::product(&self.shape[1..])
    }

    /// Tiles of all images.
    fn rows(&self) -> Dim {
        Dim::product(&self.shape[2..])
    }

    fn buffer(&self, scope: &mut Scope) -> Result<usize> {
        Ok(scope.in_vectors(self.value, &self.layout)?.0)
    }

    /// Where a vector is by its matrix and its number there.
    fn at(&self, scope: &mut Scope, matrix: &Index, number: &Index) -> Expr {
        let at = matrix.scale(&self.count()).add(number);
        at.emit(&mut scope.pool)
    }

    /// Image, quad of channels, and the first position of the tile that a number is of.
    fn place(&self, number: &Index) -> Result<([Index; 2], [Index; 2])> {
        let place = index::coordinates(number, &self.shape[1..]);
        let [channels, image, down, across] = <[Index; 4]>::try_from(place)
            .map_err(|_| Error::internal("tiles have other coordinates"))?;
        let first = [down, across].map(|tile| tile.scale(&Dim::from(PLACES)));
        Ok(([image, channels], first))
    }

    /// A vector by its matrix and its number there; zeros where a guard is false.
    fn vector(
        &self,
        scope: &mut Scope,
        matrix: &Index,
        number: &Index,
        guard: Option<Expr>,
    ) -> Result<Expr> {
        let (buffer, mut index) = (self.buffer(scope)?, self.at(scope, matrix, number));
        let pool = &mut scope.pool;
        let Some(guard) = guard else {
            return Ok(pool.load(buffer, Type::F32x4, index));
        };
        let (none, zero) = (pool.number(0), pool.call("vec4<f32>()", Type::F32x4, &[]));
        index = pool.select(guard, index, none);
        let vector = pool.load(buffer, Type::F32x4, index);
        Ok(pool.select(guard, vector, zero))
    }

    fn bytes(&self) -> Dim {
        Dim::product(&self.shape) * QUAD as i64 * SINGLE
    }
}

/// The first of three kernels: the numbers of what tiles see of a convolution's input. An invocation computes those of a
/// tile, four channels together.
pub fn lower_seen<'a>(mut scope: Scope<'a>, node: &Node, conv: &Conv) -> Result<Lowered<'a>> {
    let sizes = Sizes::new(scope.graph, node, conv)?;
    let seen = Tiled::new(scope.graph, sizes.x, seen(conv)?)?;
    let (number, surplus) = invocation(&mut scope, &seen.count());
    let (place, first) = seen.place(&number)?;
    let tap = [Index::zero(), Index::zero()];
    let positions = every(|y, x| {
        let position = moved(&first, [y, x]);
        let place = (place.clone(), None);
        let seen = image::input(&mut scope, &sizes, place, (&position, &tap))?;
        scope.pool.set_label(seen, &format!("d{y}{x}"));
        Ok(seen)
    })?;
    let numbers = transformed(&mut scope.pool, SEEN, positions);
    let buffer = seen.buffer(&mut scope)?;
    let mut statements = vec![surplus];
    for (matrix, value) in numbers.into_iter().flatten().enumerate() {
        statements.push(Statement::Store {
            buffer,
            index: seen.at(&mut scope, &Dim::from(matrix).into(), &number),
            value,
        });
    }
    let bytes = scope.graph.ty(sizes.x).numel() * SINGLE + seen.bytes();
    let operations = seen.count() * (QUAD * ADDITIONS_SEEN) as i64;
    Ok(Lowered {
        title: Some("winograd_seen"),
        work: Some(work(operations, bytes)),
        ..Lowered::new(scope, TEMPLATE, statements, &seen.count())
    })
}

/// The second one: a product of matrices for each number of a tile. A row is a tile, a column an output channel.
pub fn lower_summed<'a>(
    scope: Scope<'a>,
    (node, conv): (&Node, &Conv),
    panels: Panels,
) -> Result<Lowered<'a>> {
    let sizes = Sizes::new(scope.graph, node, conv)?;
    let seen = Tiled::new(scope.graph, sizes.x, seen(conv)?)?;
    let summed = Tiled::new(scope.graph, sizes.result, Tiles::Summed)?;
    // Where the quad of a row and a channel of a group lies.
    let rows = summed.rows();
    let quad = |channel: Index, row: &Index| channel.div(&Dim::from(QUAD)).scale(&rows).add(row);
    let tiling = Tiling {
        outer: vec![Dim::from(MATRICES), sizes.groups.clone()],
        rows: rows.clone(),
        spread: vec![rows.clone()],
        columns: sizes.outputs.clone(),
        taps: Vec::new(),
        depth: sizes.channels.clone(),
        left: &|scope, [outer, row], (_, steps)| {
            let [(first, guard), ..] = steps else {
                return Err(Error::internal("a round without steps"));
            };
            let channel = outer[1].scale(&sizes.channels).add(first);
            seen.vector(scope, &outer[0], &quad(channel, &row[0]), *guard)
        },
        right: Right::Panels(sizes.filter, panels.clone(), &|outer| {
            outer[0].scale(&sizes.groups).add(&outer[1])
        }),
        write: &|scope, [outer, row], first, vector| {
            let channel = outer[1].scale(&sizes.outputs).add(first);
            Ok(vec![Statement::Store {
                buffer: summed.buffer(scope)?,
                index: summed.at(scope, &outer[0], &quad(channel, &row[0])),
                value: vector,
            }])
        },
        in_quads: true,
    };
    let products = Dim::product(&summed.shape) * (2 * QUAD) as i64;
    let weights = Dim::from(panels.outer.count * panels.outer.stride);
    let bytes = seen.bytes() + weights * SINGLE + summed.bytes();
    Ok(Lowered {
        title: Some("winograd_summed"),
        work: Some(work(products * &sizes.channels, bytes)),
        ..tile::lay(scope, &tiling)?
    })
}

/// The last one: positions, with the epilogue. An invocation computes those of a tile, four channels together.
pub fn lower<'a>(
    mut scope: Scope<'a>,
    group: &Group,
    node: &Node,
    conv: &Conv,
) -> Result<Lowered<'a>> {
    let sizes = Sizes::new(scope.graph, node, conv)?;
    let summed = Tiled::new(scope.graph, sizes.result, Tiles::Summed)?;
    let (number, surplus) = invocation(&mut scope, &summed.count());
    let (place, first) = summed.place(&number)?;
    let sums = every(|y, x| {
        let matrix = Dim::from(y * SIDE + x).into();
        let sum = summed.vector(&mut scope, &matrix, &number, None)?;
        scope.pool.set_label(sum, &format!("m{y}{x}"));
        Ok(sum)
    })?;
    let positions = transformed(&mut scope.pool, SUMMED, sums);
    let mut lines = Vec::new();
    for (y, x) in (0..PLACES).flat_map(|y| (0..PLACES).map(move |x| (y, x))) {
        let quad = [place.as_slice(), &moved(&first, [y, x])].concat();
        lines.push(image::write(
            &mut scope,
            group,
            &sizes,
            &quad,
            positions[y][x],
        )?);
    }
    let shared = shared(&scope.pool, &lines);
    let mut statements = vec![surplus];
    statements.extend(shared.into_iter().map(Statement::Let));
    for (line, (y, x)) in lines.into_iter().zip([(0, 0), (0, 1), (1, 0), (1, 1)]) {
        let line = guarded(&mut scope, &first[1], x, &sizes.space[1], line);
        statements.extend(guarded(&mut scope, &first[0], y, &sizes.space[0], line));
    }
    let behind = behind(&scope, group)?;
    let operations = summed.count() * (QUAD * ADDITIONS_SUMMED) as i64;
    Ok(Lowered {
        title: Some("winograd_output"),
        work: Some(work(
            operations + behind.operations,
            summed.bytes() + behind.bytes,
        )),
        ..Lowered::new(scope, TEMPLATE, statements, &summed.count())
    })
}

/// What is made for all numbers of a tile, by row and column.
fn every(mut make: impl FnMut(usize, usize) -> Result<Expr>) -> Result<[[Expr; SIDE]; SIDE]> {
    let places = (0..SIDE).flat_map(|y| (0..SIDE).map(move |x| (y, x)));
    let made: Vec<Expr> = places.map(|(y, x)| make(y, x)).collect::<Result<_>>()?;
    Ok(std::array::from_fn(|y| {
        std::array::from_fn(|x| made[y * SIDE + x])
    }))
}

/// A position of a tile by its first one.
fn moved(first: &[Index; 2], [y, x]: [usize; 2]) -> [Index; 2] {
    [(&first[0], y), (&first[1], x)].map(|(first, by)| first.add_size(&Dim::from(by)))
}

/// The numbers of a tile times a matrix from both sides.
fn transformed<const N: usize>(
    pool: &mut Pool,
    by: [[i8; SIDE]; N],
    numbers: [[Expr; SIDE]; SIDE],
) -> [[Expr; N]; N] {
    let half = by.map(|row| {
        let column = |x| numbers.map(|row: [Expr; SIDE]| row[x]);
        std::array::from_fn::<Expr, SIDE, _>(|x| sum(pool, row, column(x)))
    });
    half.map(|row| by.map(|column| sum(pool, column, row)))
}

/// Vectors added up, or taken off.
fn sum(pool: &mut Pool, signs: [i8; SIDE], vectors: [Expr; SIDE]) -> Expr {
    let with = |sign| {
        (0..SIDE)
            .filter(move |k| signs[*k] == sign)
            .map(|k| vectors[k])
    };
    let plus = with(1).reduce(|sum, next| pool.call("x + y", Type::F32x4, &[sum, next]));
    let zero = pool.call("vec4<f32>()", Type::F32x4, &[]);
    with(-1).fold(plus.unwrap_or(zero), |sum, next| {
        pool.call("x - y", Type::F32x4, &[sum, next])
    })
}

fn work(operations: Dim, bytes: Dim) -> Work {
    Work {
        operations,
        bytes,
        ..Work::default()
    }
}
