//! The three stages of a workgroup of a Winograd convolution: transform the input of its tiles, multiply by the filters,
//! and transform the products into output positions with the epilogue.

use super::scratch::Scratch;
use super::share::Share;
use super::transform::{Square, Transformed};
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, ExprPool, WgslType};
use crate::kernel::index::{self, Index};
use crate::kernel::winograd::OutputTile;
use crate::pass::plan::conv::{Sizes, image};
use crate::pass::plan::element::Scope;
use crate::pass::plan::element::quad::QUAD;
use crate::pass::plan::group::Group;
use crate::pass::plan::kernel::turns::{Lines, in_turns};
use crate::pass::plan::kernel::{below, guarded, pieces, repeat, repeat_to};
use crate::pass::plan::product::Covering;
use crate::pass::plan::product::dot::named;
use crate::pass::plan::product::tile::{self, Extent, Packed, Right, Tiling};

/// A workgroup, which consists of one subgroup.
pub(super) struct Workgroup<'s> {
    sizes: &'s Sizes,
    places: OutputTile,
    packed: Packed,
    /// Invocations of the workgroup.
    pub(super) lanes: usize,
    share: Share,
    /// Workgroups of the dispatch.
    pub(super) count: Dim,
    /// Statement that ends surplus workgroups.
    pub(super) surplus: Statement,
    /// Index of the channel group, and of the block of output channels.
    group: Index,
    block: Index,
    /// First tile.
    first: Index,
    /// Number of images, and of tiles along both axes.
    tiles: [Dim; 3],
    seen: Scratch,
    summed: Scratch,
}

/// A tile of four channels.
struct Place {
    /// Index of the tile.
    tile: Index,
    image: Index,
    /// First row and first column of its output positions.
    first: [Index; 2],
    /// Bound of the rows, and tiles in a row.
    space: [Dim; 2],
}

impl Place {
    /// Returns an output position by its row and column in the tile.
    fn position(&self, scope: &mut Scope, [y, x]: [&Index; 2]) -> [Index; 2] {
        let row = scope.apart(self.first[0].add(y), &self.space);
        [row, self.first[1].add(x)]
    }
}

impl<'s> Workgroup<'s> {
    pub(super) fn new(
        scope: &mut Scope,
        sizes: &'s Sizes,
        (places, packed): (OutputTile, Packed),
    ) -> Result<Workgroup<'s>> {
        let missing = || Error::internal("no subgroups, or no image, to compute by tiles");
        let lanes = scope.capabilities.simd_lanes().ok_or_else(missing)?;
        let extent = packed.extent(lanes);
        let tiles =
            super::tiles(&scope.graph.ty(sizes.result).shape, places).ok_or_else(missing)?;
        let of_all = [
            &sizes.groups,
            &Dim::product(&tiles),
            &sizes.channels,
            &sizes.outputs,
        ];
        let share = Share::new(places, (extent, lanes), of_all);
        let parts = [share.parts.clone(), share.blocks.clone()];
        let covering = Covering::new(scope, std::slice::from_ref(&sizes.groups), parts);
        let [part, block] = covering.numbers;
        let height = Dim::from(extent.height());
        let scratch = |name, channels| {
            let of = (&covering.index, &covering.count);
            let count = pieces(channels, QUAD) * &height;
            Scratch::new((sizes.result, name), places, of, count)
        };
        Ok(Workgroup {
            seen: scratch("seen", &sizes.channels),
            summed: scratch("summed", &share.columns),
            group: covering
                .outer
                .into_iter()
                .next()
                .unwrap_or_else(Index::zero),
            first: named(scope, &part.scale(&height), "first"),
            count: covering.count,
            surplus: covering.surplus,
            sizes,
            places,
            packed,
            lanes,
            share,
            block,
            tiles,
        })
    }

    fn extent(&self) -> Extent {
        self.packed.extent(self.lanes)
    }

    /// Emits a loop over the `quads` vec4s of channels of the workgroup's tiles, one for each invocation at a time.
    /// `make` gets the index of the vec4 among the channels, its number in the scratch memory, and the tile.
    fn each(
        &self,
        scope: &mut Scope,
        (name, quads): (&str, &Dim),
        make: impl FnOnce(&mut Scope, &Index, (&Index, &Place)) -> Result<Vec<Statement>>,
    ) -> Result<Vec<Statement>> {
        let trips = pieces(quads, self.lanes);
        repeat(scope, name, &trips, |scope, trip| {
            let (_, local) = scope.counter("local", &Dim::from(self.lanes));
            let number = trip.scale(&Dim::from(self.lanes)).add(&local);
            let number = named(scope, &number, "number");
            let height = Dim::from(self.extent().height());
            let tile = self.first.add(&number.rem(&height));
            let tile = named(scope, &tile, "tile");
            let place = self.place(tile)?;
            let made = make(scope, &number.div(&height), (&number, &place))?;
            let made = below(scope, &place.tile, &self.all_tiles(), made);
            Ok(below(scope, &number, quads, made))
        })
    }

    /// Returns the position of a tile.
    fn place(&self, tile: Index) -> Result<Place> {
        let place = index::delinearize(&tile, &self.tiles);
        let [image, down, across] = <[Index; 3]>::try_from(place)
            .map_err(|_| Error::internal("tiles have other coordinates"))?;
        let of_tile = self.places.size();
        let height = &self.tiles[1] * of_tile as i64 + self.places.input_size() as i64;
        Ok(Place {
            tile,
            image,
            first: [down, across].map(|tile| tile.scale(&Dim::from(of_tile))),
            space: [height, self.tiles[2].clone()],
        })
    }

    /// First stage: transforms the input. An invocation transforms four channels of a tile.
    pub(super) fn seen(&self, scope: &mut Scope) -> Result<Vec<Statement>> {
        let channels = pieces(&self.sizes.channels, QUAD);
        self.each(
            scope,
            ("seen_trip", &self.seen.count),
            |scope, quad, (number, place)| {
                let quad = self.group.scale(&channels).add(quad);
                let tap = [Index::zero(), Index::zero()];
                let positions = every(self.places.input_size(), |y, x| {
                    let position = place.position(scope, [&y.into(), &x.into()]);
                    let quad = ([place.image.clone(), quad.clone()], None);
                    let seen = image::input(scope, self.sizes, quad, (&position, &tap))?;
                    scope.pool.set_label(seen, &format!("d{y}{x}"));
                    Ok(seen)
                })?;
                let made =
                    Transformed::new(&mut scope.pool, self.places.input_transform(), &positions);
                let mut statements = made.columns;
                for (y, x, vector) in by_place(&made.numbers) {
                    let matrix = self.seen.matrix(scope, [y, x]);
                    statements.push(self.seen.store(scope, (&matrix, number), vector)?);
                }
                Ok(statements)
            },
        )
    }

    /// Second stage: one matrix product for each element of the transformed tile. Rows are tiles, columns are output
    /// channels.
    pub(super) fn summed(&self, scope: &mut Scope) -> Result<Vec<Statement>> {
        let matrices = Dim::from(self.places.matrices());
        let first = self.block.scale(&self.share.panels);
        let rest = self.remaining(scope, &first);
        repeat(scope, "matrix", &matrices, |scope, matrix| {
            let panels = (&self.share.panels, rest);
            repeat_to(scope, "panel", panels, |scope, panel| {
                self.product(scope, &matrix, (&first, &panel))
            })
        })
    }

    /// Returns how many panels the workgroup has, starting at `first`: the last block of a group may have fewer.
    fn remaining(&self, scope: &mut Scope, first: &Index) -> Expr {
        let (first, pool) = (first.emit(&mut scope.pool), &mut scope.pool);
        let [all, most] = [&self.share.all_panels, &self.share.panels].map(|size| pool.size(size));
        let rest = pool.call("x - y", WgslType::U32, &[all, first]);
        pool.call("min(x, y)", WgslType::U32, &[rest, most])
    }

    /// Multiplies a matrix by a panel of filters. `panel` counts from the workgroup's first panel.
    fn product(
        &self,
        scope: &mut Scope,
        matrix: &Index,
        (first, panel): (&Index, &Index),
    ) -> Result<Vec<Statement>> {
        let (extent, quad) = (self.extent(), Dim::from(QUAD));
        let [rows, columns] = [extent.height(), extent.width(self.lanes)].map(Dim::from);
        let strip = panel.scale(&columns.floor_div(&quad));
        let tiling = Tiling {
            outer: Vec::new(),
            rows: rows.clone(),
            spread: vec![rows.clone()],
            columns,
            taps: Vec::new(),
            depth: self.sizes.channels.clone(),
            left: &|scope, [_, row], (_, steps)| {
                let [(channel, guard), ..] = steps else {
                    return Err(Error::internal("a round without steps"));
                };
                let number = channel.div(&quad).scale(&rows).add(&row[0]);
                self.seen.load(scope, (matrix, &number), *guard)
            },
            right: Right::Panels(self.sizes.filter, self.packed.clone(), &|_| {
                let of_group = matrix.scale(&self.sizes.groups).add(&self.group);
                of_group.scale(&self.share.all_panels)
            }),
            write: &|scope, [_, row], first, vector| {
                let number = strip.add(&first.div(&quad)).scale(&rows).add(&row[0]);
                Ok(vec![self.summed.store(scope, (matrix, &number), vector)?])
            },
            epilogue: 0,
            in_quads: true,
        };
        tile::sums(scope, &tiling, tile::Place::of_panel(first.add(panel)))
    }

    /// Last stage: transforms the products into output positions and applies the epilogue. An invocation transforms four
    /// channels of a tile.
    pub(super) fn output(&self, scope: &mut Scope, group: &Group) -> Result<Vec<Statement>> {
        let of_block = self.share.columns.floor_div(&Dim::from(QUAD));
        let all = pieces(&self.sizes.outputs, QUAD);
        self.each(
            scope,
            ("output_trip", &self.summed.count),
            |scope, quad, (number, place)| {
                let quad = self.block.scale(&of_block).add(quad);
                let sums = every(self.places.input_size(), |y, x| {
                    let matrix = self.summed.matrix(scope, [y, x]);
                    let sum = self.summed.load(scope, (&matrix, number), None)?;
                    scope.pool.set_label(sum, &format!("m{y}{x}"));
                    Ok(sum)
                })?;
                let made = Transformed::new(&mut scope.pool, self.places.output_transform(), &sums);
                let channels = [place.image.clone(), self.group.scale(&all).add(&quad)];
                let statements = self.written(scope, group, (&channels, place), made)?;
                Ok(below(scope, &quad, &all, statements))
            },
        )
    }

    /// Writes the positions of a tile.
    fn written(
        &self,
        scope: &mut Scope,
        group: &Group,
        (channels, place): (&[Index; 2], &Place),
        made: Transformed,
    ) -> Result<Vec<Statement>> {
        let held = held(&mut scope.pool, &made.numbers);
        let numbers = held.iter().flatten().zip(made.numbers.iter().flatten());
        let declared = numbers.map(|(held, number)| Statement::Declare(*held, *number));
        let mut statements: Vec<Statement> = made.columns.into_iter().chain(declared).collect();
        let cost = (Lines::Short, group.epilogue_cost(scope.graph));
        let (first, space) = (&place.first, &self.sizes.space);
        statements.extend(in_turns(scope, cost, &held, &mut |scope, y, held| {
            let mut line = Vec::new();
            for (x, vector) in held.iter().enumerate() {
                let position = place.position(scope, [y, &x.into()]);
                let quad = [channels.as_slice(), &position].concat();
                let written = image::write(scope, group, self.sizes, &quad, *vector)?;
                line.extend(guarded(scope, &first[1], x, &space[1], written));
            }
            Ok(guarded(scope, &first[0], y.clone(), &space[0], line))
        })?);
        Ok(statements)
    }

    /// Returns the number of tiles of all images.
    pub(super) fn all_tiles(&self) -> Dim {
        Dim::product(&self.tiles)
    }

    /// Returns the operations of all transforms of all workgroups.
    pub(super) fn transforms(&self) -> Dim {
        let of = [
            (&self.seen.count, self.places.input_transform()),
            (&self.summed.count, self.places.output_transform()),
        ];
        let of_workgroup =
            of.map(|(count, by)| count * (QUAD * Transformed::operations(by)) as i64);
        let [seen, summed] = of_workgroup;
        (seen + summed) * &self.count
    }
}

/// Calls `make` for each row and column of a tile.
fn every(side: usize, mut make: impl FnMut(usize, usize) -> Result<Expr>) -> Result<Square> {
    let row = |y| (0..side).map(|x| make(y, x)).collect();
    (0..side).map(row).collect()
}

/// Iterates over vectors with their rows and columns.
fn by_place(vectors: &Square) -> impl Iterator<Item = (usize, usize, Expr)> + '_ {
    let rows = vectors.iter().enumerate();
    rows.flat_map(|(y, row)| {
        row.iter()
            .enumerate()
            .map(move |(x, vector)| (y, x, *vector))
    })
}

/// Creates variables for the positions of a tile, by row and column.
fn held(pool: &mut ExprPool, numbers: &Square) -> Square {
    let rows = numbers.iter().enumerate().map(|(y, row)| {
        let name = |x: usize| format!("y{y}{x}");
        let variable = |x| pool.variable(&name(x), WgslType::F32x4);
        (0..row.len()).map(variable).collect()
    });
    rows.collect()
}
