//! Detection of a file's kind by its content: models, tensors, and files that users mistake for either.

mod help;

use std::fmt;
use std::io::{Cursor, Read, Seek};
use std::path::Path;

use crate::error::{Error, Result};
use crate::files;

/// Number of bytes at the beginning of a file that are read to detect its kind.
const HEAD_BYTES: u64 = 4096;
/// Number of bytes of a pickle that are searched for class names.
const PICKLE_BYTES: u64 = 1 << 20;

/// The kind of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileKind {
    /// An archive of `torch.jit.save`.
    TorchScript,
    /// A JSON document, such as a graph of `onionskin import`.
    Json,
    /// A ZIP file of `torch.save` that holds tensors: by name, in a list, or a single one. Also the key of the weights if
    /// they are an entry of a dictionary, as in training checkpoints.
    StateDict(Option<String>),
    /// A ZIP file of `torch.save` that holds an object of this class: a pickled module.
    PickledModule(String),
    /// A file of `torch.save` from before PyTorch 1.6. Also the class of the object, if it holds one.
    LegacyPickle(Option<String>),
    /// An archive of `torch.export.save`.
    Exported,
    /// An ONNX protocol buffer.
    Onnx,
    /// Tensors by name, in the safetensors format.
    Safetensors,
    /// One NumPy array.
    Npy,
    /// NumPy arrays by name.
    Npz,
    /// A picture in the format of this name.
    Picture(&'static str),
    /// A Git LFS pointer file.
    LfsPointer,
    /// A web page, or an error message of a web server.
    WebPage,
    /// A file in another format; the noun phrase names it.
    Other(&'static str),
    /// A ZIP file whose central directory cannot be read.
    BrokenZip,
    /// Another ZIP file.
    Zip,
    /// Text.
    Text,
    /// No bytes at all.
    Empty,
    /// A folder.
    Folder,
    /// None of these.
    Unknown,
}

impl FileKind {
    /// Detects the kind of a file. Reads only its beginning and, for a ZIP file, the directory.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of(path: &Path) -> Result<FileKind> {
        let failed = |error| Error::io(path, error);
        if path.is_dir() {
            return Ok(FileKind::Folder);
        }
        let mut file = files::open(path).map_err(|error| help::unreadable(path, error))?;
        let mut head = Vec::new();
        (&mut file)
            .take(HEAD_BYTES)
            .read_to_end(&mut head)
            .map_err(failed)?;
        Ok(kind(&head, file))
    }

    /// Detects the kind of bytes in memory.
    pub fn of_bytes(bytes: &[u8]) -> FileKind {
        let end = bytes.len().min(HEAD_BYTES as usize);
        kind(bytes.get(..end).unwrap_or_default(), Cursor::new(bytes))
    }

    /// True for kinds that [`crate::Model::open`] reads.
    pub fn is_model(&self) -> bool {
        matches!(
            self,
            FileKind::TorchScript | FileKind::Exported | FileKind::Json
        )
    }

    /// True for kinds that [`crate::tensor_file::read`] reads.
    pub fn has_tensors(&self) -> bool {
        matches!(
            self,
            FileKind::Safetensors
                | FileKind::Npy
                | FileKind::Npz
                | FileKind::StateDict(_)
                | FileKind::TorchScript
        )
    }
}

fn kind(head: &[u8], file: impl Read + Seek) -> FileKind {
    if head.is_empty() {
        return FileKind::Empty;
    }
    if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
        return kind_of_zip(file);
    }
    if head.starts_with(b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19") {
        return FileKind::LegacyPickle(classes(head).into_iter().next());
    }
    let found = MAGIC.iter().find(|(at, magic, _)| {
        let bytes = head.get(*at..);
        bytes.is_some_and(|bytes| bytes.starts_with(magic))
    });
    match found {
        Some((_, _, kind)) => kind.clone(),
        None if is_safetensors(head) => FileKind::Safetensors,
        None if is_onnx(head) => FileKind::Onnx,
        None => kind_of_text(head),
    }
}

/// Offset of a format's magic bytes, the bytes, and the format.
const MAGIC: &[(usize, &[u8], FileKind)] = &[
    (0, b"\x93NUMPY", FileKind::Npy),
    (0, b"\x89PNG", FileKind::Picture("PNG")),
    (0, b"\xff\xd8\xff", FileKind::Picture("JPEG")),
    (0, b"BM", FileKind::Picture("BMP")),
    (0, b"GIF8", FileKind::Picture("GIF")),
    (8, b"WEBP", FileKind::Picture("WebP")),
    (0, b"version https://git-lfs", FileKind::LfsPointer),
    (0, b"\x1f\x8b", FileKind::Other("a gzip file")),
    (0, b"BZh", FileKind::Other("a bzip2 file")),
    (0, b"\xfd7zXZ", FileKind::Other("an xz file")),
    (0, b"\x28\xb5\x2f\xfd", FileKind::Other("a Zstandard file")),
    (0, b"7z\xbc\xaf", FileKind::Other("a 7z archive")),
    (257, b"ustar", FileKind::Other("a tar archive")),
    (0, b"GGUF", FileKind::Other("a GGUF model (llama.cpp)")),
    (
        0,
        b"\x89HDF",
        FileKind::Other("an HDF5 file (such as Keras writes)"),
    ),
    (
        4,
        b"ET12",
        FileKind::Other("a program of ExecuTorch (.pte)"),
    ),
    (4, b"TFL3", FileKind::Other("a TensorFlow Lite model")),
    (0, b"\x80\x02", FileKind::Other("a Python pickle")),
    (0, b"\x80\x03", FileKind::Other("a Python pickle")),
    (0, b"\x80\x04", FileKind::Other("a Python pickle")),
    (0, b"\x80\x05", FileKind::Other("a Python pickle")),
];

/// True for a safetensors header: eight bytes of a length, then the beginning of a JSON object.
fn is_safetensors(head: &[u8]) -> bool {
    let length = head.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let is_plausible = length.is_some_and(|length| (2..1 << 32).contains(&length));
    is_plausible && head.get(8) == Some(&b'{')
}

/// True for the first fields of an ONNX `ModelProto`: a small version, then a producer, a graph or an operator set.
fn is_onnx(head: &[u8]) -> bool {
    match head {
        [0x08, version, tag, ..] => *version < 64 && [0x12, 0x1a, 0x3a, 0x42].contains(tag),
        _ => false,
    }
}

fn kind_of_text(head: &[u8]) -> FileKind {
    let text = String::from_utf8_lossy(head);
    let start = text.trim_start().trim_start_matches('\u{feff}');
    let start = start.get(..64.min(start.len())).unwrap_or(start);
    let lower = start.to_lowercase();
    let is_page = ["<!doctype", "<html", "<?xml", "<error"]
        .iter()
        .any(|mark| lower.starts_with(mark));
    // The end of the head may cut off a character.
    let is_text = text
        .chars()
        .rev()
        .skip(1)
        .all(|c| c != '\u{fffd}' && (!c.is_control() || c.is_whitespace()));
    match (is_page, start.starts_with('{'), is_text) {
        (true, ..) => FileKind::WebPage,
        (_, true, true) => FileKind::Json,
        (_, _, true) => FileKind::Text,
        _ => FileKind::Unknown,
    }
}

fn kind_of_zip(file: impl Read + Seek) -> FileKind {
    let Ok(mut zip) = zip::ZipArchive::new(file) else {
        return FileKind::BrokenZip;
    };
    let names: Vec<String> = zip.file_names().map(str::to_string).collect();
    let has = |end: &str| names.iter().any(|name| name.ends_with(end));
    let is_exported = has("/models/model.json") || has("serialized_exported_program.json");
    if is_exported || has("archive_format") {
        return FileKind::Exported;
    }
    let Some(pickle) = names.iter().find(|name| is_pickle(name)) else {
        return match !names.is_empty() && names.iter().all(|name| name.ends_with(".npy")) {
            true => FileKind::Npz,
            false => FileKind::Zip,
        };
    };
    let top = pickle.strip_suffix("data.pkl").unwrap_or_default();
    let code = format!("{top}code/");
    if names.iter().any(|name| name.starts_with(&code)) {
        return FileKind::TorchScript;
    }
    let mut bytes = Vec::new();
    if let Ok(record) = zip.by_name(pickle) {
        // If the pickle cannot be read to its end, search the bytes that were read.
        let _ = record.take(PICKLE_BYTES).read_to_end(&mut bytes);
    }
    match classes(&bytes).into_iter().next() {
        Some(class) => FileKind::PickledModule(class),
        None => FileKind::StateDict(key_of_weights(&bytes)),
    }
}

/// The usual key of the weights in a checkpoint, if a pickle contains it. `BINUNICODE` is an `X`, a length of four bytes,
/// and text.
fn key_of_weights(pickle: &[u8]) -> Option<String> {
    const KEYS: &[&str] = &[
        "state_dict",
        "model_state_dict",
        "model",
        "params_ema",
        "params",
        "net",
    ];
    let has = |key: &&&str| {
        let length = u32::try_from(key.len()).unwrap_or(0).to_le_bytes();
        let text = [b"X", &length[..], key.as_bytes()].concat();
        pickle.windows(text.len()).any(|window| window == text)
    };
    KEYS.iter().find(has).map(ToString::to_string)
}

/// True for `data.pkl` at the top level or in one folder.
fn is_pickle(name: &str) -> bool {
    name == "data.pkl" || name.ends_with("/data.pkl") && name.matches('/').count() == 1
}

/// The classes of `torch.nn` or of the user that a pickle names, in order. `GLOBAL` is a `c`, a module, and a name; module
/// and name each end in a newline.
fn classes(pickle: &[u8]) -> Vec<String> {
    let mut lines = pickle.split(|byte| *byte == b'\n').peekable();
    let mut found = Vec::new();
    while let (Some(line), Some(next)) = (lines.next(), lines.peek()) {
        let start = line
            .iter()
            .rposition(|byte| !is_name(*byte))
            .map_or(0, |at| at + 1);
        let module = line.get(start..).unwrap_or_default().strip_prefix(b"c");
        let is_class = next.iter().all(|byte| is_name(*byte)) && !next.is_empty();
        if let Some(module) = module.filter(|module| is_class && is_of_modules(module)) {
            let text = String::from_utf8_lossy;
            found.push(format!("{}.{}", text(module), text(next)));
        }
    }
    found
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.'
}

/// True unless the Python module only has classes with which tensors, numbers and containers are pickled.
fn is_of_modules(module: &[u8]) -> bool {
    const PLAIN: &[&[u8]] = &[
        b"torch",
        b"torch._utils",
        b"torch._tensor",
        b"torch.storage",
        b"torch.serialization",
        b"torch.nn.parameter",
        b"torch.jit._pickle",
        b"collections",
        b"builtins",
        b"__builtin__",
        b"_codecs",
        b"copyreg",
        b"copy_reg",
        b"pathlib",
        b"datetime",
        b"argparse",
        b"numpy",
    ];
    let is_numpy = module.starts_with(b"numpy.");
    !module.is_empty() && !is_numpy && !PLAIN.contains(&module)
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileKind::TorchScript => "a TorchScript archive",
            FileKind::Json => "a JSON file",
            FileKind::StateDict(None) => "a file of tensors (torch.save, such as a state_dict)",
            FileKind::StateDict(Some(_)) => "a checkpoint of tensors (torch.save)",
            FileKind::PickledModule(class) => {
                return write!(f, "a pickled Python object (torch.save of {class})");
            }
            FileKind::LegacyPickle(None) => {
                "a file of torch.save in the format from before PyTorch 1.6"
            }
            FileKind::LegacyPickle(Some(class)) => {
                return write!(
                    f,
                    "a pickled Python object (torch.save of {class}, in the format from before PyTorch 1.6)"
                );
            }
            FileKind::Exported => "a program of torch.export (.pt2)",
            FileKind::Onnx => "an ONNX model",
            FileKind::Safetensors => "a safetensors file",
            FileKind::Npy => "a NumPy array (.npy)",
            FileKind::Npz => "a file of NumPy arrays (.npz)",
            FileKind::Picture(format) => return write!(f, "a {format} picture"),
            FileKind::LfsPointer => "a Git LFS pointer to the actual file",
            FileKind::WebPage => "a web page",
            FileKind::Other(what) => what,
            FileKind::BrokenZip => "a ZIP file that is cut short or damaged",
            FileKind::Zip => "a ZIP file of other things",
            FileKind::Text => "a text file",
            FileKind::Empty => "an empty file",
            FileKind::Folder => "a folder",
            FileKind::Unknown => "a file of an unknown format",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_tell_their_kind() {
        let mut tar = vec![b'x'; 300];
        tar[257..262].copy_from_slice(b"ustar");
        for (bytes, kind) in [
            (&b""[..], FileKind::Empty),
            (b"\x89PNG\r\n\x1a\n", FileKind::Picture("PNG")),
            (b"RIFF\x00\x00\x00\x00WEBPVP8 ", FileKind::Picture("WebP")),
            (b"\x02\x00\x00\x00\x00\x00\x00\x00{}", FileKind::Safetensors),
            (b"\x08\x0a\x12\x07pytorch", FileKind::Onnx),
            (
                b"GGUF\x03\x00\x00\x00",
                FileKind::Other("a GGUF model (llama.cpp)"),
            ),
            (&tar, FileKind::Other("a tar archive")),
            (b"\xef\xbb\xbf<html>", FileKind::WebPage),
            (b"  {\"format\": 1}", FileKind::Json),
            ("grüße\n".as_bytes(), FileKind::Text),
            (b"\x00\x01\x02\x03", FileKind::Unknown),
            (b"PK\x03\x04", FileKind::BrokenZip),
        ] {
            assert_eq!(FileKind::of_bytes(bytes), kind, "{bytes:?}");
        }
    }

    #[test]
    fn classes_and_keys_of_pickles_are_found() {
        let object = b"\x80\x02ccollections\nOrderedDict\nq\x00)R}cmy.models\nNet\nq\x01)\x81.";
        assert_eq!(classes(object), ["my.models.Net"]);
        let dict = b"\x80\x02}q\x00X\x05\x00\x00\x00modelq\x01}X\x0c\x00\x00\x00model.weight";
        assert_eq!(key_of_weights(dict).as_deref(), Some("model"));
        assert_eq!(
            key_of_weights(b"\x80\x02}X\x0c\x00\x00\x00model.weight"),
            None
        );
    }
}
