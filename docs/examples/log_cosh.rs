//! The operator that `docs/contributing.md` adds, a row of the unit tests.

use super::Composite;

pub(super) const ROWS: &[Composite] = &[Composite::elementwise(
    &["aten::log_cosh(Tensor self) -> Tensor"],
    |a| {
        let x = a.tensor("self").abs();
        // log((exp(x) + exp(-x)) / 2) without overflow
        Ok(x + (x * -2.0).exp().log1p() - std::f64::consts::LN_2)
    },
    &["f32[B, 3]", "f16[4]"],
)];

#[cfg(test)]
mod tests {
    use crate::interp;
    use crate::ir::{Graph, GraphModule, Weights};
    use crate::kernel::shader::validate;
    use crate::plan;
    use crate::tensor::Tensor;
    use crate::{gpu, pass};

    const TEXT: &str = "
graph forward(x: f32[4]) {
  y = aten.log_cosh x
  return y
}";

    fn graph() -> Graph {
        let module: GraphModule = TEXT.parse().unwrap();
        module.graphs[0].clone()
    }

    #[test]
    fn it_has_its_function_on_the_host() {
        let x = [0f32, 1.0, -3.0, 400.0];
        let inputs = [Tensor::from_vec([4], x.to_vec()).unwrap()];
        let found = interp::run(&graph(), &Weights::new(), &inputs).unwrap();
        let expected = x.map(|x| match f64::from(x) {
            x if x.abs() < 100.0 => x.cosh().ln(),
            x => x.abs() - std::f64::consts::LN_2,
        });
        for (found, expected) in found[0].to_f64().into_iter().zip(expected) {
            assert!(
                (found - expected).abs() < 1e-6 * (1.0 + expected),
                "{found} {expected}"
            );
        }
    }

    #[test]
    fn it_is_one_valid_kernel() {
        let capabilities = gpu::portable();
        let plan = plan::plan(&pass::optimize(&graph()).unwrap(), &capabilities).unwrap();
        assert_eq!(plan.kernels.len(), 1);
        validate(&plan.kernels[0].wgsl, &capabilities).unwrap();
    }

    #[test]
    fn the_document_shows_this_row() {
        let page = include_str!("../contributing.md");
        let source = include_str!("log_cosh.rs");
        let (_, row) = source.split_once("pub(super)").unwrap();
        let (row, _) = row.split_once("#[cfg(test)]").unwrap();
        assert!(page.contains(&format!("pub(super){}", row.trim_end())));
    }
}
