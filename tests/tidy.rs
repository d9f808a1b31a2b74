//! Checks rules of the source that a compiler does not check: order of modules, forbidden words, lengths of files.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and print the checks that they skip"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Modules in reading order, in layers: a module uses only modules in the layers above its own, and those in front of it in
/// its own layer.
const ORDER: &[&[&str]] = &[
    &[
        "error",
        "interrupt",
        "files",
        "units",
        "wildcard",
        "budget",
        "dim",
        "dtype",
        "shape",
        "scalar",
        "symbols",
        "geometry",
        "tensor",
        "storage",
        "digest",
        "random",
        "archive",
        "file_kind",
        "tensor_file",
    ],
    &["kernel"],
    &["op"],
    &["ir"],
    &["aten"],
    &["interp"],
    &["item", "compare"],
    &["pass"],
    &["grad"],
    &["plan"],
    &["view"],
    &["trace"],
    &["cases"],
    &["gpu"],
    &["model"],
    &["train"],
    &["prelude"],
    &["doctor"],
    &["cli"],
    &["main"],
    &["documents"],
];

/// Layers that use only some of the modules above them.
const RESTRICTED_LAYERS: &[(&str, &[&str])] = &[(
    "gpu",
    &[
        "error",
        "interrupt",
        "files",
        "dim",
        "dtype",
        "shape",
        "scalar",
        "symbols",
        "tensor",
        "storage",
        "digest",
        "kernel",
        "gpu",
    ],
)];

/// Words that mean unfinished work.
const FORBIDDEN: &[&str] = &["todo!", "dbg!", "unimplemented!", "FIXME", "XXX"];

/// Calls that create an object on a device, and the files that may make them, because they count them: the steady state
/// creates none.
const COUNTED_CALLS: &[(&str, &[&str])] = &[
    (
        ".create_buffer(",
        &["src/gpu/statistics.rs", "src/gpu/trusted/raw.rs"],
    ),
    (
        "AliasedBuffer::new(",
        &["src/gpu/memory.rs", "src/gpu/trusted/aliased.rs"],
    ),
    (
        "MappedTexture::new(",
        &["src/gpu/memory.rs", "src/gpu/trusted/aliased.rs"],
    ),
    (".create_texture(", &["src/gpu/memory.rs"]),
    // Objects of the pipeline warm-up are released before a program is returned.
    (
        ".create_bind_group(",
        &["src/gpu/run_context.rs", "src/gpu/warm_up.rs"],
    ),
    (".create_compute_pipeline(", &["src/gpu/pipeline.rs"]),
];

/// Calls that open, read, write or rename a file. `src/files` makes them: it refuses inputs that are no regular files, and writes
/// outputs whole.
const FILE_CALLS: &[&str] = &[
    "File::open(",
    "File::create(",
    "fs::read(",
    "fs::read_to_string(",
    "fs::write(",
    "fs::rename(",
];

/// Files that make such calls for files that the system provides, or that they alone know.
const FILE_CALLERS: &[&str] = &[
    "src/cli/bench/measurements.rs",
    "src/cli/show/kernels.rs",
    "src/gpu/trusted/executable_pages.rs",
    "src/storage.rs",
    "src/trace/libtorch/function.rs",
];

/// Longer files are listed, not rejected.
const LONG_FILE: usize = 500;

struct SourceFile {
    path: PathBuf,
    /// Top-level module of the file.
    module: String,
    text: String,
}

fn sources() -> Vec<SourceFile> {
    files("src", &["rs"])
}

/// Returns the files in a folder of the project that have one of the extensions.
fn files(folder: &str, extensions: &[&str]) -> Vec<SourceFile> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut folders = vec![root.clone()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let extension = path.extension().unwrap_or_default();
            if path.is_dir() {
                folders.push(path);
            } else if extensions.iter().any(|wanted| extension == *wanted) {
                let inside = path.strip_prefix(&root).expect("a path in the folder");
                let first = inside.components().next().expect("a name");
                let module = Path::new(first.as_os_str()).with_extension("");
                files.push(SourceFile {
                    module: module.to_string_lossy().into_owned(),
                    text: std::fs::read_to_string(&path).expect("a text"),
                    path,
                });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// Returns the lines of code before the unit tests, which may use any module, without comments.
fn code(source: &SourceFile) -> impl Iterator<Item = (usize, &str)> {
    let lines = source.text.lines().enumerate();
    let lines = lines.take_while(|(_, line)| !line.starts_with("#[cfg(test)]"));
    let code = lines.map(|(index, line)| (index + 1, line.split("//").next().unwrap_or_default()));
    code.filter(|(_, line)| !line.is_empty())
}

/// Returns the top-level modules that a line names by `crate::`.
fn used(line: &str) -> Vec<&str> {
    let mut parts = line.split("crate::");
    parts.next();
    parts
        .flat_map(|part| match part.strip_prefix('{') {
            Some(list) => list.split(',').collect(),
            None => vec![part],
        })
        .filter_map(|part| {
            let part = part.trim();
            let end = part.find(|c: char| !c.is_alphanumeric() && c != '_');
            let word = part.get(..end.unwrap_or(part.len()))?;
            word.starts_with(|c: char| c.is_lowercase()).then_some(word)
        })
        .collect()
}

#[test]
fn modules_use_only_modules_above_them() {
    let place: BTreeMap<&str, usize> = ORDER
        .iter()
        .flat_map(|layer| layer.iter())
        .enumerate()
        .map(|(index, module)| (*module, index))
        .collect();
    let mut faults = Vec::new();
    for source in sources() {
        let from = source.module.as_str();
        if !place.contains_key(from) && from != "lib" {
            faults.push(format!(
                "{from} stands in no layer of ORDER in tests/tidy.rs"
            ));
        }
        let narrow = RESTRICTED_LAYERS.iter().find(|(module, _)| *module == from);
        for (line, text) in code(&source) {
            for to in used(text).into_iter().filter(|to| place.contains_key(to)) {
                let is_above = to == from || place.get(to) < place.get(from);
                let is_allowed = narrow.is_none_or(|(_, allowed)| allowed.contains(&to));
                if !(is_above && is_allowed) {
                    let path = source.path.display();
                    faults.push(format!("{path}:{line}: {from} uses {to}"));
                }
            }
        }
    }
    faults.dedup();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn device_objects_are_created_in_counted_files() {
    let mut faults = Vec::new();
    for source in sources() {
        for (line, text) in code(&source) {
            let creates = COUNTED_CALLS.iter().find(|(call, _)| text.contains(call));
            let belongs = |files: &[&str]| files.iter().any(|file| source.path.ends_with(file));
            if let Some((call, files)) = creates.filter(|(_, files)| !belongs(files)) {
                let path = source.path.display();
                faults.push(format!("{path}:{line}: {call}…) belongs into {files:?}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn files_are_read_and_written_in_one_place() {
    let mut faults = Vec::new();
    for source in sources() {
        let is_caller = FILE_CALLERS.iter().any(|file| source.path.ends_with(file));
        if is_caller || source.module == "files" {
            continue;
        }
        for (line, text) in code(&source) {
            let called = FILE_CALLS.iter().find(|call| text.contains(*call));
            let is_ours = text.contains("PackedFile::") || text.contains(" files::");
            if let Some(call) = called.filter(|_| !is_ours) {
                faults.push(format!(
                    "{}:{line}: {call}…) belongs into src/files",
                    source.path.display()
                ));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_forbidden_words() {
    let mut faults = Vec::new();
    for source in sources() {
        for (index, line) in source.text.lines().enumerate() {
            if let Some(word) = FORBIDDEN.iter().find(|word| line.contains(*word)) {
                faults.push(format!("{}:{}: {word}", source.path.display(), index + 1));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn list_long_files() {
    for source in sources() {
        let length = source.text.lines().count();
        if LONG_FILE < length {
            println!("{}: {length} lines", source.path.display());
        }
    }
}

/// First words of a sentence that talk about a thing before they name it.
const VAGUE: &[&str] = &["What ", "The same ", "Which ", "Those "];

/// Comments name their subject first.
#[test]
fn comments_begin_with_their_subject() {
    let mut found = Vec::new();
    let folders = [
        "src",
        "derive/src",
        "shaders",
        "tests",
        "benches",
        "examples",
    ];
    let commented = folders.map(|folder| files(folder, &["rs", "wgsl"]));
    for source in commented.iter().flatten() {
        for (index, line) in source.text.lines().enumerate() {
            let comment = line.trim_start().strip_prefix("//");
            let text = comment.map(|text| text.trim_start_matches(['/', '!', ' ']));
            if text.is_some_and(|text| VAGUE.iter().any(|start| text.starts_with(start))) {
                found.push(format!("{}:{}: {line}", source.path.display(), index + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Invented terms that the field has a word for, each with that word: no file, module, type or function has one in its name.
const INVENTED: &[(&str, &str)] = &[
    ("alike", "kernel deduplication"),
    ("depot", "weight cache"),
    ("eights", "vec8"),
    ("enough", "what the threshold is of"),
    ("former", "shape-generic kernel"),
    ("fours", "vec4"),
    ("held", "register tile"),
    ("kept", "what it is stored or materialised for"),
    ("pieces", "ceil_div or chunks"),
    ("quads", "vec4"),
    ("reach", "feature level"),
    ("rehearsal", "warm-up"),
    ("sheet", "plan builder"),
    ("shelf", "suballocator"),
    ("singles", "scalars"),
    ("turns", "epilogue loop"),
];

/// Everyday words that say too little as the whole name of a module or a type.
const TOO_SHORT: &[&str] = &[
    "Cut",
    "Form",
    "Join",
    "Lane",
    "Places",
    "Selection",
    "Texels",
    "Tied",
    "Walk",
    "Way",
    "Words",
];

const KEYWORDS_OF_ITEMS: &[&str] = &["mod", "struct", "enum", "trait", "type", "fn"];

/// Returns the keyword and the name of the item that a line of code defines.
fn defined(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    let keyword = words.find(|word| KEYWORDS_OF_ITEMS.contains(word))?;
    let is_code = line.trim_start().starts_with(|c: char| c.is_alphabetic());
    let name = words.next().filter(|name| !name.is_empty())?;
    is_code.then_some((keyword, name))
}

/// Splits a name in snake case or camel case into lower-case words.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c.is_uppercase() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c != '_') {
            word.extend(c.to_lowercase());
        }
    }
    words
}

/// Returns the fault of a name, if it has one.
fn fault_of(keyword: &str, name: &str) -> Option<String> {
    let invented = INVENTED
        .iter()
        .find(|(word, _)| words(name).iter().any(|own| own == word));
    if let Some((word, usual)) = invented {
        return Some(format!("{keyword} {name}: for {word} write {usual}"));
    }
    let is_short = TOO_SHORT.iter().any(|word| word.eq_ignore_ascii_case(name));
    (is_short && keyword != "fn").then(|| format!("{keyword} {name}: say of what"))
}

#[test]
fn names_are_terms_of_the_field() {
    let mut faults = Vec::new();
    for source in sources() {
        let path = source.path.display();
        let stem = source.path.file_stem().expect("a name").to_string_lossy();
        let file = fault_of("file", &stem).map(|fault| format!("{path}: {fault}"));
        faults.extend(file);
        for (line, text) in code(&source) {
            let fault = defined(text).and_then(|(keyword, name)| fault_of(keyword, name));
            faults.extend(fault.map(|fault| format!("{path}:{line}: {fault}")));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Files that stand in for another one on some platforms or with some features: they define its types again.
const STAND_INS: &[&str] = &["src/gpu/trusted/unaliased.rs", "src/cli/libtorch.rs"];

/// Modules of `torch.nn`, whose names are given, that are named like a primitive.
const NAMES_OF_PYTORCH: &[&str] = &["Unfold"];

#[test]
fn names_of_public_types_are_unique() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources() {
        if STAND_INS.iter().any(|file| source.path.ends_with(file)) {
            continue;
        }
        for (line, text) in code(&source).filter(|(_, text)| text.starts_with("pub")) {
            let Some((keyword, name)) = defined(text) else {
                continue;
            };
            if ["struct", "enum", "trait", "type"].contains(&keyword) {
                let place = format!("{}:{line}", source.path.display());
                places.entry(name.to_string()).or_default().push(place);
            }
        }
    }
    let faults: Vec<String> = places
        .iter()
        .filter(|(name, places)| {
            let allowed = 1 + usize::from(NAMES_OF_PYTORCH.contains(&name.as_str()));
            places.len() > allowed
        })
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
