use crate::Record;
use std::fmt::Write;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 560.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 200.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 50.0;

const STYLE: &str = "text{font:11px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#1f2328}\
.roof{fill:none;stroke:#1f2328;stroke-width:1.5}.grid{stroke:#d0d7de;stroke-width:1}\
.f32{fill:#0969da}.f16{fill:#cf222e}.axis{fill:#656d76}";

/// A roofline picture as SVG: operations a byte against operations a second, both logarithmic, under the roof of the
/// first record's ceilings. Records without operations or times are left out.
pub fn roofline(records: &[Record]) -> String {
    let points: Vec<Point> = records.iter().filter_map(Point::of).collect();
    let first = records.iter().find(|record| record.ceiling_gbps.is_some());
    let (gbps, tflops) = first.map_or((1.0, 1.0), |record| {
        (record.ceiling_gbps.unwrap_or(1.0).max(1e-3), record.ceiling_tflops.unwrap_or(1.0).max(1e-6))
    });
    let (bandwidth, peak) = (gbps * 1e9, tflops * 1e12);
    let axes = Axes::around(&points, bandwidth, peak);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\">\n\
         <style>{STYLE}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    axes.draw(&mut svg);
    let corners = [axes.x.0, peak / bandwidth, axes.x.1].map(|x| (x, peak.min(bandwidth * x)));
    let path: Vec<String> =
        corners.iter().map(|&(x, y)| format!("{:.1},{:.1}", axes.across(x), axes.down(y))).collect();
    let _ = writeln!(svg, "<polyline class=\"roof\" points=\"{}\"/>", path.join(" "));
    let adapter = first.map_or("", |record| record.adapter.as_str());
    let title = format!("{adapter}: copy {gbps:.0} GB/s, multiply-adds {tflops:.2} TFLOP/s");
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"18\">{}</text>", escape(&title));
    for point in &points {
        let (x, y) = (axes.across(point.intensity), axes.down(point.rate));
        let (class, label) = (&point.dtype, escape(&point.label));
        let _ = writeln!(
            svg,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{}</title></circle>\
             <text x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
            escape(&point.detail),
            x + 6.0,
            y + 4.0,
        );
    }
    svg.push_str("</svg>\n");
    svg
}

struct Point {
    /// Operations a byte.
    intensity: f64,
    /// Operations a second.
    rate: f64,
    dtype: String,
    label: String,
    detail: String,
}

impl Point {
    fn of(record: &Record) -> Option<Self> {
        let (operations, bytes) = (record.operations? as f64, record.bytes? as f64);
        let rate = record.tflops? * 1e12;
        if operations <= 0.0 || bytes <= 0.0 || rate <= 0.0 {
            return None;
        }
        let sizes: Vec<String> = record.shape.iter().map(|(name, value)| format!("{name} {value}")).collect();
        Some(Self {
            intensity: operations / bytes,
            rate,
            dtype: record.dtype.clone(),
            label: format!("{} {}", record.op, record.dtype),
            detail: sizes.join(", "),
        })
    }
}

/// Ranges of the axes, whole powers of ten.
struct Axes {
    x: (f64, f64),
    y: (f64, f64),
}

impl Axes {
    fn around(points: &[Point], bandwidth: f64, peak: f64) -> Self {
        let decades = |values: Vec<f64>| {
            let low = values.iter().copied().fold(f64::INFINITY, f64::min);
            let high = values.iter().copied().fold(0.0, f64::max);
            (10f64.powf(low.log10().floor()), 10f64.powf(high.log10().ceil()))
        };
        let ridge = peak / bandwidth;
        let x = points.iter().map(|point| point.intensity).chain([ridge / 10.0, ridge * 10.0]);
        let y = points.iter().map(|point| point.rate).chain([peak / 10.0, peak * 1.5]);
        Self { x: decades(x.collect()), y: decades(y.collect()) }
    }

    fn across(&self, x: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (x / self.x.0).log10() / (self.x.1 / self.x.0).log10()
    }

    fn down(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (y / self.y.0).log10() / (self.y.1 / self.y.0).log10()
    }

    fn draw(&self, svg: &mut String) {
        let powers = |(low, high): (f64, f64)| (low.log10().round() as i32)..=(high.log10().round() as i32);
        for power in powers(self.x) {
            let x = self.across(10f64.powi(power));
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{x:.1} {TOP}V{:.1}\"/><text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                HEIGHT - BOTTOM,
                x - 8.0,
                HEIGHT - BOTTOM + 16.0,
                10f64.powi(power)
            );
        }
        for power in powers(self.y) {
            let y = self.down(10f64.powi(power));
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{:.1}\"/><text class=\"axis\" x=\"6\" y=\"{:.1}\">1e{}</text>",
                WIDTH - RIGHT,
                y + 4.0,
                power - 12
            );
        }
        let _ = writeln!(
            svg,
            "<text class=\"axis\" x=\"{LEFT}\" y=\"{:.1}\">operations a byte; vertically TFLOP/s</text>",
            HEIGHT - 14.0
        );
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_lie_under_their_roof() {
        let record = Record {
            op: "<op>".into(),
            dtype: "f32".into(),
            tflops: Some(2.0),
            operations: Some(1_000_000),
            bytes: Some(10_000),
            ceiling_tflops: Some(10.0),
            ceiling_gbps: Some(1000.0),
            ..Record::default()
        };
        let svg = roofline(&[record.clone(), Record { tflops: None, ..record }]);
        assert_eq!(svg.matches("<circle").count(), 1);
        assert!(svg.contains("&lt;op&gt; f32") && svg.contains("polyline") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(!roofline(&[]).contains("NaN"));
    }
}
