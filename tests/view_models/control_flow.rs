//! A loop, a condition and a scan, with modules in their bodies.

use onionskin::error::Result;
use onionskin::nn::Linear;
use onionskin::trace::{Forward, Module, TracedTensor, cond, scan, while_loop};

#[derive(Module)]
pub struct ControlFlow {
    cell: Linear,
    positive: Linear,
}

impl ControlFlow {
    pub fn new() -> ControlFlow {
        ControlFlow {
            cell: Linear::new(6, 6),
            positive: Linear::new(6, 6),
        }
    }

    fn run(&self, x: &TracedTensor) -> Result<TracedTensor> {
        let small = while_loop(
            x.clone(),
            |x| x.abs().amax().gt(1.0),
            |x| self.cell.call(&x) * 0.5,
        )?;
        let branch = || self.positive.call(&small);
        let chosen = cond(&small.sum().gt(0.0), branch, || -&small)?;
        let start = chosen.i(0) * 0.0;
        let (_, sums) = scan(start, chosen, |sum, row: TracedTensor| {
            let next = sum + row;
            (next.clone(), next)
        })?;
        Ok(sums)
    }
}

impl Forward<&TracedTensor> for ControlFlow {
    type Output = Result<TracedTensor>;

    fn forward(&self, x: &TracedTensor) -> Result<TracedTensor> {
        self.run(x)
    }
}
