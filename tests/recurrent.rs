//! Recurrent layers: the primitive compared with single steps, and devices of all kinds compared with the primitive.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

use onionskin::gpu::{FeatureLevel, GpuDevice, Program, ProgramOptions, TensorMap};
use onionskin::interp;
use onionskin::ir::{Builder, Graph, Value};
use onionskin::kernel::capabilities::Capabilities;
use onionskin::kernel::layout::Layout;
use onionskin::op::{Recurrent, RecurrentCell};
use onionskin::plan;
use onionskin::tensor::Tensor;

mod samples;

const CELLS: [RecurrentCell; 4] = [
    RecurrentCell::Lstm,
    RecurrentCell::Gru,
    RecurrentCell::Tanh,
    RecurrentCell::Relu,
];

/// A recurrent layer, given by its sizes.
#[derive(Clone, Copy, Debug)]
struct RecurrentLayer {
    cell: RecurrentCell,
    directions: usize,
    steps: usize,
    batch: usize,
    units: usize,
}

impl RecurrentLayer {
    /// Returns layers of each cell for sizes `[directions, steps, batch, units]`.
    fn all(sizes: &[[usize; 4]]) -> Vec<RecurrentLayer> {
        let each = sizes.iter().flat_map(|sizes| {
            let [directions, steps, batch, units] = *sizes;
            CELLS.map(|cell| RecurrentLayer {
                cell,
                directions,
                steps,
                batch,
                units,
            })
        });
        each.collect()
    }

    fn shapes(self) -> Vec<Vec<usize>> {
        let RecurrentLayer {
            cell,
            directions,
            steps,
            batch,
            units,
        } = self;
        let gates = cell.gates();
        let mut shapes = vec![
            vec![steps, batch, directions * gates * units],
            vec![directions, gates, units, units],
            vec![directions, gates, units],
        ];
        shapes.resize(3 + cell.states(), vec![directions, batch, units]);
        shapes
    }

    /// Returns the operands. Weights are small, so that states do not saturate.
    fn tensors(self) -> Vec<Tensor> {
        let small = |numbers: Vec<f32>| {
            numbers
                .iter()
                .map(|x| x * 3.0 / self.units as f32)
                .collect()
        };
        let shapes = self.shapes().into_iter().enumerate();
        let tensor = |(place, shape): (usize, Vec<usize>)| {
            let numbers = samples::tensor(&shape, place).to_f32();
            let numbers = if place == 1 { small(numbers) } else { numbers };
            Tensor::from_vec(shape, numbers).unwrap()
        };
        shapes.map(tensor).collect()
    }

    /// Builds the layer for any number of steps and rows. The weight and its biases are weights of the graph, or inputs.
    fn graph(self, has_weights: bool) -> Graph {
        let mut types: Vec<String> = self
            .shapes()
            .iter()
            .map(|shape| format!("f32{shape:?}"))
            .collect();
        let width = self.shapes()[0][2];
        types[0] = format!("f32[S, B, {width}]");
        for state in &mut types[3..] {
            *state = format!("f32[{}, B, {}]", self.directions, self.units);
        }
        let weights: Vec<String> = match has_weights {
            true => types.drain(1..3).collect(),
            false => Vec::new(),
        };
        let names: Vec<&str> = types.iter().map(String::as_str).collect();
        let mut graph = samples::graph(&names, |builder, x| {
            let weights = weights.iter().enumerate();
            let weights =
                weights.map(|(i, ty)| builder.weight(&i.to_string(), ty.parse().unwrap()));
            let mut operands = x.to_vec();
            operands.splice(1..1, weights);
            let operands = operands.into_iter().map(Into::into).collect();
            builder.apply_many(Recurrent { cell: self.cell }, operands)
        });
        graph.hints.insert("S".into(), self.steps as i64);
        graph.hints.insert("B".into(), self.batch as i64);
        graph
    }

    /// Builds the layer step by step from pointwise primitives and products.
    fn unrolled(self) -> Graph {
        let types: Vec<String> = self
            .shapes()
            .iter()
            .map(|shape| format!("f32{shape:?}"))
            .collect();
        let types: Vec<&str> = types.iter().map(String::as_str).collect();
        samples::graph(&types, |builder, x| self.steps(builder, x))
    }

    fn steps<'g>(self, builder: &'g Builder, x: &[Value<'g>]) -> Vec<Value<'g>> {
        let (gates, units) = (self.cell.gates() as i64, self.units as i64);
        let (mut outputs, mut memories) = (Vec::new(), Vec::new());
        for direction in 0..self.directions as i64 {
            let of_direction = |place: usize| x[place].select(0, direction);
            let mut states: Vec<Value> = (3..x.len()).map(of_direction).collect();
            let mut hidden = Vec::new();
            for step in 0..self.steps as i64 {
                let time = if direction == 0 {
                    step
                } else {
                    self.steps as i64 - 1 - step
                };
                let input =
                    x[0].select(0, time)
                        .narrow(1, direction * gates * units, gates * units);
                let gate = |gate: i64| {
                    let weight = of_direction(1).select(0, gate).transpose(0, 1);
                    let own = states[0].dot(weight) + of_direction(2).select(0, gate);
                    (input.narrow(1, gate * units, units), own)
                };
                states = self.next(&gate, &states);
                hidden.push(states[0]);
            }
            if direction == 1 {
                hidden.reverse();
            }
            outputs.push(builder.stack(&hidden, 0));
            memories.extend(states.get(1).copied());
        }
        let memory = (!memories.is_empty()).then(|| builder.stack(&memories, 0));
        [builder.concat(&outputs, -1)]
            .into_iter()
            .chain(memory)
            .collect()
    }

    fn next<'g>(
        self,
        of: &dyn Fn(i64) -> (Value<'g>, Value<'g>),
        states: &[Value<'g>],
    ) -> Vec<Value<'g>> {
        let both = |gate| {
            let (input, own) = of(gate);
            input + own
        };
        match self.cell {
            RecurrentCell::Lstm => {
                let memory = both(1).sigmoid() * states[1] + both(0).sigmoid() * both(2).tanh();
                vec![both(3).sigmoid() * memory.tanh(), memory]
            }
            RecurrentCell::Gru => {
                let (input, own) = of(2);
                let candidate = (input + both(0).sigmoid() * own).tanh();
                let update = both(1).sigmoid();
                vec![candidate * (update * -1.0 + 1.0) + update * states[0]]
            }
            RecurrentCell::Tanh => vec![both(0).tanh()],
            RecurrentCell::Relu => vec![both(0).relu()],
        }
    }
}

/// Returns the largest absolute difference.
fn difference(found: &[Tensor], expected: &[Tensor]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let pairs = found.iter().zip(expected);
    let each = pairs.flat_map(|(found, expected)| {
        assert_eq!(found.shape(), expected.shape());
        let numbers = found.to_f32().into_iter().zip(expected.to_f32());
        numbers.map(|(x, y)| (x - y).abs()).collect::<Vec<f32>>()
    });
    each.fold(0.0, |most, x| if x <= most { most } else { x })
}

#[test]
fn a_layer_agrees_with_its_unrolled_steps() {
    for layer in RecurrentLayer::all(&[[1, 4, 3, 5], [2, 3, 1, 4], [2, 1, 2, 1]]) {
        let (x, none) = (layer.tensors(), TensorMap::new());
        let found = interp::run(&layer.graph(false), &none, &x).unwrap();
        let expected = interp::run(&layer.unrolled(), &none, &x).unwrap();
        let difference = difference(&found, &expected);
        assert!(difference < 1e-6, "{layer:?}: {difference}");
    }
}

/// Returns the capabilities of the device, of a GPU, of a GPU with small workgroups, and of a rasteriser without textures.
fn device_families(device: &GpuDevice) -> [Capabilities; 4] {
    let own = device.capabilities().clone();
    let gpu = Capabilities {
        software: false,
        ..own.clone()
    };
    let small = Capabilities {
        max_invocations: 64,
        ..gpu.clone()
    };
    let plain = Capabilities {
        textures: Default::default(),
        ..own.clone()
    };
    [own, gpu, small, plain]
}

#[test]
fn devices_agree() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let sizes = [
        [1, 7, 1, 4],
        [2, 5, 3, 6],
        [1, 9, 9, 64],
        [2, 3, 5, 70],
        [1, 4, 2, 1],
        [2, 2, 4, 260],
    ];
    for layer in RecurrentLayer::all(&sizes) {
        let x = layer.tensors();
        let expected = interp::run(&layer.graph(false), &TensorMap::new(), &x).unwrap();
        for (number, capabilities) in device_families(&device).iter().enumerate() {
            for has_weights in [true, false] {
                let plan = plan::plan(&layer.graph(has_weights), capabilities).unwrap();
                let wrong = samples::untranslatable(&plan);
                assert!(wrong.is_empty(), "{}", wrong.join("\n"));
                let is_in_panels = |layout: &Layout| matches!(layout, Layout::Panels(_));
                let panels = plan.slots.iter().any(|slot| is_in_panels(&slot.layout));
                let lanes =
                    capabilities.simd_lanes().is_some() && capabilities.textures.bindings > 0;
                assert_eq!(panels, lanes && has_weights, "{layer:?} {number}");
                assert_eq!(plan.steps.len(), 1);
                let (inputs, weights) = operands(&x, has_weights);
                let program = Program::new(&device, plan, &weights, ProgramOptions::default());
                let found = program.unwrap().run(&inputs).unwrap();
                let difference = difference(&found, &expected);
                assert!(
                    difference < 2e-6,
                    "{layer:?} {number} {has_weights}: {difference}"
                );
            }
        }
    }
}

/// Splits operands into inputs and weights.
fn operands(x: &[Tensor], has_weights: bool) -> (Vec<Tensor>, TensorMap) {
    let mut inputs = x.to_vec();
    if !has_weights {
        return (inputs, TensorMap::new());
    }
    let weights = inputs.drain(1..3).enumerate();
    let weights = weights.map(|(i, tensor)| (i.to_string(), tensor)).collect();
    (inputs, weights)
}

/// A plan serves sequences of any length and any batch size.
#[test]
fn sizes_may_differ_from_those_of_the_example() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let [layer, ..] = RecurrentLayer::all(&[[2, 5, 3, 12]])[..] else {
        return;
    };
    let graph = layer.graph(true);
    let plan = plan::plan(&graph, device.capabilities()).unwrap();
    let (_, weights) = operands(&layer.tensors(), true);
    let program = Program::new(&device, plan, &weights, ProgramOptions::default()).unwrap();
    for (steps, batch) in [(1, 1), (2, 9), (300, 2)] {
        let other = RecurrentLayer {
            steps,
            batch,
            ..layer
        };
        let (inputs, _) = operands(&other.tensors(), true);
        let expected = interp::run(&graph, &weights, &inputs).unwrap();
        let difference = difference(&program.run(&inputs).unwrap(), &expected);
        assert!(difference < 2e-6, "{other:?}: {difference}");
    }
}

/// Tests the largest number of steps that importers give to one kernel: Mesa's rasteriser ends longer loops early.
#[test]
fn the_longest_sequence_of_a_kernel_is_complete() {
    let Some(device) = samples::device(FeatureLevel::Full) else {
        return;
    };
    let layer = RecurrentLayer {
        cell: RecurrentCell::Gru,
        directions: 1,
        steps: 60_000 / (3 * (12 + 2) + 2),
        batch: 1,
        units: 96,
    };
    let (graph, (inputs, weights)) = (layer.graph(true), operands(&layer.tensors(), true));
    let expected = interp::run(&graph, &weights, &inputs).unwrap();
    let plan = plan::plan(&graph, device.capabilities()).unwrap();
    let program = Program::new(&device, plan, &weights, ProgramOptions::default()).unwrap();
    let difference = difference(&program.run(&inputs).unwrap(), &expected);
    assert!(difference < 2e-6, "{difference}");
}

#[test]
fn mismatched_operands_are_errors() {
    let types = [
        "f32[S, B, 12]",
        "f32[1, 3, 4, 4]",
        "f32[1, 3, 4]",
        "f32[1, B, 4]",
    ];
    for (place, wrong) in [
        (0, "f32[B, 12]"),
        (1, "f32[3, 3, 4, 4]"),
        (2, "f64[1, 3, 4]"),
        (3, "f32[1, B, 5]"),
    ] {
        let mut types = types;
        types[place] = wrong;
        let made = samples::try_graph(&types, |builder, x| {
            let operands = x.iter().map(|value| (*value).into()).collect();
            builder.apply_many(
                Recurrent {
                    cell: RecurrentCell::Gru,
                },
                operands,
            )
        });
        assert!(made.is_none(), "{types:?}");
    }
}
