//! Roofline charts: operations per second over operations per byte, with the limits of a device.

mod axes;
mod labels;

use crate::page::by_device;
use crate::{Record, rounded};
use axes::Axes;
use labels::Labels;
use std::fmt::Write;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 520.0;

const STYLE: &str = "text{font:11px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#1f2328}\
.title{font-size:13px;font-weight:bold}.roof{fill:none;stroke:#1f2328;stroke-width:1.5}\
.grid{stroke:#d8dee4;stroke-width:1}.axis{fill:#59636e}.leader{stroke:#8c959f;stroke-width:.7}\
.f32{fill:#0969da}.f16{fill:#cf222e}.bf16{fill:#8250df}";

/// Rooflines as SVG, one chart per device, stacked, with logarithmic axes. Each point is a record; its tooltip describes the workload.
/// For each operator and type the highest point is labelled. Records without operations or times are left out.
pub fn roofline(records: &[Record]) -> String {
    let devices = by_device(records);
    let height = HEIGHT * devices.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\">\n\
         <style>{STYLE}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    for (position, (device, records)) in devices.iter().enumerate() {
        let _ = writeln!(svg, "<g transform=\"translate(0 {})\">", HEIGHT * position as f64);
        chart(&mut svg, device, records);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

fn chart(svg: &mut String, device: &str, records: &[&Record]) {
    let points: Vec<Point> = records.iter().filter_map(|record| Point::of(record)).collect();
    let roofs = Roofs::of(records);
    let axes = Axes::around(points.iter().map(|point| (point.intensity, point.rate)), roofs.bandwidth, &roofs.peaks);
    let title = format!("{device}: copies {} GB/s", rounded(roofs.bandwidth / 1e9));
    let _ = writeln!(svg, "<text class=\"title\" x=\"{}\" y=\"20\">{}</text>", axes::LEFT, escape(&title));
    axes.draw(svg);
    let mut labels = Labels::within(axes.frame());
    for &peak in &roofs.peaks {
        let corners = [axes.least_intensity(), peak / roofs.bandwidth, axes.most_intensity()];
        let corners = corners.map(|x| axes.place((x, peak.min(roofs.bandwidth * x))));
        let path = corners.map(|(x, y)| format!("{x:.1},{y:.1}")).join(" ");
        let _ = writeln!(svg, "<polyline class=\"roof\" points=\"{path}\"/>");
        corners.windows(2).for_each(|line| labels.keep_line(line[0], line[1]));
    }
    let places: Vec<(f64, f64)> = points.iter().map(|point| axes.place((point.intensity, point.rate))).collect();
    for (point, &(x, y)) in points.iter().zip(&places) {
        labels.keep_point((x, y));
        let (class, detail) = (point.dtype, escape(&point.detail));
        let _ = writeln!(
            svg,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{detail}</title></circle>"
        );
    }
    for &peak in &roofs.peaks {
        let end = axes.place((axes.most_intensity(), peak));
        labels.write(svg, end, &format!("{} TFLOP/s", rounded(peak / 1e12)));
    }
    for named in named(&points) {
        let Point { op, dtype, .. } = points[named];
        labels.write(svg, places[named], &escape(&format!("{op} {dtype}")));
    }
}

/// Indices of the labelled points: the highest of each operator and type, in descending order.
fn named(points: &[Point<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|&a, &b| points[b].rate.total_cmp(&points[a].rate));
    let mut named: Vec<usize> = vec![];
    for at in order {
        let is_same = |&other: &usize| (points[other].op, points[other].dtype) == (points[at].op, points[at].dtype);
        if !named.iter().any(is_same) {
            named.push(at);
        }
    }
    named
}

/// The limits of a device: bytes per second, and operations per second of multiply-adds and, if faster, of matrix units.
struct Roofs {
    bandwidth: f64,
    peaks: Vec<f64>,
}

impl Roofs {
    fn of(records: &[&Record]) -> Self {
        let bandwidth = Record::bandwidth(records).unwrap_or(1.0).max(1e-3) * 1e9;
        let rates = || records.iter().filter_map(|record| record.ceiling_tflops).filter(|rate| *rate > 0.0);
        let (most, least) = (rates().fold(1e-6, f64::max) * 1e12, rates().fold(f64::INFINITY, f64::min) * 1e12);
        // Measured multiply-add rates differ little between runs. A rate of more than twice the lowest one is that of matrix units.
        let peaks = if most > 2.0 * least { vec![most, least] } else { vec![most] };
        Self { bandwidth, peaks }
    }
}

struct Point<'a> {
    /// Operations per byte.
    intensity: f64,
    /// Operations per second.
    rate: f64,
    op: &'a str,
    dtype: &'a str,
    detail: String,
}

impl<'a> Point<'a> {
    fn of(record: &'a Record) -> Option<Self> {
        let (operations, bytes) = (record.operations? as f64, record.bytes? as f64);
        let rate = record.tflops? * 1e12;
        if operations <= 0.0 || bytes <= 0.0 || rate <= 0.0 {
            return None;
        }
        let share = record.share().map(|_| format!(", {} of the roofline", record.share_in_words()));
        let time = record.time_ms().map(rounded).unwrap_or_default();
        Some(Self {
            intensity: operations / bytes,
            rate,
            op: &record.op,
            dtype: &record.dtype,
            detail: format!("{} {}: {time} ms{}", record.title(), record.dtype, share.unwrap_or_default()),
        })
    }
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(op: &str, adapter: &str, tflops: f64, operations: u64) -> Record {
        Record {
            op: op.into(),
            dtype: "f32".into(),
            adapter: adapter.into(),
            tflops: Some(tflops),
            operations: Some(operations),
            bytes: Some(10_000),
            ceiling_tflops: Some(10.0),
            ceiling_gbps: Some(1000.0),
            ..Record::default()
        }
    }

    #[test]
    fn a_chart_has_the_points_of_its_device_and_one_name_an_operator() {
        let known = [record("<op>", "gpu", 2.0, 1_000_000), record("<op>", "gpu", 1.0, 500_000)];
        let other = [record("cast", "cpu", 0.1, 1_000), Record { tflops: None, ..record("none", "cpu", 0.0, 1) }];
        let svg = roofline(&[known, other].concat());
        assert_eq!((svg.matches("<circle").count(), svg.matches("<g ").count()), (3, 2));
        assert_eq!((svg.matches("&lt;op&gt; f32<").count(), svg.matches("polyline").count()), (1, 2));
        assert!(svg.contains("gpu: copies 1000 GB/s") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(!roofline(&[]).contains("NaN"));
    }

    #[test]
    fn matrices_have_a_roof_of_their_own() {
        let fast = Record { ceiling_tflops: Some(100.0), ..record("addmm", "gpu", 50.0, 1_000_000) };
        let svg = roofline(&[record("norm", "gpu", 1.0, 1_000), fast]);
        assert_eq!(svg.matches("polyline").count(), 2);
        assert!(svg.contains(">100 TFLOP/s<") && svg.contains(">10.00 TFLOP/s<"));
    }

    #[test]
    fn no_label_covers_another() {
        let records: Vec<Record> =
            (0..30).map(|n| record(&format!("operator-{n}"), "gpu", 1.0 + 0.001 * f64::from(n), 100_000)).collect();
        let svg = roofline(&records);
        let number = |line: &str, name: &str| -> f64 {
            line.split_once(&format!(" {name}=\"")).unwrap().1.split('"').next().unwrap().parse().unwrap()
        };
        let labels: Vec<(f64, f64)> = svg
            .lines()
            .filter(|line| line.contains("operator-") && line.contains("<text"))
            .map(|line| (number(line, "x"), number(line, "y")))
            .collect();
        assert!(labels.len() > 10, "{}", labels.len());
        for (at, a) in labels.iter().enumerate() {
            let covered = |b: &&(f64, f64)| (a.0 - b.0).abs() < 80.0 && (a.1 - b.1).abs() < 11.0;
            assert_eq!(labels[at + 1..].iter().find(covered), None, "{a:?}");
        }
    }
}
