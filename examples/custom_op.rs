//! A custom operator in a traced network: a host function for every machine, and a shader for GPUs.
//!
//! ```text
//! cargo run --release --example custom_op
//! ```
//!
//! The operator is a "swish" with a slope for each channel, which PyTorch does not have. The network around it is traced
//! and runs on the best device; the program prints the difference between device and host.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use onionskin::error::Result;
use onionskin::shape::TensorType;
use onionskin::trace::{CustomOperator, Parameter, TracedTensor, trace_fn};
use onionskin::{CompileOptions, Device, Model, dim::Dim, tensor};

/// The shader: one invocation per element; `x0` is the input, `x1` the slopes, `y0` the result.
const SHADER: &str = "
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let index = id.x;
    let channels = x0_size(1u);
    if index >= x0_size(0u) * channels { return; }
    let x = x0[index];
    y0[index] = x / (1.0 + exp(-x1[index % channels] * x));
}
";

fn main() -> Result<()> {
    let swish = channel_swish();
    let slopes = Parameter::from(tensor::Tensor::from([0.5f32, 1.0, 2.0]));
    let network = |x: TracedTensor| {
        let hidden = swish.call(&[&(&x * 2.0), &slopes]).swap_remove(0);
        hidden + &x
    };
    let traced = trace_fn(ramp(4), network)?;
    println!("{}", traced.module);

    let device = Device::auto()?;
    let model = Model::from_module(traced.module);
    let session = model.compile(&device, &CompileOptions::default())?;
    for rows in [4, 1000] {
        let wanted = network(ramp(rows)).to_vec::<f32>()?;
        let found = session.run(&[ramp(rows).to_host()?])?[0].to_f32();
        let pairs = found.iter().zip(&wanted);
        let error = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!("{rows} rows on {device}: at most {error:.1e} from the host");
    }
    Ok(())
}

fn channel_swish() -> CustomOperator {
    let same_as_input = |types: &[TensorType]| Ok(types.iter().take(1).cloned().collect());
    let on_the_host = |operands: &[tensor::Tensor]| {
        let [x, slopes] = operands else {
            return Ok(Vec::new());
        };
        let slopes = slopes.to_f32();
        let numbers = x.to_f32().into_iter().zip(slopes.iter().cycle());
        let results = numbers.map(|(x, slope)| x / (1.0 + (-slope * x).exp()));
        Ok(vec![tensor::Tensor::from_vec(
            x.shape(),
            results.collect(),
        )?])
    };
    let workgroups = |types: &[TensorType]| {
        let elements = types.first().map(TensorType::numel).unwrap_or(Dim::ZERO);
        [elements.ceil_div(&Dim::from(64)), Dim::ONE, Dim::ONE]
    };
    CustomOperator::new("example.channel_swish", same_as_input, on_the_host)
        .with_shader(SHADER, workgroups)
}

/// Returns rows of three numbers that ascend from -2.
fn ramp(rows: usize) -> TracedTensor {
    let numbers = (0..rows * 3).map(|index| index as f32 * 0.01 - 2.0);
    TracedTensor::from_vec([rows, 3], numbers.collect())
}
