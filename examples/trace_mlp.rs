//! A small network written in Rust: traced, checked, printed, saved, and run on a device for other batch sizes.
//!
//! ```text
//! cargo run --release --example trace_mlp
//! ```

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use onionskin::error::{Error, Result};
use onionskin::nn::{LayerNorm, Linear};
use onionskin::prelude::*;
use onionskin::trace::check::CheckOptions;

/// Two layers with a normalisation between them.
#[derive(Module)]
struct Mlp {
    hidden: Linear,
    norm: LayerNorm,
    out: Linear,
}

impl Forward<&TracedTensor> for Mlp {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let hidden = self.norm.call(self.hidden.call(x)).gelu();
        self.out.call(hidden).softmax(-1)
    }
}

fn main() -> Result<()> {
    manual_seed(7);
    let mlp = Mlp {
        hidden: Linear::new(8, 32),
        norm: LayerNorm::new([32]),
        out: Linear::new(32, 4),
    };
    let (traced, report) = trace_checked(&mlp, example(2), &CheckOptions::default())?;
    println!("{}\n{}", traced.module, report.summary());

    let folder = std::path::Path::new("out/trace_mlp");
    std::fs::create_dir_all(folder).map_err(|error| Error::io(folder, error))?;
    let path = folder.join("mlp.json");
    traced.module.save(&path)?;
    let session = Model::open(&path)?.compile(&Device::auto()?, &CompileOptions::default())?;
    for rows in [1, 2, 100] {
        let found = session.run(&[example(rows).to_host()?])?[0].to_f32();
        let wanted = mlp.call(&example(rows)).to_vec::<f32>()?;
        let pairs = found.iter().zip(&wanted);
        let error = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let device = session.device();
        println!("{rows} rows on {device}: at most {error:.1e} from the untraced network");
    }
    println!("{} and its weights written", path.display());
    Ok(())
}

fn example(rows: usize) -> TracedTensor {
    let numbers = (0..rows * 8).map(|index| (index as f32 * 0.37).sin());
    TracedTensor::from_vec([rows, 8], numbers.collect())
}
