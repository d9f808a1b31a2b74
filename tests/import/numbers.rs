//! Numbers that come from tensors and sizes; `tests/fixtures/make_numbers.py` writes the cases.

use std::path::Path;

use onionskin::cases;
use onionskin::error::ErrorKind;
use onionskin::trace::torchscript::{ImportOptions, import};

use super::{all_pass, archive_of, tensor};

/// Elements of tensors as numbers, sizes computed by tensors, integers that wrap, and in-place writes to results: each for
/// two sets of sizes.
#[test]
fn numbers_of_tensors() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cases/numbers");
    let cases = cases::find(&folder).unwrap();
    assert!(15 < cases.len(), "{}", cases.len());
    all_pass(&cases);
}

/// Arithmetic on vectors of sizes leaves the sizes symbolic.
#[test]
fn sizes_computed_by_vectors_stay_symbolic() {
    let archive = archive_of(
        "\
class M(Module):
  __parameters__ = []
  __buffers__ = []
  def forward(self: __torch__.M,
    x: Tensor) -> Tensor:
    shape = torch.slice(torch._shape_as_tensor(x), 0, -2, 9223372036854775807)
    small = torch.min(torch.stack([torch.select(shape, 0, 0), torch.select(shape, 0, 1)]))
    half = torch.ceil(torch.div(torch.to(small, 6), 2))
    return torch.new_zeros(x, [int(half)], dtype=None, layout=None, device=None, pin_memory=False)
",
    );
    let module = import(
        &archive,
        &ImportOptions::forward(vec![tensor("f32[7, 10]")]),
    )
    .unwrap();
    let graph = module.graph("forward").unwrap();
    assert_eq!(graph.hints.len(), 2, "{module}");
    let text = module.to_string();
    assert!(text.contains("min("), "{text}");
}

/// A size that depends on values is refused, and the message says so.
#[test]
fn sizes_that_depend_on_values_are_refused() {
    for call in [
        "torch.arange(annotate(number, s))",
        "torch.new_zeros(x, [int(s)])",
    ] {
        let archive = archive_of(&format!(
            "\
class M(Module):
  __parameters__ = []
  __buffers__ = []
  def forward(self: __torch__.M,
    x: Tensor) -> Tensor:
    s = torch.sum(x)
    return {call}
"
        ));
        let error = import(&archive, &ImportOptions::forward(vec![tensor("i64[3]")])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let advice = error.advice().unwrap_or_default();
        let text = format!("{error} {advice}");
        assert!(text.contains("depends on"), "{text}");
    }
}
