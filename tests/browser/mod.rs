//! Opens pages in a headless Chromium, acts as a user does, and reports what the pages did wrong.
//!
//! [`Browser::open`] finds the browser in `CHROME` or in `PATH`. Tests skip without one, unless `REQUIRE_BROWSER=1`.
//!
//! Tests of one process share a browser while any of them holds it. Each page has a window, a storage and a cache of its
//! own. All functions fail the test at the caller's line.
#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test uses its part, and fails by panicking"
)]

mod base64;
mod connection;
mod faults;
mod frames;
mod input;
mod keys;
mod page;

pub use frames::FrameTimes;
pub use page::Page;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::time::{Duration, Instant};

use connection::{Connection, Session};

/// The longest wait for anything that a browser does. A debug build beside others on two cores needs some of it.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Names of the program, the first of which in `PATH` is started.
const PROGRAMS: [&str; 5] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome-headless-shell",
];

/// Commands come on descriptor 3 and answers go to descriptor 4, which Rust's standard library cannot pass to a program.
const SCRIPT: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null"#;

const OPTIONS: [&str; 12] = [
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
    "--mute-audio",
    "--no-default-browser-check",
    "--no-first-run",
];

/// A running browser. It ends, and its files are removed, when this is dropped.
pub struct Browser {
    child: Mutex<Child>,
    /// Profile of the browser, and what it prints.
    folder: PathBuf,
    connection: Arc<Connection>,
    root: Mutex<Session>,
}

/// The browser that tests of this process share.
static SHARED: Mutex<Weak<Browser>> = Mutex::new(Weak::new());

impl Browser {
    /// Returns the browser of this process; `None`, with a note, if this machine has none.
    ///
    /// # Panics
    /// The machine has no browser and `REQUIRE_BROWSER=1`, or it does not start.
    #[track_caller]
    pub fn open() -> Option<Arc<Browser>> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(browser) = shared.upgrade() {
            return Some(browser);
        }
        let Some(program) = find_program() else {
            report_missing();
            return None;
        };
        let browser = Arc::new(Browser::start(&program));
        *shared = Arc::downgrade(&browser);
        Some(browser)
    }

    #[track_caller]
    fn start(program: &Path) -> Browser {
        let name = format!("onionskin-browser-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let log = folder.join("stderr.txt");
        let mut child = Command::new("sh")
            .args(["-c", SCRIPT])
            .arg(program)
            .args(OPTIONS)
            .arg(format!("--user-data-dir={}", folder.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let connection = Connection::new(to, from, log);
        let browser = Browser {
            child: Mutex::new(child),
            folder,
            root: Mutex::new(connection.session("")),
            connection,
        };
        browser.call("Browser.getVersion", serde_json::json!({}));
        browser
    }

    /// Opens a path or an address in a window of its own, whose inside has this size in CSS pixels. Returns after the
    /// page's `load` event.
    #[track_caller]
    pub fn page(self: &Arc<Browser>, path_or_url: &str, width: u32, height: u32) -> Page {
        Page::open(self.clone(), path_or_url, width, height)
    }

    /// Calls a method of the browser itself. Returns its result.
    #[track_caller]
    fn call(&self, method: &str, parameters: serde_json::Value) -> serde_json::Value {
        let root = self.root.lock().unwrap_or_else(PoisonError::into_inner);
        root.call(method, parameters)
    }

    /// Calls a method whose failure does not matter, such as the end of what may have ended.
    fn try_call(&self, method: &str, parameters: serde_json::Value) {
        let root = self.root.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = root.try_call(method, parameters);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.try_call("Browser.close", serde_json::json!({}));
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !holds_within(Duration::from_secs(5), || {
            child.try_wait().is_ok_and(|end| end.is_some())
        }) {
            let _ = child.kill();
            let _ = child.wait();
        }
        // Processes of pages end shortly after the browser and write until then.
        holds_within(Duration::from_secs(5), || {
            fs::remove_dir_all(&self.folder).is_ok() || !self.folder.exists()
        });
    }
}

/// Waits until a condition holds. Returns false if it does not within the time.
fn holds_within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the path of the browser.
#[track_caller]
fn find_program() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("CHROME").map(PathBuf::from) {
        assert!(
            path.is_file(),
            "CHROME is {}, which is no file",
            path.display()
        );
        return Some(path);
    }
    let folders = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&folders).collect();
    let places = PROGRAMS.iter().flat_map(|program| {
        let places = folders.iter().map(move |folder| folder.join(program));
        places.collect::<Vec<_>>()
    });
    places.into_iter().find(|path| path.is_file())
}

/// Says once that tests are skipped. Standard error itself, since the harness shows nothing that a passed test prints.
#[track_caller]
fn report_missing() {
    const MISSING: &str = "no Chromium or Chrome in PATH, and CHROME does not name one";
    let is_required = std::env::var_os("REQUIRE_BROWSER").is_some_and(|value| value == "1");
    assert!(!is_required, "{MISSING}");
    static NOTE: Once = Once::new();
    NOTE.call_once(|| {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: tests of pages need a browser: {MISSING}"
        );
    });
}
