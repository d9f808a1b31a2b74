//! Single elements of a weight that lies in panels: each is one of the four numbers of a texel.

use super::Scope;
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::ValueId;
use crate::kernel::expr::{Expr, Type};
use crate::kernel::index::Index;
use crate::kernel::layout::Panels;
use crate::pass::plan::element::quad::{self, QUAD};
use crate::pass::plan::element::role;

/// Where an element is: column, row and layer of its texel, and which of the texel's numbers it is.
struct Texel {
    at: [Index; 3],
    part: Index,
}

impl Texel {
    /// Of the element at a place in row-major order; none if panels do not tell.
    fn of(panels: &Panels, numel: usize, place: &Index) -> Option<Texel> {
        let [step, column] = panels.matrix(numel)?.map(|run| {
            let along = place.div(&Dim::from(run.stride));
            along.rem(&Dim::from(run.count))
        });
        let (round, width) = (Dim::from(panels.round), Dim::from(panels.width));
        let (within, quad) = (column.rem(&width), Dim::from(QUAD));
        let of_step = Dim::from(panels.width / QUAD);
        let x = step.rem(&round).scale(&of_step).add(&within.div(&quad));
        Some(Texel {
            at: [x, step.div(&round), column.div(&width)],
            part: column.rem(&quad),
        })
    }
}

impl Scope<'_> {
    /// The element at a place of a weight that lies in panels.
    pub(super) fn element_of_panels(
        &mut self,
        value: ValueId,
        panels: &Panels,
        place: &Index,
        guard: Option<Expr>,
    ) -> Result<Expr> {
        let info = self.graph.value(value);
        let numel = info.ty.numel().as_const();
        let numel = numel.and_then(|numel| usize::try_from(numel).ok());
        let texel = numel.and_then(|numel| Texel::of(panels, numel, place));
        let missing = || Error::internal(format!("{} is read out of other panels", info.name));
        let Texel { at, part } = texel.ok_or_else(missing)?;
        let texture = self.in_panels(value, panels)?;
        let at = at.map(|index| self.guarded(&index, guard));
        let pool = &mut self.pool;
        let texel = pool.texel(texture, at);
        pool.set_label(texel, &format!("{}_texel", role(&info.name)));
        let known = part.as_const().and_then(|part| usize::try_from(part).ok());
        Ok(match known {
            Some(part) => quad::part(pool, texel, part, Type::F32),
            None => {
                let part = part.emit(pool);
                pool.call("x[y]", Type::F32, &[texel, part])
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::layout::Run;

    /// Every element is where the panels are filled with it, in rows and transposed.
    #[test]
    fn elements_are_found_where_panels_hold_them() {
        let (steps, columns) = (19, 45);
        for (step, column) in [(1, steps), (columns, 1)] {
            let run = |count, stride| Run { count, stride };
            let panels = Panels {
                outer: run(1, 0),
                depth: vec![run(steps, step)],
                columns: run(columns, column),
                round: 8,
                width: 32,
                transformed: None,
            };
            let mut found = 0;
            for place in 0..steps * columns {
                let index = Index::from(Dim::from(place));
                let Texel { at, part } = Texel::of(&panels, steps * columns, &index).unwrap();
                let number = |index: &Index| index.as_const().unwrap() as usize;
                let [x, y, layer] = at.each_ref().map(number);
                let (of_step, offset) = (x / (32 / QUAD), x % (32 / QUAD) * QUAD + number(&part));
                let (first, count) = panels.line([y, layer], of_step).unwrap();
                assert!(offset < count);
                found += usize::from(first + offset * column == place);
            }
            assert_eq!(found, steps * columns);
        }
    }
}
