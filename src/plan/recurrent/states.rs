//! States of a layer in workgroup memory, double-buffered: before and after a step.

use crate::dim::Dim;
use crate::kernel::emit::Statement;
use crate::kernel::expr::{Expr, ExprPool, WgslType};
use crate::kernel::index::Index;
use crate::op::RecurrentCell;
use crate::plan::element::KernelScope;
use crate::plan::element::vec4::{self, VEC4_LEN};
use crate::plan::kernel::clamped_index;

/// Array names by state index.
const NAMES: [&str; 2] = ["hidden", "memory"];

/// Arrays of vec4 that hold the states.
pub struct RecurrentStates {
    /// Number of states.
    pub count: usize,
    /// Rows of the batch.
    pub rows: usize,
    /// Vectors per row.
    pub vec4s: usize,
}

/// Loaded vec4 of the hidden state, for each row.
pub enum LoadedState {
    /// Each invocation has loaded the vectors of all rows.
    PerInvocation(Vec<Expr>),
    /// The invocations of a subgroup have loaded different vectors: the expression, the lane with the vector of the first
    /// row, and the distance between the lanes of neighbouring rows.
    AcrossLanes(Expr, [usize; 2]),
}

impl RecurrentStates {
    pub fn new(cell: RecurrentCell, rows: usize, units: usize) -> RecurrentStates {
        RecurrentStates {
            count: cell.states(),
            rows,
            vec4s: units.div_ceil(VEC4_LEN),
        }
    }

    /// Bytes of a row in all arrays.
    pub fn bytes(cell: RecurrentCell, units: usize) -> usize {
        2 * cell.states() * units.next_multiple_of(VEC4_LEN) * size_of::<f32>()
    }

    /// Declarations of the arrays.
    pub fn declarations(&self) -> String {
        let vectors = 2 * self.rows * self.vec4s;
        let line = |name: &&str| format!("var<workgroup> {name}: array<vec4<f32>, {vectors}>;\n");
        NAMES.iter().take(self.count).map(line).collect()
    }

    /// Index of the vector of a row before a step.
    pub fn vec4_index(&self, step: &Index, row: &Index, quad: &Index) -> Index {
        let half = step
            .rem(&Dim::from(2))
            .scale(&Dim::from(self.rows * self.vec4s));
        half.add(&row.scale(&Dim::from(self.vec4s))).add(quad)
    }

    /// Loads the vector at an index.
    pub fn load_vec4(&self, pool: &mut ExprPool, state: usize, place: &Index) -> Expr {
        let at = place.emit(pool);
        pool.call(format!("{}[x]", NAMES[state]), WgslType::F32x4, &[at])
    }

    /// Stores a vector for the next step.
    pub fn store_vec4(
        &self,
        pool: &mut ExprPool,
        state: usize,
        place: &Index,
        value: Expr,
    ) -> Statement {
        Statement::WorkgroupStore {
            array: NAMES[state],
            index: place.emit(pool),
            value,
        }
    }

    /// Loads `parts` vectors of the hidden state before a step, from `first` on; those past the end are arbitrary. Where
    /// subgroups are vector lanes, a load takes one invocation as long as all of them, so that each loads another vector.
    pub fn load_hidden(
        &self,
        scope: &mut KernelScope,
        step: &Index,
        first: &Index,
        parts: usize,
        lane: Option<&Index>,
    ) -> Vec<LoadedState> {
        let last = Dim::from(self.vec4s);
        if let Some(lane) = lane {
            let parts_of = Dim::from(parts);
            let quad = clamped_index(scope, &first.add(&lane.rem(&parts_of)), &last);
            let row = lane.div(&parts_of).rem(&Dim::from(self.rows));
            let held = self.load_vec4(&mut scope.pool, 0, &self.vec4_index(step, &row, &quad));
            scope.pool.set_label(held, "h");
            return (0..parts)
                .map(|part| LoadedState::AcrossLanes(held, [part, parts]))
                .collect();
        }
        let quads = (0..parts).map(|part| first.add_size(&Dim::from(part)));
        let quads: Vec<Index> = quads
            .map(|quad| clamped_index(scope, &quad, &last))
            .collect();
        let rows = |quad: &Index| {
            let rows = (0..self.rows).map(|row| {
                let place = self.vec4_index(step, &Dim::from(row).into(), quad);
                let held = self.load_vec4(&mut scope.pool, 0, &place);
                scope.pool.set_label(held, "h");
                held
            });
            LoadedState::PerInvocation(rows.collect())
        };
        quads.iter().map(rows).collect()
    }
}

impl LoadedState {
    /// A unit of a row.
    pub fn unit(&self, pool: &mut ExprPool, row: usize, part: usize) -> Expr {
        match self {
            LoadedState::PerInvocation(rows) => {
                vec4::component(pool, rows[row], part, WgslType::F32)
            }
            LoadedState::AcrossLanes(vector, [first, apart]) => {
                let number = vec4::component(pool, *vector, part, WgslType::F32);
                let lane = pool.index((first + row * apart) as u32);
                pool.call("subgroupShuffle(x, y)", WgslType::F32, &[number, lane])
            }
        }
    }
}
