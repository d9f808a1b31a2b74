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
    /// Number of states: the hidden state, and for an LSTM the cell state.
    pub count: usize,
    /// Batch rows of the workgroup.
    pub rows: usize,
    /// Vectors of four units per row.
    pub vec4s: usize,
}

/// A vec4 of the hidden state, loaded for each row.
pub enum LoadedState {
    /// Each invocation has loaded the vectors of all rows.
    PerInvocation(Vec<Expr>),
    /// The invocations of a subgroup have loaded different vectors: the expression, the lane with the vector of the
    /// first row, and the distance between the lanes of neighbouring rows.
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

    /// Index in the arrays of a row's vector number `vec4`, as it is before a step.
    pub fn vec4_index(&self, step: &Index, row: &Index, vec4: &Index) -> Index {
        let half = step
            .rem(&Dim::from(2))
            .scale(&Dim::from(self.rows * self.vec4s));
        half.add(&row.scale(&Dim::from(self.vec4s))).add(vec4)
    }

    /// Loads the vector at an index.
    pub fn load_vec4(&self, pool: &mut ExprPool, state: usize, index: &Index) -> Expr {
        let index = index.emit(pool);
        pool.call(format!("{}[x]", NAMES[state]), WgslType::F32x4, &[index])
    }

    /// Stores a vector at an index.
    pub fn store_vec4(
        &self,
        pool: &mut ExprPool,
        state: usize,
        index: &Index,
        value: Expr,
    ) -> Statement {
        Statement::WorkgroupStore {
            array: NAMES[state],
            index: index.emit(pool),
            value,
        }
    }

    /// Loads `count` vectors of the hidden state before a step, from `first` on; those past the end are arbitrary.
    /// `lane` is the index of the invocation in its subgroup, given where subgroups are vector lanes: there a load by
    /// all lanes takes as long as a load by one, so each lane loads a different vector.
    pub fn load_hidden(
        &self,
        scope: &mut KernelScope,
        step: &Index,
        first: &Index,
        count: usize,
        lane: Option<&Index>,
    ) -> Vec<LoadedState> {
        let vec4_total = Dim::from(self.vec4s);
        if let Some(lane) = lane {
            let count_dim = Dim::from(count);
            let vec4 = clamped_index(scope, &first.add(&lane.rem(&count_dim)), &vec4_total);
            let row = lane.div(&count_dim).rem(&Dim::from(self.rows));
            let vector = self.load_vec4(&mut scope.pool, 0, &self.vec4_index(step, &row, &vec4));
            scope.pool.set_label(vector, "h");
            return (0..count)
                .map(|number| LoadedState::AcrossLanes(vector, [number, count]))
                .collect();
        }
        let vec4s = (0..count).map(|number| first.add_size(&Dim::from(number)));
        let vec4s: Vec<Index> = vec4s
            .map(|vec4| clamped_index(scope, &vec4, &vec4_total))
            .collect();
        let rows = |vec4: &Index| {
            let rows = (0..self.rows).map(|row| {
                let index = self.vec4_index(step, &Dim::from(row).into(), vec4);
                let vector = self.load_vec4(&mut scope.pool, 0, &index);
                scope.pool.set_label(vector, "h");
                vector
            });
            LoadedState::PerInvocation(rows.collect())
        };
        vec4s.iter().map(rows).collect()
    }
}

impl LoadedState {
    /// Component `component` of a row's vector.
    pub fn unit(&self, pool: &mut ExprPool, row: usize, component: usize) -> Expr {
        match self {
            LoadedState::PerInvocation(rows) => {
                vec4::component(pool, rows[row], component, WgslType::F32)
            }
            LoadedState::AcrossLanes(vector, [first, row_distance]) => {
                let number = vec4::component(pool, *vector, component, WgslType::F32);
                let lane = pool.index((first + row * row_distance) as u32);
                pool.call("subgroupShuffle(x, y)", WgslType::F32, &[number, lane])
            }
        }
    }
}
