//! A curve of losses as a picture.

use std::fmt::Write;
use std::path::Path;

use onionskin::error::{Error, Result};

/// Width and height of the picture, and of the margin around the curve.
const SIZE: [f64; 2] = [640.0, 320.0];
const MARGIN: f64 = 56.0;

/// Writes the losses of all steps as an SVG file: the loss upwards on a logarithmic scale, the steps to the right.
pub fn write(path: &Path, losses: &[f64]) -> Result<()> {
    let logarithms: Vec<f64> = losses.iter().map(|loss| loss.max(1e-9).log10()).collect();
    let low = logarithms
        .iter()
        .copied()
        .fold(f64::INFINITY, f64::min)
        .floor();
    let high = logarithms
        .iter()
        .copied()
        .fold(f64::NEG_INFINITY, f64::max)
        .ceil();
    let [width, height] = SIZE;
    let x =
        |step: usize| MARGIN + (width - 2.0 * MARGIN) * step as f64 / losses.len().max(2) as f64;
    let y = |logarithm: f64| {
        MARGIN + (height - 2.0 * MARGIN) * (high - logarithm) / (high - low).max(1.0)
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    let mut exponent = low;
    while exponent <= high {
        let (y, end) = (y(exponent), width - MARGIN);
        let _ = writeln!(
            svg,
            "<line x1=\"{MARGIN}\" x2=\"{end}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            MARGIN - 6.0,
            y + 4.0,
            10f64.powf(exponent)
        );
        exponent += 1.0;
    }
    let points: Vec<String> = logarithms
        .iter()
        .enumerate()
        .map(|(step, logarithm)| format!("{:.1},{:.1}", x(step), y(*logarithm)))
        .collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"#1f77b4\" stroke-width=\"1.5\"/>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{} steps</text>\n\
         <text x=\"{MARGIN}\" y=\"{}\">loss</text>\n</svg>",
        points.join(" "),
        width / 2.0,
        height - MARGIN / 3.0,
        losses.len(),
        MARGIN / 2.0
    );
    std::fs::write(path, svg).map_err(|error| Error::io(path, error))
}
