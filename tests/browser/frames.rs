//! How fast a page is.

use std::fmt;

use super::Page;

/// Intervals between animation frames, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct FrameTimes {
    /// Number of intervals.
    pub count: usize,
    pub median: f64,
    /// Of twenty intervals, nineteen are at most this long.
    pub p95: f64,
    pub longest: f64,
}

/// Notes when the page gets to compute each frame; the time that a frame is given lies before it if the page was busy.
const START: &str = "new Promise(started => {
  const times = [];
  const note = () => {
    times.push(performance.now());
    started();
    if (window.testFrames === times) requestAnimationFrame(note);
  };
  window.testFrames = times;
  requestAnimationFrame(note);
})";

/// Two more frames, the second of which shows what the first one computed.
const STOP: &str = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => {
  const times = window.testFrames;
  window.testFrames = null;
  done(times);
})))";

impl Page {
    /// Milliseconds from the start of the page's load to its first text or picture (`first-contentful-paint`).
    #[track_caller]
    pub fn first_paint_ms(&self) -> f64 {
        const ENTRY: &str = "performance.getEntriesByName('first-contentful-paint')[0]";
        self.wait_for(ENTRY);
        let time = self.evaluate(&format!("{ENTRY}.startTime"));
        time.as_f64().unwrap()
    }

    /// Returns the intervals between animation frames while something happens.
    #[track_caller]
    pub fn frame_ms(&self, during: impl FnOnce()) -> FrameTimes {
        self.evaluate(START);
        during();
        let times: Vec<f64> = serde_json::from_value(self.evaluate(STOP)).unwrap();
        FrameTimes::of(&times)
    }
}

impl fmt::Display for FrameTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FrameTimes {
            count,
            median,
            p95,
            longest,
        } = self;
        write!(
            f,
            "{count} frames, median {median:.1} ms, 95 % within {p95:.1} ms, longest {longest:.1} ms"
        )
    }
}

impl FrameTimes {
    /// Returns the intervals between increasing times.
    #[track_caller]
    fn of(times: &[f64]) -> FrameTimes {
        let mut intervals: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(
            !intervals.is_empty(),
            "the page showed fewer than two frames"
        );
        intervals.sort_by(f64::total_cmp);
        let last = intervals.len() - 1;
        FrameTimes {
            count: intervals.len(),
            median: intervals[last / 2],
            p95: intervals[(last * 19).div_ceil(20)],
            longest: intervals[last],
        }
    }
}
