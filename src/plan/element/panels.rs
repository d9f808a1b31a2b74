//! Loads from a weight in panels: four columns of a K element, or one element.

use super::KernelScope;
use crate::dim::Dim;
use crate::error::{Error, Result};
use crate::ir::ValueId;
use crate::kernel::expr::{Expr, ExprPool, WgslType};
use crate::kernel::index::Index;
use crate::kernel::layout::{Panels, Texel};
use crate::plan::element::role;
use crate::plan::element::vec4::{self, VEC4_LEN};

/// Loads four columns of a K element, from the texel at `texel_position`: column, row and layer. If a texel contains
/// several K elements, `k` selects one.
pub fn load_columns(
    pool: &mut ExprPool,
    texture: usize,
    texel: Texel,
    texel_position: [Expr; 3],
    k: usize,
) -> Expr {
    let loaded = pool.texel(texture, WgslType::of_texel(texel), texel_position);
    let template = match (texel, k % texel.k_per_texel()) {
        (Texel::F16 | Texel::F32, _) => return loaded,
        (Texel::F16x2, 0) => "low_halves(x)",
        (Texel::F16x2, _) => "high_halves(x)",
    };
    pool.set_label(loaded, "pairs");
    pool.call(template, WgslType::F32x4, &[loaded])
}

/// Position of an element in panels.
struct PanelPosition {
    /// Column, row and layer of its texel.
    at: [Index; 3],
    /// Component of the texel.
    column: Index,
    /// Index among the K elements of the texel.
    step: Index,
}

impl PanelPosition {
    /// Returns the position of the element at a row-major index. `None` if the panels do not hold the whole weight as
    /// one matrix.
    fn of(panels: &Panels, texel: Texel, numel: usize, index: &Index) -> Option<PanelPosition> {
        let [step, column] = panels.as_matrix(numel)?.map(|range| {
            let coordinate = index.div(&Dim::from(range.stride));
            coordinate.rem(&Dim::from(range.count))
        });
        let (k_block, width) = (Dim::from(panels.k_block), Dim::from(panels.width));
        let (strip, vec4_len) = (Dim::from(panels.strip), Dim::from(VEC4_LEN));
        let panel_column = column.rem(&width);
        let (block_k, k_per_texel) = (step.rem(&k_block), Dim::from(texel.k_per_texel()));
        let lines_per_strip = Dim::from(panels.k_block / texel.k_per_texel());
        let line = panel_column.div(&strip).scale(&lines_per_strip);
        let line = line.add(&block_k.div(&k_per_texel));
        let x = line.scale(&Dim::from(panels.strip / VEC4_LEN));
        Some(PanelPosition {
            at: [
                x.add(&panel_column.rem(&strip).div(&vec4_len)),
                step.div(&k_block),
                column.div(&width),
            ],
            column: column.rem(&vec4_len),
            step: block_k.rem(&k_per_texel),
        })
    }
}

impl KernelScope<'_> {
    /// Loads the element at a row-major index of a weight in panels.
    pub(super) fn load_panel_element(
        &mut self,
        value: ValueId,
        panels: &Panels,
        linear_index: &Index,
        guard: Option<Expr>,
    ) -> Result<Expr> {
        let info = self.graph.value(value);
        let numel = info.ty.numel().as_const();
        let numel = numel.and_then(|numel| usize::try_from(numel).ok());
        let (texture, texel) = self.bind_panels(value, panels)?;
        let position =
            numel.and_then(|numel| PanelPosition::of(panels, texel, numel, linear_index));
        let missing = || {
            Error::internal(format!(
                "the panels of {} do not hold the whole weight as one matrix",
                info.name
            ))
        };
        let PanelPosition { at, column, step } = position.ok_or_else(missing)?;
        let at = at.map(|index| self.guarded_index(&index, guard));
        let component_type = match texel {
            Texel::F16 | Texel::F32 => WgslType::F32,
            Texel::F16x2 => WgslType::U32,
        };
        let pool = &mut self.pool;
        let loaded = pool.texel(texture, WgslType::of_texel(texel), at);
        pool.set_label(loaded, &format!("{}_texel", role(&info.name)));
        let constant_component = column
            .as_const()
            .and_then(|component| usize::try_from(component).ok());
        let number = match constant_component {
            Some(component) => vec4::component(pool, loaded, component, component_type),
            None => {
                let component = column.emit(pool);
                pool.call("x[y]", component_type, &[loaded, component])
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
