//! Chrome's DevTools protocol over a pipe: JSON messages that end in a NUL byte.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};

use super::TIME_LIMIT;

/// Receivers of messages by the id of their session; empty after the browser's end.
type Receivers = Arc<Mutex<HashMap<String, Sender<Value>>>>;

/// The pipe to a browser, which its sessions share.
pub struct Connection {
    to_browser: Mutex<ChildStdin>,
    next_id: AtomicU64,
    receivers: Receivers,
    /// File with the browser's standard error.
    log: PathBuf,
}

/// A conversation with one page, or with the browser itself.
pub struct Session {
    connection: Arc<Connection>,
    id: String,
    messages: Receiver<Value>,
    events: RefCell<Vec<Value>>,
}

impl Connection {
    pub fn new(to_browser: ChildStdin, from_browser: ChildStdout, log: PathBuf) -> Arc<Connection> {
        let receivers = Receivers::default();
        let of_thread = receivers.clone();
        std::thread::spawn(move || distribute(from_browser, &of_thread));
        Arc::new(Connection {
            to_browser: Mutex::new(to_browser),
            next_id: AtomicU64::new(1),
            receivers,
            log,
        })
    }

    /// Returns the session of an id; the empty id is the browser itself.
    pub fn session(self: &Arc<Connection>, id: &str) -> Session {
        let (sender, messages) = channel();
        lock(&self.receivers).insert(id.to_string(), sender);
        Session {
            connection: self.clone(),
            id: id.to_string(),
            messages,
            events: RefCell::default(),
        }
    }

    fn send(&self, message: &Value) -> std::io::Result<()> {
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        let mut pipe = lock(&self.to_browser);
        pipe.write_all(&bytes).and_then(|()| pipe.flush())
    }

    /// Returns the last lines that the browser wrote to standard error.
    fn complaints(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().rev().take(8).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

/// Gives each message of the browser to its session. Messages of sessions that have ended are dropped.
fn distribute(from_browser: ChildStdout, receivers: &Receivers) {
    let mut from_browser = BufReader::new(from_browser);
    let mut bytes = Vec::new();
    while from_browser
        .read_until(0, &mut bytes)
        .is_ok_and(|count| count > 0)
    {
        let end = bytes.len() - 1;
        let message: Value = serde_json::from_slice(&bytes[..end]).unwrap_or_default();
        let session = message["sessionId"].as_str().unwrap_or_default();
        if let Some(receiver) = lock(receivers).get(session) {
            let _ = receiver.send(message);
        }
        bytes.clear();
    }
    lock(receivers).clear();
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Calls a method of the protocol. Returns its result.
    #[track_caller]
    pub fn call(&self, method: &str, parameters: Value) -> Value {
        match self.try_call(method, parameters) {
            Ok(result) => result,
            Err(error) => panic!("{error}"),
        }
    }

    /// Calls a method of the protocol. Returns its result, or an error if the browser refuses it, has ended or is late.
    pub fn try_call(&self, method: &str, parameters: Value) -> Result<Value, String> {
        let id = self.connection.next_id.fetch_add(1, Ordering::Relaxed);
        let mut message = json!({"id": id, "method": method, "params": parameters});
        if !self.id.is_empty() {
            message["sessionId"] = json!(self.id);
        }
        let sent = self.connection.send(&message);
        sent.map_err(|error| self.fault(method, &format!("cannot be sent: {error}")))?;
        let end = Instant::now() + TIME_LIMIT;
        loop {
            let mut answer = self.receive(end, method)?;
            if answer["id"] != id {
                continue;
            }
            return match answer["error"]["message"].as_str() {
                Some(error) => Err(self.fault(method, &format!("is refused: {error}"))),
                None => Ok(answer["result"].take()),
            };
        }
    }

    /// Number of events so far.
    pub fn event_count(&self) -> usize {
        self.events.borrow().len()
    }

    /// Returns the events so far.
    pub fn events(&self) -> Vec<Value> {
        self.events.borrow().clone()
    }

    /// Waits for an event that comes after the first `seen` ones.
    #[track_caller]
    pub fn wait_for_event(&self, method: &str, seen: usize) {
        let end = Instant::now() + TIME_LIMIT;
        let came = || {
            let events = self.events.borrow();
            events[seen..].iter().any(|event| event["method"] == method)
        };
        while !came() {
            if let Err(error) = self.receive(end, method) {
                panic!("{error}");
            }
        }
    }

    /// Returns the next message, and keeps it if it is an event. `awaited` is named in errors.
    fn receive(&self, end: Instant, awaited: &str) -> Result<Value, String> {
        let left = end.saturating_duration_since(Instant::now());
        let message = self.messages.recv_timeout(left).map_err(|error| {
            let seconds = TIME_LIMIT.as_secs();
            match error {
                RecvTimeoutError::Timeout => {
                    self.fault(awaited, &format!("did not come within {seconds} s"))
                }
                RecvTimeoutError::Disconnected => self.fault(awaited, "cannot come: it has ended"),
            }
        })?;
        if message["method"] == "Inspector.targetCrashed" {
            return Err(self.fault(awaited, "cannot come: the page has crashed"));
        }
        if message["method"].is_string() {
            self.events.borrow_mut().push(message.clone());
        }
        Ok(message)
    }

    fn fault(&self, method: &str, fault: &str) -> String {
        let complaints = self.connection.complaints();
        format!("{method} of the browser {fault}; its last output:\n{complaints}")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        lock(&self.connection.receivers).remove(&self.id);
    }
}
