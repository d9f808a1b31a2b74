//! The page of documents that holds `onionskin::nn` against the names of `torch.nn`. `BLESS=1` writes it.

use std::collections::BTreeSet;
use std::path::Path;

use super::recorded_modules::Cases;

/// Names of `torch.nn` that are something else here.
const ELSEWHERE: [(&str, &str); 3] = [
    ("Buffer", "`nn::Buffer`, written by `store`"),
    ("Module", "the trait `trace::Module`"),
    ("Parameter", "`nn::Parameter`"),
];

/// Names of `torch.nn` that are missing, with the reason.
const MISSING: [(&str, &str); 10] = [
    ("Container", "a base class without behaviour"),
    (
        "CrossMapLRN2d",
        "PyTorch's older form of `LocalResponseNorm`",
    ),
    ("DataParallel", "one device runs a model"),
    (
        "LinearCrossEntropyLoss",
        "a form of `Linear` and `CrossEntropyLoss` that saves memory in training",
    ),
    (
        "LinearCrossEntropyOptions",
        "options of `LinearCrossEntropyLoss`",
    ),
    ("RNNBase", "the base class of `LSTM`, `GRU` and `RNN`"),
    ("RNNCellBase", "the base class of cells"),
    (
        "SyncBatchNorm",
        "the batch is not spread over devices: `BatchNorm1d`, `BatchNorm2d` or `BatchNorm3d` loads its state",
    ),
    ("UninitializedBuffer", "constructors take all sizes"),
    ("UninitializedParameter", "constructors take all sizes"),
];

/// The page for the names of a PyTorch release.
fn page(names: &str, cases: &Cases) -> String {
    let here: BTreeSet<&str> = cases
        .labels()
        .filter_map(|label| label.split(' ').next())
        .collect();
    let (release, names) = names.split_once('\n').unwrap();
    let release = release.strip_prefix("torch ").unwrap();
    let rows = names
        .lines()
        .map(|name| format!("| `{name}` | {} |\n", entry(name, &here)));
    format!(
        "# Modules\n\n\
        `onionskin::nn` has the modules of `torch.nn` with its names, defaults and state-dict keys. The table holds it against the\n\
        names of PyTorch {release}. A test compares each module here with PyTorch's outputs and state dict, and writes this page.\n\n\
        Beside them, `WeightNorm` and `SpectralNorm` are `torch.nn.utils.parametrizations`, and with `old_names` the functions of\n\
        `torch.nn.utils` that came before.\n\n\
        | `torch.nn` | `onionskin::nn` |\n|---|---|\n{}",
        rows.collect::<String>()
    )
}

/// The table's entry for a name of `torch.nn`.
fn entry(name: &str, here: &BTreeSet<&str>) -> String {
    let find = |list: &[(&str, &str)]| {
        let found = list.iter().find(|(known, _)| *known == name);
        found.map(|(_, text)| text.to_string())
    };
    let missing = find(&MISSING).map(|reason| format!("– {reason}"));
    let lazy = name
        .strip_prefix("Lazy")
        .map(|_| "– constructors take all sizes".to_string());
    let is_here = here.contains(name);
    let others = [find(&ELSEWHERE), missing, lazy]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>();
    match (is_here, others.as_slice()) {
        (true, []) => format!("`{name}`"),
        (false, [text]) => text.clone(),
        (true, _) => panic!("{name} is here and listed as missing"),
        (false, _) => panic!("{name} is neither here nor listed with a reason"),
    }
}

#[test]
fn every_name_of_torch_nn_is_here_or_listed_with_a_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = std::fs::read_to_string(root.join("tests/fixtures/torch_nn.txt")).unwrap();
    for (name, _) in MISSING.iter().chain(&ELSEWHERE) {
        assert!(
            names.lines().any(|line| line == *name),
            "torch.nn has no {name}"
        );
    }
    let (page, file) = (page(&names, &Cases::read()), root.join("docs/modules.md"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(found == page, "docs/modules.md differs; BLESS=1 writes it");
}
