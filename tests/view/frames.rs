//! How smoothly a picture moves.

use std::sync::{Arc, Mutex, PoisonError};

use crate::browser::{Browser, FrameTimes, Page};

/// The longest that 19 of 20 frames may take while the picture moves, in milliseconds.
const LIMIT_MS: f64 = 50.0;

/// An empty page shows 19 of 20 frames faster than this, in milliseconds, unless the machine is too busy for measurements.
const BUSY_MS: f64 = 25.0;

/// Slow moves on a machine that is not busy, after which the page is too slow.
const SLOW_MOVES: usize = 3;

/// Attempts to find the machine not busy.
const ATTEMPTS: usize = 10;

/// Tests that measure wait for each other.
static MEASURING: Mutex<()> = Mutex::new(());

/// Moves a picture with everything open, both readable and as a whole. It must be smooth, unless the machine is too busy to
/// tell.
#[track_caller]
pub fn check_moves(browser: &Arc<Browser>, page: &Page) {
    const READABLE: &str = "picture.setView({ scale: 1, x: picture.extent.width / 2 - 400, y: picture.extent.height / 2 })";
    let _alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    let empty = browser.page("data:text/html,<p>empty", 1280, 800);
    page.click("#open-all");
    for (name, view) in [("readable", READABLE), ("whole", "picture.fit(true)")] {
        page.evaluate(view);
        page.frame_ms(|| drag(page));
        let zoomed = page.frame_ms(|| zoom(page));
        println!("{name}: zoomed {zoomed}");
        check_drags(name, page, &empty);
    }
}

/// Drags until a drag is smooth. Fails after some that are not.
#[track_caller]
fn check_drags(name: &str, page: &Page, empty: &Page) {
    let mut slow: Vec<FrameTimes> = Vec::new();
    for _ in 0..ATTEMPTS {
        let is_busy = || BUSY_MS < empty.frame_ms(|| drag(empty)).p95;
        let before = is_busy();
        let moved = page.frame_ms(|| drag(page));
        if moved.p95 < LIMIT_MS {
            println!("{name}: moved {moved}");
            return;
        }
        if !before && !is_busy() {
            slow.push(moved);
        }
        assert!(slow.len() < SLOW_MOVES, "{name}: {slow:?}");
    }
    println!("{name}: the machine is too busy to time frames");
}

/// Drags the middle of the page up to the left and back.
#[track_caller]
fn drag(page: &Page) {
    let (near, far) = ((440.0, 200.0), (840.0, 600.0));
    page.drag(far, near, 15);
    page.drag(near, far, 15);
}

/// Zooms in and out by the wheel.
#[track_caller]
fn zoom(page: &Page) {
    for step in [-30.0, 30.0].repeat(8) {
        page.wheel_with("Control", 640.0, 400.0, step);
    }
}
