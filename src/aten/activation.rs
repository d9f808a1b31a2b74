//! Activations of `torch.nn.functional`.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use super::Composite;

pub(super) const ROWS: &[Composite] = &[
    Composite::one(
        &["aten::relu(Tensor self) -> Tensor"],
        |a| Ok(a.tensor("self").relu()),
        &["f32[4, 8]", "i64[5]"],
    ),
    Composite::one(
        &["aten::gelu(Tensor self, *, str approximate='none') -> Tensor"],
        |a| {
            let x = a.tensor("self");
            match a.str("approximate").as_str() {
                "none" => Ok(x * 0.5 * (1.0 + (x * FRAC_1_SQRT_2).erf())),
                "tanh" => {
                    let inner = (2.0 / PI).sqrt() * (x + 0.044715 * (x * x * x));
                    Ok(0.5 * x * (1.0 + inner.tanh()))
                }
                other => a.reject(format!("approximate = {other:?}")),
            }
        },
        &["f32[4, 8]", "f32[4, 8], approximate='tanh'", "f16[B, 3]"],
    ),
];
