use super::{HEIGHT, WIDTH};
use std::fmt::Write;

pub(super) const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 32.0;
const BOTTOM: f64 = 48.0;

/// The ranges of both axes, which end at powers of ten.
pub(super) struct Axes {
    x: (f64, f64),
    y: (f64, f64),
}

impl Axes {
    /// Axes that cover points (intensity, rate) and the ridge points of all roofs.
    pub fn around(points: impl Iterator<Item = (f64, f64)> + Clone, bandwidth: f64, peaks: &[f64]) -> Self {
        let decades = |values: Vec<f64>| {
            let low = values.iter().copied().fold(f64::INFINITY, f64::min);
            let high = values.iter().copied().fold(0.0, f64::max);
            (10f64.powf(low.log10().floor()), 10f64.powf(high.log10().ceil()))
        };
        let ridges = peaks.iter().flat_map(|peak| [peak / bandwidth / 10.0, peak / bandwidth * 10.0]);
        let heights = peaks.iter().flat_map(|peak| [peak / 10.0, peak * 1.5]);
        let x = points.clone().map(|(intensity, _)| intensity).chain(ridges);
        Self { x: decades(x.collect()), y: decades(points.map(|(_, rate)| rate).chain(heights).collect()) }
    }

    pub fn least_intensity(&self) -> f64 {
        self.x.0
    }

    pub fn most_intensity(&self) -> f64 {
        self.x.1
    }

    /// Top left and bottom right corner of the drawing area.
    pub fn frame(&self) -> [(f64, f64); 2] {
        [(LEFT, TOP), (WIDTH - RIGHT, HEIGHT - BOTTOM)]
    }

    /// Position of a point (intensity, rate) in the drawing; clamped to the lower ends of the axes.
    pub fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let part = |value: f64, (low, high): (f64, f64)| (value / low).log10().max(0.0) / (high / low).log10();
        let [(left, top), (right, bottom)] = self.frame();
        (left + (right - left) * part(x, self.x), bottom - (bottom - top) * part(y, self.y))
    }

    pub fn draw(&self, svg: &mut String) {
        let powers = |(low, high): (f64, f64)| (low.log10().round() as i32)..=(high.log10().round() as i32);
        let [(left, top), (right, bottom)] = self.frame();
        for power in powers(self.x) {
            let (x, _) = self.place((10f64.powi(power), self.y.0));
            let number = 10f64.powi(power);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{x:.1} {top}V{bottom}\"/>\
                 <text class=\"axis\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{number}</text>",
                bottom + 16.0
            );
        }
        for power in powers(self.y) {
            let (_, y) = self.place((self.x.0, 10f64.powi(power)));
            let number = 10f64.powi(power - 12);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{left} {y:.1}H{right}\"/>\
                 <text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{number}</text>",
                left - 6.0,
                y + 4.0
            );
        }
        let _ = writeln!(
            svg,
            "<text class=\"axis\" x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">operations a byte</text>\
             <text class=\"axis\" x=\"{right}\" y=\"20\" text-anchor=\"end\">TFLOP/s; \
             <tspan class=\"f32\">f32</tspan> <tspan class=\"f16\">f16</tspan> <tspan class=\"bf16\">bf16</tspan></text>",
            HEIGHT - 12.0
        );
    }
}
