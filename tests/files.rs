//! Files: whole or not there at all, in place where they are no regular files, and refused as inputs there.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod command;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use command::{Folder, onionskin};
use onionskin::ir::GraphModule;
use onionskin::{CompileOptions, Device, Model, Session, Tensor};

const TWO_LAYERS: &str = "tests/fixtures/archives/two_layers.pt";

/// A graph that adds a weight whose elements are all the same number, and another of the same number.
fn module(number: f32, length: usize) -> GraphModule {
    let text = format!(
        "weight a: f32[{length}]\nweight b: f32[{length}]\ngraph forward(x: f32[{length}]) {{\n  y = add x, $a\n  z = add y, $b\n  return z\n}}"
    );
    let mut module: GraphModule = text.parse().unwrap();
    for name in ["a", "b"] {
        let tensor = Tensor::from_vec([length], vec![number; length]).unwrap();
        module.weights.insert(name.into(), tensor);
    }
    module
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// The only number in the weights of a module; an error if they are of several modules.
fn number(module: &GraphModule) -> f32 {
    let mut numbers = module.weights.values().flat_map(Tensor::to_f32);
    let first = numbers.next().unwrap();
    assert!(numbers.all(|number| number.to_bits() == first.to_bits()));
    first
}

#[test]
fn saves_to_one_path_succeed_and_readers_find_one_whole_module() {
    let folder = Folder::new("writers");
    let path = folder.path("model.json");
    let modules = [1f32, 2.0, 3.0].map(|number| module(number, 5000));
    modules[0].save(&path).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers = modules
            .each_ref()
            .map(|module| scope.spawn(|| (0..60).for_each(|_| module.save(&path).unwrap())));
        let readers = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut reads = 0;
                while !is_done.load(Ordering::Relaxed) || reads == 0 {
                    let read = number(&GraphModule::load(&path).unwrap());
                    assert!([1.0, 2.0, 3.0].contains(&read), "{read}");
                    reads += 1;
                }
            })
        });
        let written = writers.map(|writer| writer.join());
        is_done.store(true, Ordering::Relaxed);
        let read = readers.map(|reader| reader.join());
        assert!(written.iter().chain(&read).all(Result::is_ok));
    });
    // Nothing but the document and its weights is left.
    let (_, weights) = GraphModule::load_with_file(&path).unwrap();
    let weights = weights
        .unwrap()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_string();
    assert_eq!(names(&folder.path("")), [weights, "model.json".to_string()]);
}

#[test]
fn weights_are_named_by_their_content_and_removed_when_nothing_names_them() {
    let folder = Folder::new("content");
    let path = folder.path("model.json");
    let saved = |number: f32, path: &Path| {
        module(number, 4).save(path).unwrap();
        GraphModule::load_with_file(path).unwrap().1.unwrap()
    };
    let first = saved(1.0, &path);
    let name = first.file_name().unwrap().to_str().unwrap();
    assert!(
        name.starts_with("model-") && name.ends_with(".safetensors"),
        "{name}"
    );
    assert_eq!(saved(1.0, &path), first);
    // A copy of the document keeps its weights; without it they are removed.
    let copy = folder.copy(&path, "copy.json");
    let second = saved(2.0, &path);
    assert!(first.exists() && second.exists() && first != second);
    assert_eq!(number(&GraphModule::load(&copy).unwrap()), 1.0);
    let third = saved(3.0, &path);
    assert!(!second.exists() && third.exists() && first.exists());
    // A file of another program stays, whatever its name.
    std::fs::write(&third, b"\x02\0\0\0\0\0\0\0{}").unwrap();
    saved(4.0, &path);
    assert!(third.exists());
}

#[test]
fn documents_that_name_a_plain_file_are_read_as_before() {
    let folder = Folder::new("plain");
    let path = folder.path("model.json");
    let module = module(7.0, 4);
    module.save(&path).unwrap();
    let (_, weights) = GraphModule::load_with_file(&path).unwrap();
    std::fs::rename(weights.unwrap(), folder.path("weights.safetensors")).unwrap();
    std::fs::write(&path, module.to_json("weights.safetensors").unwrap()).unwrap();
    assert_eq!(number(&GraphModule::load(&path).unwrap()), 7.0);
    // A file of that name may be used elsewhere.
    module.save(&path).unwrap();
    assert!(folder.path("weights.safetensors").exists());
}

/// Ways in which another process changes a file that is open: cuts it short, or writes to it in place.
const CHANGES: [fn(&Path); 2] = [
    |path| {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_len(100).unwrap();
    },
    |path| {
        let bytes = vec![0x55; std::fs::metadata(path).unwrap().len() as usize];
        std::fs::write(path, bytes).unwrap();
    },
];

/// Calls a test with each kind of model file, a device and a change: the model's path, the file with its weights, and all else.
fn for_each_change(test: impl Fn(&Path, &Device, &dyn Fn())) {
    let folder = Folder::new("changes");
    let devices = [Some(Device::Host), gpu()];
    for device in devices.iter().flatten() {
        for change in CHANGES {
            let archive = folder.copy(TWO_LAYERS, "model.pt");
            let archive = Path::new(&archive);
            test(archive, device, &|| changed(archive, change));
            let graph = folder.path("model.json");
            Model::open(folder.copy(TWO_LAYERS, "other.pt"))
                .unwrap()
                .import()
                .unwrap()
                .save(&graph)
                .unwrap();
            let (_, weights) = GraphModule::load_with_file(&graph).unwrap();
            test(&graph, device, &|| {
                changed(weights.as_ref().unwrap(), change)
            });
        }
    }
}

fn gpu() -> Option<Device> {
    let found = Device::auto().ok();
    found.filter(|device| matches!(device, Device::Gpu(_)))
}

fn changed(path: &Path, change: fn(&Path)) {
    // Clocks of file systems are coarse.
    std::thread::sleep(std::time::Duration::from_millis(30));
    change(path);
}

fn input(rows: usize) -> Tensor {
    let numbers = (0..rows * 4).map(|number| number as f32 / 8.0);
    Tensor::from_vec([rows, 4], numbers.collect()).unwrap()
}

fn compiled(model: &Model, device: &Device) -> onionskin::Result<Session> {
    model.compile(device, &CompileOptions::default())
}

/// The output for rows, from the archive as it is in the repository.
fn expected(rows: usize, device: &Device) -> Vec<f32> {
    let model = Model::open(Path::new(env!("CARGO_MANIFEST_DIR")).join(TWO_LAYERS)).unwrap();
    compiled(&model, device)
        .unwrap()
        .run(&[input(rows)])
        .unwrap()[0]
        .to_f32()
}

fn is_told(error: &onionskin::Error) -> bool {
    error.message().contains("changed while it was open")
}

#[test]
fn a_file_that_changes_before_a_model_is_compiled_is_an_error() {
    for_each_change(|path, device, change| {
        let model = Model::open(path).unwrap();
        change();
        // Compilation may be left to the first call.
        let run = compiled(&model, device).and_then(|session| session.run(&[input(2)]));
        assert!(is_told(&run.unwrap_err()));
        assert!(is_told(&model.import().unwrap_err()));
    });
}

#[test]
fn a_file_that_changes_later_gives_right_numbers_or_an_error() {
    for_each_change(|path, device, change| {
        let session = compiled(&Model::open(path).unwrap(), device).unwrap();
        assert_eq!(
            session.run(&[input(2)]).unwrap()[0].to_f32(),
            expected(2, device)
        );
        change();
        assert_eq!(
            session.run(&[input(2)]).unwrap()[0].to_f32(),
            expected(2, device)
        );
        // Other sizes may need the weights again.
        match session.run(&[input(7)]) {
            Ok(outputs) => assert_eq!(outputs[0].to_f32(), expected(7, device)),
            Err(error) => assert!(is_told(&error), "{error}"),
        }
        assert_eq!(
            session.run(&[input(2)]).unwrap()[0].to_f32(),
            expected(2, device)
        );
    });
}

#[test]
fn a_file_that_is_replaced_by_renaming_changes_nothing() {
    let folder = Folder::new("replaced");
    let model = Model::open(folder.copy(TWO_LAYERS, "model.pt")).unwrap();
    std::fs::write(folder.path("new.pt"), "another file").unwrap();
    std::fs::rename(folder.path("new.pt"), folder.path("model.pt")).unwrap();
    let session = compiled(&model, &Device::Host).unwrap();
    assert_eq!(
        session.run(&[input(2)]).unwrap()[0].to_f32(),
        expected(2, &Device::Host)
    );
}

#[test]
fn mapped_models_give_the_numbers_of_others() {
    let folder = Folder::new("mapped");
    let model = folder.copy(TWO_LAYERS, "model.pt");
    let run = [
        "run",
        &model,
        "--shape",
        "f32[2, 4]",
        "--device",
        "cpu",
        "--json",
    ];
    let (code, text, error) = onionskin(&run);
    assert_eq!(code, 0, "{error}");
    let (code, mapped, error) = onionskin(&[&run[..], &["--mmap"]].concat());
    assert_eq!(code, 0, "{error}");
    let outputs = |text: &str| {
        let json: serde_json::Value = serde_json::from_str(text).unwrap();
        json["outputs"].clone()
    };
    assert_eq!(outputs(&text), outputs(&mapped));
}

#[cfg(unix)]
mod unix {
    use std::fs::File;
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    fn fifo(folder: &Folder, name: &str) -> String {
        let path = folder.file(name);
        assert!(
            Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        path
    }

    fn started(arguments: &[&str], output: impl Into<Stdio>) -> Child {
        Command::new(env!("CARGO_BIN_EXE_onionskin"))
            .args(arguments)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// The exit code and standard error of a command that ends within a time.
    fn ended(mut child: Child) -> (i32, String) {
        let start = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if start.elapsed() > Duration::from_secs(60) {
                child.kill().unwrap();
                panic!("the command does not end");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let output = child.wait_with_output().unwrap();
        let code = output.status.code().expect("no signal ends the command");
        (code, String::from_utf8(output.stderr).unwrap())
    }

    fn refused(arguments: &[&str], path: &str, found: &str) {
        let (code, error) = ended(started(arguments, Stdio::null()));
        assert!(code == 2 || code == 3, "{arguments:?}: {error}");
        assert!(
            error.contains(path) && error.contains(found),
            "{arguments:?}: {error}"
        );
    }

    #[test]
    fn inputs_that_are_no_regular_files_are_refused_at_once() {
        let folder = Folder::new("inputs");
        let pipe = fifo(&folder, "pipe");
        let picture = fifo(&folder, "picture.png");
        let run = ["run", TWO_LAYERS, "--device", "cpu"];
        let with = |more: &[&str]| -> Vec<String> {
            run.iter()
                .chain(more)
                .map(|text| text.to_string())
                .collect()
        };
        let labels = ["--random", "--top-k", "1", "--labels", &pipe];
        let commands = [
            (vec!["run".into(), pipe.clone()], &pipe),
            (vec!["show".into(), pipe.clone()], &pipe),
            (with(&["-i", &pipe]), &pipe),
            (with(&["-i", &format!("x={pipe}")]), &pipe),
            (with(&["--image", &picture]), &picture),
            (with(&labels), &pipe),
            (with(&["--random", "--packed", &pipe]), &pipe),
            (with(&["--random", "--tuned", &pipe]), &pipe),
            (
                vec![
                    "view".into(),
                    TWO_LAYERS.into(),
                    "--overlay".into(),
                    pipe.clone(),
                ],
                &pipe,
            ),
            (vec!["test".into(), pipe.clone()], &pipe),
        ];
        for (arguments, path) in commands {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            refused(&arguments, path, "expected a regular file, found a FIFO");
        }
        refused(&["run", "/dev/zero"], "/dev/zero", "found a device");
        refused(
            &["run", TWO_LAYERS, "-i", "/dev/zero"],
            "/dev/zero",
            "found a device",
        );
    }

    #[test]
    fn weights_that_are_a_fifo_are_refused_at_once() {
        let folder = Folder::new("weights-fifo");
        let pipe = fifo(&folder, "fifo.safetensors");
        let document = folder.file("model.json");
        let text = module(1.0, 4).to_json("fifo.safetensors").unwrap();
        std::fs::write(&document, text).unwrap();
        refused(&["run", &document, "--random"], &pipe, "found a FIFO");
    }

    #[test]
    fn special_outputs_are_written_in_place() {
        let folder = Folder::new("in-place");
        let run = [
            "run",
            TWO_LAYERS,
            "--device",
            "cpu",
            "--shape",
            "f32[2, 4]",
            "-o",
        ];
        let to = |path: &str| started(&[&run[..], &[path]].concat(), Stdio::null());
        let (code, error) = ended(to("/dev/null"));
        assert_eq!(code, 0, "{error}");
        assert!(!std::fs::metadata("/dev/null").unwrap().is_file());

        let pipe = fifo(&folder, "outputs.npz");
        let child = to(&pipe);
        let mut bytes = Vec::new();
        File::open(&pipe).unwrap().read_to_end(&mut bytes).unwrap();
        assert_eq!(ended(child).0, 0);
        assert!(bytes.starts_with(b"PK"));
        assert!(!std::fs::metadata(&pipe).unwrap().is_file());
    }

    #[test]
    fn a_graph_goes_to_standard_output_alone() {
        let folder = Folder::new("standard-output");
        let model = folder.copy(TWO_LAYERS, "model.pt");
        let (code, text, error) = onionskin(&["import", &model, "-o", "/dev/stdout"]);
        assert_eq!(code, 0, "{error}");
        GraphModule::from_json(text.as_bytes()).unwrap();
        assert!(
            error.contains("gets the graph without the weights"),
            "{error}"
        );
        // Standard output may be a file.
        let file = folder.path("redirected");
        let arguments = ["import", &model, "-o", "/dev/stdout"];
        let child = started(&arguments, File::create(&file).unwrap());
        assert_eq!(ended(child).0, 0);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        assert_eq!(names(&folder.path("")), ["model.pt", "redirected"]);
    }

    /// Arguments of commands that print documents.
    const PRINTING: &[&[&str]] = &[
        &["--help"],
        &["--version"],
        &["ops"],
        &["devices"],
        &["explain"],
        &["explain", "E0502"],
        &["show", TWO_LAYERS],
        &["show", TWO_LAYERS, "--graph"],
        &["show", TWO_LAYERS, "--json"],
        &["run", TWO_LAYERS, "--shape", "f32[2, 4]", "--device", "cpu"],
        &[
            "run",
            TWO_LAYERS,
            "--shape",
            "f32[2, 4]",
            "--device",
            "cpu",
            "--json",
        ],
        &["check", TWO_LAYERS, "--device", "cpu"],
        &["verify", TWO_LAYERS, "--device", "cpu"],
    ];

    #[cfg(target_os = "linux")]
    #[test]
    fn an_error_of_standard_output_is_an_error() {
        for arguments in PRINTING {
            let full = File::options().write(true).open("/dev/full").unwrap();
            let (code, error) = ended(started(arguments, full));
            assert_eq!(code, 3, "{arguments:?}: {error}");
            assert!(
                error.contains("standard output: No space left"),
                "{arguments:?}: {error}"
            );
        }
    }

    #[test]
    fn a_closed_pipe_is_quiet() {
        for arguments in PRINTING {
            let mut child = started(arguments, Stdio::piped());
            let mut first = String::new();
            let mut output = BufReader::new(child.stdout.take().unwrap());
            output.read_line(&mut first).unwrap();
            drop(output);
            let (code, error) = ended(child);
            assert_eq!(code, 0, "{arguments:?}: {error}");
            assert!(!error.contains("error"), "{arguments:?}: {error}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_error_of_standard_error_changes_nothing() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let status = Command::new(env!("CARGO_BIN_EXE_onionskin"))
            .args(["run", "missing.pt"])
            .stderr(full)
            .status();
        assert_eq!(status.unwrap().code(), Some(3));
    }

    #[test]
    fn temporaries_of_killed_processes_are_removed_by_the_next_write() {
        let folder = Folder::new("killed");
        let left = folder.path(".onionskin-1-0.tmp");
        let foreign = folder.path(".onionskin.tmp");
        for path in [&left, &foreign] {
            std::fs::write(path, "x").unwrap();
        }
        module(1.0, 4).save(folder.path("model.json")).unwrap();
        assert!(!left.exists() && foreign.exists());
    }
}
