//! Archives, and the pickles and sources in them.

use onionskin::archive::{Container, state_dict};
use onionskin::file_kind::FileKind;
use onionskin::item::Item;
use onionskin::tensor_file::npy;
use onionskin::{Model, Tensor};
use zip::CompressionMethod::Stored;

use super::limits;
use super::records::{archive_of_source, pack, with_data};

/// Any bytes, opened as each kind of ZIP file.
pub fn archive(data: &[u8]) {
    let _ = FileKind::of_bytes(data).to_string();
    let _ = npy::parse_archive(data);
    if let Ok(container) = Container::from_bytes(data.to_vec(), &limits()) {
        let _ = state_dict::tensors(&container);
    }
    if let Ok(model) = Model::from_bytes_with(data.to_vec(), &limits()) {
        look_at(&model);
        let _ = model.import();
    }
}

/// A pickle, as the contents of a state dict and of a model.
pub fn pickle(data: &[u8]) {
    let mut records = with_data(data);
    if let Ok(container) = Container::from_bytes(pack(&records, Stored), &limits()) {
        let _ = state_dict::tensors(&container);
    }
    let source = b"class M(Module):\n  training : bool\n  def forward(self: __torch__.M,\n    x: Tensor) -> Tensor:\n    return x\n";
    records.push(("archive/code/__torch__.py".into(), source.to_vec()));
    if let Ok(model) = Model::from_bytes_with(pack(&records, Stored), &limits()) {
        look_at(&model);
        let _ = model.import();
        let _ = import_for_examples(&model);
    }
}

/// A TorchScript source, imported for small inputs.
pub fn source(data: &[u8]) {
    if let Ok(model) = model_of_source(data) {
        look_at(&model);
        let _ = import_for_examples(&model);
    }
}

/// A model whose root module is the first class of a source.
pub fn model_of_source(source: &[u8]) -> onionskin::Result<Model> {
    let text = String::from_utf8_lossy(source);
    let class = text
        .split_once("class ")
        .and_then(|(_, rest)| rest.split_once('('));
    let class = class.map_or("M", |(name, _)| name);
    Model::from_bytes_with(archive_of_source(class, source), &limits())
}

/// Arguments of `forward`, by the first of a few types for which the model can be imported.
pub fn import_for_examples(model: &Model) -> onionskin::Result<Vec<Item>> {
    let signature = model.signature("forward")?;
    let mut failed = None;
    for example in examples()? {
        let arguments = vec![Item::Tensor(example); signature.inputs().len()];
        match model.import_for(&arguments) {
            Ok(_) => return Ok(arguments),
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| onionskin::Error::input("no examples")))
}

fn examples() -> onionskin::Result<[Tensor; 3]> {
    let image: Vec<f32> = (0..3 * 6 * 6)
        .map(|index| index as f32 * 0.1 - 5.0)
        .collect();
    Ok([
        Tensor::from_vec([2, 2], vec![1.0f32, -2.0, 0.5, 3.0])?,
        Tensor::from_vec([2, 3], vec![0i64, 1, 2, 1, 0, 3])?,
        Tensor::from_vec([1, 3, 6, 6], image)?,
    ])
}

/// Reads what commands print of a model before an import.
fn look_at(model: &Model) {
    let program = model.program();
    let _ = (program.kind(), program.format_version());
    let _ = program.methods();
    let _ = program.inspect();
    for entry in model.entries() {
        let _ = model
            .signature(&entry)
            .map(|signature| signature.to_string());
    }
}
