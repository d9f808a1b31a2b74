//! Graphs of 8,000 nodes.

use onionskin::nn::Linear;
use onionskin::trace::{Forward, Module, TracedTensor};

/// A chain of pointwise operators. Every fourth one adds the value of eleven operators before.
pub fn chain(x: &TracedTensor, operators: usize) -> TracedTensor {
    let mut values = vec![x.clone()];
    for index in 0..operators {
        let last = &values[index];
        values.push(match index % 4 {
            0 => last.tanh(),
            1 => last * 0.5,
            2 => last.relu(),
            _ => last + &values[index.saturating_sub(11)],
        });
    }
    values.swap_remove(operators)
}

/// A linear layer and 98 pointwise operators, beside which the input passes on.
#[derive(Module)]
struct Unit {
    linear: Linear,
}

impl Forward<&TracedTensor> for Unit {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        x + chain(&self.linear.call(x), 98)
    }
}

#[derive(Module)]
struct Block {
    units: Vec<Unit>,
}

impl Forward<&TracedTensor> for Block {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let units = self.units.iter();
        units.fold(x.clone(), |y, unit| unit.call(&y))
    }
}

#[derive(Module)]
struct Stage {
    blocks: Vec<Block>,
}

/// The second half of the blocks takes values of the first half in reverse order, as decoders do.
impl Forward<&TracedTensor> for Stage {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let (encoders, decoders) = self.blocks.split_at(self.blocks.len() / 2);
        let mut skips = vec![x.clone()];
        for block in encoders {
            let last = &skips[skips.len() - 1];
            skips.push(block.call(last));
        }
        let last = skips.remove(skips.len() - 1);
        let pairs = decoders.iter().zip(skips.iter().rev());
        pairs.fold(last, |y, (block, skip)| block.call(&y) + skip)
    }
}

/// 104 modules in three levels with 8,008 operators.
#[derive(Module)]
pub struct ManyModules {
    stages: Vec<Stage>,
}

const FEATURES: usize = 8;

impl ManyModules {
    pub fn new() -> ManyModules {
        let unit = |_| Unit {
            linear: Linear::new(FEATURES, FEATURES),
        };
        let block = |_| Block {
            units: (0..5).map(unit).collect(),
        };
        let stage = |_| Stage {
            blocks: (0..4).map(block).collect(),
        };
        ManyModules {
            stages: (0..4).map(stage).collect(),
        }
    }
}

impl Forward<&TracedTensor> for ManyModules {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let stages = self.stages.iter();
        stages.fold(x.clone(), |y, stage| stage.call(&y))
    }
}
