//! Acts of a user: the mouse, the wheel and the keyboard.

use serde_json::{Value, json};

use super::Page;
use super::keys::{Key, modifier_bit};

/// Scrolls an element into view. Returns its centre.
const CENTRE: &str = r#"(selector => {
  const element = document.querySelector(selector);
  if (!element) throw new Error(`no element matches ${selector}`);
  element.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
  const box = element.getBoundingClientRect();
  const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
  const hit = document.elementFromPoint(x, y);
  if (!element.contains(hit)) throw new Error(`at the centre of ${selector} is ${hit?.outerHTML.slice(0, 200)}`);
  return [x, y];
})"#;

impl Page {
    /// Scrolls the first element that a selector matches into view. Returns its centre.
    ///
    /// # Panics
    /// No element matches, or another element covers the centre.
    #[track_caller]
    pub fn centre(&self, selector: &str) -> (f64, f64) {
        let centre = self.evaluate(&format!("{CENTRE}({})", json!(selector)));
        let number = |index: usize| centre[index].as_f64().unwrap();
        (number(0), number(1))
    }

    /// Clicks the centre of the first element that a selector matches.
    #[track_caller]
    pub fn click(&self, selector: &str) {
        let (x, y) = self.centre(selector);
        self.click_at(x, y);
    }

    /// Clicks a point of the window.
    #[track_caller]
    pub fn click_at(&self, x: f64, y: f64) {
        self.move_to(x, y);
        self.press_and_release(x, y, 1);
    }

    /// Clicks a point of the window twice.
    #[track_caller]
    pub fn double_click_at(&self, x: f64, y: f64) {
        self.click_at(x, y);
        self.press_and_release(x, y, 2);
    }

    /// Moves the mouse to a point of the window.
    #[track_caller]
    pub fn move_to(&self, x: f64, y: f64) {
        self.mouse("mouseMoved", x, y, json!({}));
    }

    /// Drags from a point to another in equal steps. The page answers each step before the next one.
    #[track_caller]
    pub fn drag(&self, from: (f64, f64), to: (f64, f64), steps: u32) {
        let pressed = || json!({"button": "left", "buttons": 1, "clickCount": 1});
        self.move_to(from.0, from.1);
        self.mouse("mousePressed", from.0, from.1, pressed());
        for step in 1..=steps {
            let share = f64::from(step) / f64::from(steps);
            let x = from.0 + (to.0 - from.0) * share;
            let y = from.1 + (to.1 - from.1) * share;
            self.mouse("mouseMoved", x, y, pressed());
        }
        let released = json!({"button": "left", "clickCount": 1});
        self.mouse("mouseReleased", to.0, to.1, released);
    }

    /// Turns the wheel over a point of the window by CSS pixels. Positive numbers scroll right and down.
    #[track_caller]
    pub fn wheel(&self, x: f64, y: f64, dx: f64, dy: f64) {
        self.mouse("mouseWheel", x, y, json!({"deltaX": dx, "deltaY": dy}));
    }

    /// Turns the wheel down over a point of the window while a modifier is held down, such as `Control`.
    #[track_caller]
    pub fn wheel_with(&self, modifier: &str, x: f64, y: f64, dy: f64) {
        let event = json!({"deltaX": 0, "deltaY": dy, "modifiers": modifier_bit(modifier)});
        self.mouse("mouseWheel", x, y, event);
    }

    /// Presses and releases a key by its name in JavaScript, after `Control+`, `Shift+`, `Alt+` or `Meta+` if it is held
    /// down with them: `a`, `Enter`, `Shift+Tab`.
    #[track_caller]
    pub fn press(&self, key: &str) {
        self.key(&Key::parse(key));
    }

    /// Types a text, key by key.
    #[track_caller]
    pub fn type_text(&self, text: &str) {
        for c in text.chars() {
            self.key(&Key::of_char(c));
        }
    }

    #[track_caller]
    fn key(&self, key: &Key) {
        let down = if key.text.is_some() {
            "keyDown"
        } else {
            "rawKeyDown"
        };
        for kind in [down, "keyUp"] {
            let mut event = json!({"type": kind, "key": key.name, "code": key.code, "modifiers": key.modifiers,
                "windowsVirtualKeyCode": key.virtual_code});
            if let (Some(text), "keyDown") = (&key.text, kind) {
                event["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    #[track_caller]
    fn press_and_release(&self, x: f64, y: f64, clicks: u32) {
        let pressed = json!({"button": "left", "buttons": 1, "clickCount": clicks});
        self.mouse("mousePressed", x, y, pressed);
        let released = json!({"button": "left", "clickCount": clicks});
        self.mouse("mouseReleased", x, y, released);
    }

    /// Sends an event of the mouse, and waits until the page has answered it.
    #[track_caller]
    fn mouse(&self, kind: &str, x: f64, y: f64, mut event: Value) {
        event["type"] = json!(kind);
        event["x"] = json!(x);
        event["y"] = json!(y);
        self.call("Input.dispatchMouseEvent", event);
    }
}
