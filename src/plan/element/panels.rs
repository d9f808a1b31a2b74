//! Elements of a weight in panels: four columns of a K element, or one of them.

use super::KernelScope;
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::ValueId;
use crate::kernel::expr::{Expr, ExprPool, WgslType};
use crate::kernel::index::Index;
use crate::kernel::layout::{Panels, Texel};
use crate::plan::element::role;
use crate::plan::element::vec4::{self, VEC4_LEN};

/// Loads four columns of a K element, from a texel of this format.
pub fn load_columns(
    pool: &mut ExprPool,
    texture: usize,
    texel: Texel,
    at: [Expr; 3],
    step: usize,
) -> Expr {
    let found = pool.texel(texture, WgslType::of_texel(texel), at);
    let halves = match (texel, step % texel.k_per_texel()) {
        (Texel::F16 | Texel::F32, _) => return found,
        (Texel::F16x2, 0) => "low_halves(x)",
        (Texel::F16x2, _) => "high_halves(x)",
    };
    pool.set_label(found, "pairs");
    pool.call(halves, WgslType::F32x4, &[found])
}

/// Position of an element in panels: column, row and layer of its texel, the component of the texel, and which of the
/// texel's K elements it is.
struct PanelPosition {
    at: [Index; 3],
    column: Index,
    step: Index,
}

impl PanelPosition {
    /// Returns the position of the element at a row-major index. `None` if the panels do not hold the whole weight as one
    /// matrix.
    fn of(panels: &Panels, texel: Texel, numel: usize, place: &Index) -> Option<PanelPosition> {
        let [step, column] = panels.as_matrix(numel)?.map(|run| {
            let along = place.div(&Dim::from(run.stride));
            along.rem(&Dim::from(run.count))
        });
        let (round, width) = (Dim::from(panels.k_block), Dim::from(panels.width));
        let (strip, quad) = (Dim::from(panels.strip), Dim::from(VEC4_LEN));
        let within = column.rem(&width);
        let (of_round, steps) = (step.rem(&round), Dim::from(texel.k_per_texel()));
        let of_strip = Dim::from(panels.k_block / texel.k_per_texel());
        let line = within.div(&strip).scale(&of_strip);
        let line = line.add(&of_round.div(&steps));
        let x = line.scale(&Dim::from(panels.strip / VEC4_LEN));
        Some(PanelPosition {
            at: [
                x.add(&within.rem(&strip).div(&quad)),
                step.div(&round),
                column.div(&width),
            ],
            column: column.rem(&quad),
            step: of_round.rem(&steps),
        })
    }
}

impl KernelScope<'_> {
    /// Loads the element at a row-major index of a weight in panels.
    pub(super) fn load_panel_element(
        &mut self,
        value: ValueId,
        panels: &Panels,
        place: &Index,
        guard: Option<Expr>,
    ) -> Result<Expr> {
        let info = self.graph.value(value);
        let numel = info.ty.numel().as_const();
        let numel = numel.and_then(|numel| usize::try_from(numel).ok());
        let (texture, texel) = self.bind_panels(value, panels)?;
        let position = numel.and_then(|numel| PanelPosition::of(panels, texel, numel, place));
        let missing = || {
            Error::internal(format!(
                "the panels of {} do not hold the whole weight as one matrix",
                info.name
            ))
        };
        let PanelPosition { at, column, step } = position.ok_or_else(missing)?;
        let at = at.map(|index| self.guarded_index(&index, guard));
        let one = match texel {
            Texel::F16 | Texel::F32 => WgslType::F32,
            Texel::F16x2 => WgslType::U32,
        };
        let pool = &mut self.pool;
        let found = pool.texel(texture, WgslType::of_texel(texel), at);
        pool.set_label(found, &format!("{}_texel", role(&info.name)));
        let known = column
            .as_const()
            .and_then(|part| usize::try_from(part).ok());
        let number = match known {
            Some(part) => vec4::component(pool, found, part, one),
            None => {
                let part = column.emit(pool);
                pool.call("x[y]", one, &[found, part])
            }
        };
        Ok(match texel {
            Texel::F16 | Texel::F32 => number,
            Texel::F16x2 => {
                let step = step.emit(pool);
                pool.call("one_of_pair(x, y)", WgslType::F32, &[number, step])
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::layout::StridedRange;

    const TEXELS: [Texel; 3] = [Texel::F16, Texel::F16x2, Texel::F32];

    /// Every element is found where the panels are filled with it, in rows and transposed.
    #[test]
    fn elements_are_found_where_panels_hold_them() {
        let (steps, columns) = (19, 45);
        for (step, column) in [(1, steps), (columns, 1)] {
            let run = |count, stride| StridedRange { count, stride };
            let panels = Panels {
                batch: run(1, 0),
                k_ranges: vec![run(steps, step)],
                columns: run(columns, column),
                k_block: 8,
                width: 32,
                strip: 16,
                winograd_tile: None,
            };
            for (place, texel) in (0..steps * columns).flat_map(|place| TEXELS.map(|x| (place, x)))
            {
                let index = Index::from(Dim::from(place));
                let position = PanelPosition::of(&panels, texel, steps * columns, &index).unwrap();
                let number = |index: &Index| index.as_const().unwrap() as usize;
                let [x, y, layer] = position.at.each_ref().map(number);
                assert!(x < panels.extent(texel)[0]);
                let (of_strip, of_line) = (8 / texel.k_per_texel(), 16 / VEC4_LEN);
                let (strip, line) = (x / of_line / of_strip, x / of_line % of_strip);
                let step = line * texel.k_per_texel() + number(&position.step);
                let offset = x % of_line * VEC4_LEN + number(&position.column);
                let (first, count) = panels.strip_elements([y, layer], [strip, step]).unwrap();
                assert!(offset < count);
                assert_eq!(first + offset * column, place);
            }
        }
    }
}
