//! Convolutions of 3×3 taps by tiles, where subgroups are the lanes of a vector: see [`winograd`](crate::kernel::winograd).
//!
//! Three kernels, the last of which has the epilogue. Each asks for what it reads in tiles, as it might ask for quads; so
//! the planner puts the others in front of it, and convolutions that see the same share what they see.

mod transform;

use self::transform::{Square, Transformed};
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::{Graph, Node, ValueId};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, Pool, Type};
use crate::kernel::index::{self, Index};
use crate::kernel::layout::{Layout, Run, Tiles};
use crate::kernel::winograd::{Places, TAPS};
use crate::kernel::work::Work;
use crate::op::Conv;
use crate::pass::plan::Planner;
use crate::pass::plan::conv::{Sizes, image};
use crate::pass::plan::cost::example;
use crate::pass::plan::element::Scope;
use crate::pass::plan::element::quad::{QUAD, is_whole};
use crate::pass::plan::group::Group;
use crate::pass::plan::kernel::turns::{Lines, in_turns};
use crate::pass::plan::kernel::work::behind;
use crate::pass::plan::kernel::{Lowered, guarded, invocation};
use crate::pass::plan::product::tile::{self, Extent, Packed, Right, Rows, Sums, Tiling};

const TEMPLATE: &str = include_str!("../../../../shaders/winograd.wgsl");

/// Bytes of a number.
const SINGLE: i64 = size_of::<f32>() as i64;

/// The panels of a filter for tiles of an extent; none where a convolution has no tiles: it has other taps or steps, or channels in no quads.
pub fn panels(
    graph: &Graph,
    capabilities: &Capabilities,
    node: &Node,
    (conv, places, extent): (&Conv, Places, Extent),
) -> Option<Packed> {
    let lanes = capabilities.lanes()?;
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
    let run = |count, stride| Run { count, stride };
    let matrices = run(places.matrices() * groups, outputs * channels);
    let (depth, columns) = (vec![run(channels, 1)], run(outputs, channels));
    let mut packed = extent.packed(lanes, matrices, (depth, columns));
    packed.panels.transformed = Some(places);
    Some(packed)
}

/// The sums that the second kernel is.
pub fn sums(
    graph: &Graph,
    capabilities: &Capabilities,
    node: &Node,
    (conv, places): (&Conv, Places),
) -> Option<Sums> {
    let packed = panels(graph, capabilities, node, (conv, places, Extent::ANY))?;
    let [_, tiles] = counts(&graph.ty(*node.results.first()?).shape, places)?;
    Some(Sums {
        text: String::from("winograd_summed"),
        left: Rows::Together,
        sizes: [packed.panels.outer.count, example(graph, &tiles)],
        panels: packed.panels,
    })
}

/// How many matrices there are for a convolution with a result of this shape, and how many tiles; none of what is no image.
pub fn counts(result: &[Dim], places: Places) -> Option<[Dim; 2]> {
    let [matrices, _, tiles @ ..] = Tiles::Summed { places }.shape(result)?;
    Some([matrices, Dim::product(&tiles)])
}

/// How the input of a convolution lies in tiles.
fn seen(conv: &Conv, places: Places) -> Result<Tiles> {
    let [down, across] = conv.axes.as_slice() else {
        return Err(Error::internal("tiles of an image that has not two axes"));
    };
    Ok(Tiles::Seen {
        places,
        low: [down.low, across.low],
        high: [down.high, across.high],
    })
}

impl Planner<'_> {
    /// What the last kernel of a convolution by tiles reads, or the one in front of it.
    pub fn tiles(&mut self, tiles: &Tiles, group: &Group) -> Result<()> {
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
    tiles: Tiles,
    /// Matrices, and what is counted in each.
    shape: [Dim; 5],
}

impl Tiled {
    fn new(graph: &Graph, value: ValueId, tiles: Tiles) -> Result<Tiled> {
        let shape = tiles.shape(&graph.ty(value).shape);
        Ok(Tiled {
            value,
            tiles,
            shape: shape.ok_or_else(|| Error::internal("tiles of what is no image"))?,
        })
    }

    /// The same with given numbers of matrices and of tiles.
    fn counted(mut self, counts: Option<&[Dim; 2]>) -> Tiled {
        if let Some([matrices, tiles]) = counts {
            let quads = self.shape[1].clone();
            self.shape = [matrices.clone(), quads, tiles.clone(), 1.into(), 1.into()];
        }
        self
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
        Ok(scope
            .in_vectors(self.value, &Layout::Tiles(self.tiles.clone()))?
            .0)
    }

    /// Where a vector is by its matrix and its number there.
    fn at(&self, scope: &mut Scope, matrix: &Index, number: &Index) -> Expr {
        let at = matrix.scale(&self.count()).add(number);
        at.emit(&mut scope.pool)
    }

    /// A matrix by its row and column. Where sizes are symbolic it is no part of them, of which there would be one for each
    /// matrix.
    fn matrix(&self, scope: &mut Scope, [y, x]: [usize; 2]) -> Index {
        let matrix = y * self.tiles.places().side() + x;
        if matrix < 2 || self.count().as_const().is_some() {
            return Dim::from(matrix).into();
        }
        let number = scope.pool.number(u32::try_from(matrix).unwrap_or_default());
        Index::expr(number, &Dim::from(self.tiles.matrices()))
    }

    /// Where the tile is that a number is of.
    fn place(&self, number: &Index) -> Result<Place> {
        let place = index::coordinates(number, &self.shape[1..]);
        let [channels, image, down, across] = <[Index; 4]>::try_from(place)
            .map_err(|_| Error::internal("tiles have other coordinates"))?;
        let places = self.tiles.places();
        let height = &self.shape[3] * places.count() as i64 + places.side() as i64;
        Ok(Place {
            quad: [image, channels],
            first: [down, across].map(|tile| tile.scale(&Dim::from(places.count()))),
            space: [height, self.shape[4].clone()],
        })
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

    /// Writes a vector by its matrix and its number there, in words of two numbers where a device writes these faster.
    fn store(
        &self,
        scope: &mut Scope,
        (matrix, number): (&Index, &Index),
        vector: Expr,
    ) -> Result<Statement> {
        let layout = Layout::Tiles(self.tiles.clone());
        let (buffer, value) = match scope.in_words(self.value, &layout)? {
            Some((buffer, words)) => {
                let value = scope.pool.call("words_of_four(x)", words, &[vector]);
                (buffer, value)
            }
            None => (self.buffer(scope)?, vector),
        };
        let index = self.at(scope, matrix, number);
        Ok(Statement::Store {
            buffer,
            index,
            value,
        })
    }

    fn bytes(&self) -> Dim {
        Dim::product(&self.shape) * QUAD as i64 * SINGLE
    }
}

/// Where a tile is.
struct Place {
    /// Image and quad of channels.
    quad: [Index; 2],
    /// The first row of its positions, and the first column.
    first: [Index; 2],
    /// What rows stay below, and tiles in a row.
    space: [Dim; 2],
}

impl Place {
    /// A position by its row and column in the tile.
    fn position(&self, scope: &mut Scope, [y, x]: [&Index; 2]) -> [Index; 2] {
        let row = scope.apart(self.first[0].add(y), &self.space);
        [row, self.first[1].add(x)]
    }
}

/// The first of three kernels: the numbers of what tiles see of a convolution's input. An invocation computes those of a
/// tile, four channels together.
pub fn lower_seen<'a>(
    scope: Scope<'a>,
    node: &Node,
    (conv, places): (&Conv, Places),
) -> Result<Lowered<'a>> {
    let sizes = Sizes::new(scope.graph, node, conv)?;
    let seen = Tiled::new(scope.graph, sizes.x, seen(conv, places)?)?;
    let mut scope = scope.by_words();
    let (number, surplus) = invocation(&mut scope, &seen.count());
    let place = seen.place(&number)?;
    let tap = [Index::zero(), Index::zero()];
    let positions = every(places.side(), |y, x| {
        let position = place.position(&mut scope, [&y.into(), &x.into()]);
        let quad = (place.quad.clone(), None);
        let seen = image::input(&mut scope, &sizes, quad, (&position, &tap))?;
        scope.pool.set_label(seen, &format!("d{y}{x}"));
        Ok(seen)
    })?;
    let made = Transformed::new(&mut scope.pool, places.seen(), &positions);
    let mut statements = vec![surplus];
    statements.extend(made.columns);
    for (y, x, vector) in by_place(&made.numbers) {
        let matrix = seen.matrix(&mut scope, [y, x]);
        statements.push(seen.store(&mut scope, (&matrix, &number), vector)?);
    }
    let bytes = scope.graph.ty(sizes.x).numel() * SINGLE + seen.bytes();
    let operations = seen.count() * (QUAD * made.operations) as i64;
    Ok(Lowered {
        title: Some("winograd_seen"),
        work: Some(work(operations, bytes)),
        ..Lowered::new(scope, TEMPLATE, statements, &seen.count())
    })
}

/// The second one: a product of matrices for each number of a tile. A row is a tile, a column an output channel. How many
/// matrices and tiles there are may be given as symbols.
pub fn lower_summed<'a>(
    scope: Scope<'a>,
    node: &Node,
    (conv, places): (&Conv, Places),
    (packed, counts): (Packed, Option<[Dim; 2]>),
) -> Result<Lowered<'a>> {
    let sizes = Sizes::new(scope.graph, node, conv)?;
    let seen = Tiled::new(scope.graph, sizes.x, seen(conv, places)?)?.counted(counts.as_ref());
    let summed =
        Tiled::new(scope.graph, sizes.result, Tiles::Summed { places })?.counted(counts.as_ref());
    // Where the quad of a row and a channel of a group lies.
    let rows = summed.rows();
    let quad = |channel: Index, row: &Index| channel.div(&Dim::from(QUAD)).scale(&rows).add(row);
    let tiling = Tiling {
        outer: vec![summed.shape[0].clone(), sizes.groups.clone()],
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
        right: Right::Panels(sizes.filter, packed.clone(), &|outer| {
            outer[0].scale(&sizes.groups).add(&outer[1])
        }),
        write: &|scope, [outer, row], first, vector| {
            let channel = outer[1].scale(&sizes.outputs).add(first);
            let place = (&outer[0], &quad(channel, &row[0]));
            Ok(vec![summed.store(scope, place, vector)?])
        },
        epilogue: 0,
        in_quads: true,
    };
    let products = Dim::product(&summed.shape) * (2 * QUAD) as i64;
    let weights = Dim::from(packed.panels.outer.count * packed.panels.outer.stride);
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
    (conv, places): (&Conv, Places),
) -> Result<Lowered<'a>> {
    let sizes = Sizes::new(scope.graph, node, conv)?;
    let summed = Tiled::new(scope.graph, sizes.result, Tiles::Summed { places })?;
    let (number, surplus) = invocation(&mut scope, &summed.count());
    let place = summed.place(&number)?;
    let sums = every(places.side(), |y, x| {
        let matrix = summed.matrix(&mut scope, [y, x]);
        let sum = summed.vector(&mut scope, &matrix, &number, None)?;
        scope.pool.set_label(sum, &format!("m{y}{x}"));
        Ok(sum)
    })?;
    let made = Transformed::new(&mut scope.pool, places.summed(), &sums);
    let held = held(&mut scope.pool, &made.numbers);
    let mut statements = vec![surplus];
    statements.extend(made.columns);
    let cost = (Lines::Short, group.epilogue_cost(scope.graph));
    let numbers = held.iter().flatten().zip(made.numbers.iter().flatten());
    statements.extend(numbers.map(|(held, number)| Statement::Declare(*held, *number)));
    let (first, space) = (&place.first, &sizes.space);
    statements.extend(in_turns(&mut scope, cost, &held, &mut |scope, y, held| {
        let mut line = Vec::new();
        for (x, vector) in held.iter().enumerate() {
            let position = place.position(scope, [y, &x.into()]);
            let quad = [place.quad.as_slice(), &position].concat();
            let written = image::write(scope, group, &sizes, &quad, *vector)?;
            line.extend(guarded(scope, &first[1], x, &space[1], written));
        }
        Ok(guarded(scope, &first[0], y.clone(), &space[0], line))
    })?);
    let behind = behind(&scope, group)?;
    let operations = summed.count() * (QUAD * made.operations) as i64;
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
fn every(side: usize, mut make: impl FnMut(usize, usize) -> Result<Expr>) -> Result<Square> {
    let row = |y| (0..side).map(|x| make(y, x)).collect();
    (0..side).map(row).collect()
}

/// Vectors with their rows and columns.
fn by_place(vectors: &Square) -> impl Iterator<Item = (usize, usize, Expr)> + '_ {
    let rows = vectors.iter().enumerate();
    rows.flat_map(|(y, row)| {
        row.iter()
            .enumerate()
            .map(move |(x, vector)| (y, x, *vector))
    })
}

/// Variables for the positions of a tile, by row and column.
fn held(pool: &mut Pool, numbers: &Square) -> Square {
    let rows = numbers.iter().enumerate().map(|(y, row)| {
        let name = |x: usize| format!("y{y}{x}");
        let variable = |x| pool.variable(&name(x), Type::F32x4);
        (0..row.len()).map(variable).collect()
    });
    rows.collect()
}

fn work(operations: Dim, bytes: Dim) -> Work {
    Work {
        operations,
        bytes,
        ..Work::default()
    }
}
