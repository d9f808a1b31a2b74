//! Runs the program as users do, and creates files for it.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test uses its part, and fails by panicking"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use onionskin::tensor::Tensor;
use onionskin::tensor_file;

/// Runs the program. Returns exit code, standard output and standard error.
pub fn onionskin(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_onionskin"))
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (code, text(output.stdout), text(output.stderr))
}

/// A folder of a test that is removed when this is dropped.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        // Tests of one process may give one name.
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("onionskin-{}-{number}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the path of a file as text.
    pub fn file(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_string()
    }

    /// Writes tensors to a file and returns its path.
    pub fn tensors(&self, name: &str, tensors: &[(&str, Tensor)]) -> String {
        let named = tensors
            .iter()
            .map(|(name, tensor)| (name.to_string(), tensor.clone()));
        tensor_file::write(&self.path(name), &named.collect::<Vec<_>>()).unwrap();
        self.file(name)
    }

    /// Copies a file into the folder and returns its path.
    pub fn copy(&self, from: impl AsRef<Path>, name: &str) -> String {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(from);
        std::fs::write(self.path(name), std::fs::read(from).unwrap()).unwrap();
        self.file(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
