//! Charts of run time over a size.

use super::Swept;
use crate::roofline::escape;
use crate::rounded;
use std::collections::BTreeMap;
use std::fmt::Write;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 700.0;
const TOP: f64 = 32.0;
const BOTTOM: f64 = 472.0;

const STYLE: &str = "text{font:11px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#1f2328}\
.grid{stroke:#d8dee4;stroke-width:1}.axis{fill:#59636e}polyline{fill:none;stroke-width:1.5}";

const COLOURS: [&str; 8] = ["#0969da", "#cf222e", "#1a7f37", "#8250df", "#bf8700", "#1b7c83", "#bf3989", "#57606a"];

/// For each operator, kernel, type and mode: pairs of size and time in milliseconds.
type Series = BTreeMap<String, Vec<(f64, f64)>>;

/// Run times over a size as SVG with logarithmic axes. There is one line per operator, kernel, type and mode. Measurements without times
/// are left out.
pub fn chart(axis: &str, points: &[Swept]) -> String {
    let mut series = Series::new();
    for point in points {
        let Some(time) = point.record.wall_ms.filter(|time| *time > 0.0) else { continue };
        let name = [&*point.record.op, &*point.record.kernel, &*point.record.dtype, point.mode()].join(" ");
        series.entry(name).or_default().push((point.value as f64, time));
    }
    let all = || series.values().flatten();
    let (x, y) = (Scale::over(all().map(|point| point.0), 2.0), Scale::over(all().map(|point| point.1), 10.0));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\">\n\
         <style>{STYLE}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text class=\"axis\" x=\"{RIGHT}\" y=\"{}\" text-anchor=\"end\">{}</text>\
         <text class=\"axis\" x=\"{LEFT}\" y=\"20\">ms</text>\n",
        HEIGHT - 12.0,
        escape(axis)
    );
    for value in x.ticks() {
        let at = x.place(value, (LEFT, RIGHT));
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{at:.1} {TOP}V{BOTTOM}\"/>\
             <text class=\"axis\" x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{value}</text>",
            BOTTOM + 16.0
        );
    }
    for value in y.ticks() {
        let at = y.place(value, (BOTTOM, TOP));
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/>\
             <text class=\"axis\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            LEFT - 6.0,
            at + 4.0
        );
    }
    for (number, (name, points)) in series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let places: Vec<(f64, f64, f64)> = points
            .iter()
            .map(|&(value, time)| (x.place(value, (LEFT, RIGHT)), y.place(time, (BOTTOM, TOP)), time))
            .collect();
        let path: Vec<String> = places.iter().map(|(x, y, _)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(svg, "<polyline stroke=\"{colour}\" points=\"{}\"/>", path.join(" "));
        for (x, y, time) in places {
            let _ = writeln!(
                svg,
                "<circle fill=\"{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{} ms</title></circle>",
                rounded(time)
            );
        }
        let line = TOP + 14.0 * (number as f64 + 1.0);
        let _ =
            writeln!(svg, "<text x=\"{}\" y=\"{line}\" style=\"fill:{colour}\">{}</text>", RIGHT + 16.0, escape(name));
    }
    svg.push_str("</svg>\n");
    svg
}

/// A logarithmic axis that ends at integer powers of a base.
struct Scale {
    base: f64,
    /// The smallest and the largest power.
    powers: (i32, i32),
}

impl Scale {
    fn over(values: impl Iterator<Item = f64> + Clone, base: f64) -> Self {
        let low = values.clone().fold(f64::INFINITY, f64::min);
        let high = values.fold(f64::NEG_INFINITY, f64::max);
        if low > high {
            return Self { base, powers: (0, 1) };
        }
        let (low, high) = (low.log(base).floor() as i32, high.log(base).ceil() as i32);
        Self { base, powers: (low, high.max(low + 1)) }
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let (low, high) = self.powers;
        (low..=high).map(|power| self.base.powi(power))
    }

    /// Position of a value between two ends.
    fn place(&self, value: f64, (from, to): (f64, f64)) -> f64 {
        let (low, high) = (f64::from(self.powers.0), f64::from(self.powers.1));
        from + (to - from) * (value.log(self.base) - low) / (high - low)
    }
}
