//! Charts of the pages: speed-ups over other libraries, from `docs/performance.md` and `docs/measurements.json`, and losses of the examples,
//! from the output that `docs/examples.md` shows.

use crate::figures::Measurements;
use std::fmt::Write;

const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#1f2328}.title{font-weight:bold}.grid{stroke:#d8dee4}\
.one{stroke:#1f2328}.axis{fill:#59636e}.more{fill:#1a7f37}.less{fill:#cf222e}polyline{fill:none;stroke-width:2}";

/// Where a speed-up comes from.
enum Source {
    /// The last column of a row of `docs/performance.md`: its place, operator and some of its sizes, which are empty if they are default
    /// ones.
    Row(&'static Place, &'static str, &'static [(&'static str, &'static str)]),
    /// The quotient of two measured times: that of the other library, and that of rewire.
    Times(&'static str, &'static str),
}

/// The rows of a device and a type that have figures of another library.
struct Place {
    device: &'static str,
    dtype: &'static str,
    by: &'static str,
}

struct Group {
    title: &'static str,
    bars: &'static [(&'static str, Source)],
}

const H200: &str = "NVIDIA H200 (vulkan NVIDIA), matrices of tier spirv";
const TRITON: Place = Place { device: H200, dtype: "f16", by: "Triton" };
const TRITON_GRAPH: Place = Place { device: H200, dtype: "f16", by: "Triton in a CUDA graph" };
const PYTORCH: Place = Place { device: "cpu", dtype: "f32", by: "PyTorch" };

const GROUPS: [Group; 3] = [
    Group {
        title: "Triton on an NVIDIA H200, f16",
        bars: &[
            ("attention, heads of 64, length 512", Source::Row(&TRITON, "attention", &[("max len", "512")])),
            ("norm, multiply, dropout", Source::Row(&TRITON, "norm-mul-dropout", &[("concat", "")])),
            (
                "attention, heads of 64, length 2048",
                Source::Row(&TRITON, "attention", &[("attn dim", "64"), ("max len", "2048")]),
            ),
            (
                "attention, heads of 128, length 2048",
                Source::Row(&TRITON, "attention", &[("attn dim", "128"), ("max len", "2048"), ("window", "")]),
            ),
            ("3 STU layers, length 4196", Source::Row(&TRITON_GRAPH, "stu", &[("batch", "8"), ("attn dim", "128")])),
            (
                "matmul 65536x512x2048",
                Source::Row(&TRITON, "addmm", &[("k", "512"), ("epilogue", ""), ("weights", ""), ("sums", "")]),
            ),
        ],
    },
    Group {
        title: "PyTorch on two CPU cores, f32",
        bars: &[
            ("attention, heads of 128", Source::Row(&PYTORCH, "attention", &[("batch", "8")])),
            (
                "norm, multiply, dropout, training",
                Source::Row(&PYTORCH, "norm-mul-dropout", &[("train", "true"), ("concat", "")]),
            ),
            ("STU layer", Source::Row(&PYTORCH, "stu-layer", &[("backward", "")])),
            ("DIN, a training step", Source::Times("families.din.step.eager", "families.din.step.rewire")),
            ("matmul 4096x512x2048", Source::Row(&PYTORCH, "addmm", &[("m", "4096"), ("epilogue", "")])),
            ("layer norm", Source::Row(&PYTORCH, "layer-norm", &[])),
            ("MMoE, forward", Source::Times("families.mmoe.eager", "families.mmoe.rewire")),
        ],
    },
    Group {
        title: "ONNX Runtime on two CPU cores",
        bars: &[
            ("transformer encoder, f32", Source::Times("onnx.encoder.f32.ort", "onnx.encoder.f32.rewire")),
            ("transformer encoder, int8", Source::Times("onnx.encoder.int8.ort", "onnx.encoder.int8.rewire")),
            ("DeepFM", Source::Times("onnx.deepfm.ort", "onnx.deepfm.rewire")),
            ("small BERT", Source::Times("onnx.hf-bert.ort", "onnx.hf-bert.rewire")),
            ("GRU4Rec", Source::Times("onnx.gru4rec.ort", "onnx.gru4rec.rewire")),
            ("small ResNet", Source::Times("onnx.resnet-small.ort", "onnx.resnet-small.rewire")),
        ],
    },
];

/// The part of a page under a heading, without the heading.
fn section<'a>(page: &'a str, level: &str, title: &str) -> &'a str {
    let mut sections = page.split(level).skip(1).filter_map(|section| section.split_once('\n'));
    sections.find(|(first, _)| *first == title).map_or("", |(_, rest)| rest)
}

fn cells(line: &str) -> Vec<&str> {
    line.trim_start_matches('|').trim_end_matches('|').split('|').map(str::trim).collect()
}

impl Place {
    /// The figures of the other library for an operator with some sizes.
    fn figures(&self, performance: &str, op: &str, sizes: &[(&str, &str)]) -> Vec<f64> {
        let table = section(section(performance, "\n## ", self.device), "\n### ", op);
        let equal = table.lines().find_map(|line| line.strip_prefix("All: ")?.strip_suffix('.')).unwrap_or("");
        let equal: Vec<(&str, &str)> = equal.split(", ").filter_map(|size| size.rsplit_once(' ')).collect();
        let mut rows = table.lines().filter(|line| line.starts_with('|')).map(cells);
        let heads = rows.next().unwrap_or_default();
        let figure = |row: Vec<&str>| {
            let cell = |name: &str| heads.iter().position(|head| *head == name).and_then(|at| row.get(at).copied());
            let size = |name: &str| equal.iter().find(|(own, _)| *own == name).map(|(_, size)| *size).or(cell(name));
            let is_wanted = cell("type") == Some(self.dtype)
                && sizes.iter().all(|(name, value)| size(name).unwrap_or("") == *value);
            let figure = cell("x")?.split(", ").find_map(|one| one.strip_prefix(self.by)?.trim().parse().ok());
            figure.filter(|_| is_wanted)
        };
        rows.filter_map(figure).collect()
    }
}

impl Source {
    fn speedup(&self, performance: &str, measurements: &Measurements) -> Result<f64, String> {
        match *self {
            Self::Row(place, op, sizes) => match place.figures(performance, op, sizes)[..] {
                [figure] => Ok(figure),
                ref figures => Err(format!("{op} {sizes:?}: expected one figure of {}, got {figures:?}", place.by)),
            },
            Self::Times(other, own) => {
                let time = |id: &str| measurements.get(id).and_then(|one| one.value.as_f64());
                let times = time(other).zip(time(own));
                times.map(|(other, own)| other / own).ok_or_else(|| format!("no times `{other}` and `{own}`"))
            }
        }
    }
}

/// Speed-ups as bars on a logarithmic axis: green to the right of 1, red to its left.
///
/// # Errors
/// A figure that the pages do not have.
pub fn speedups(performance: &str, measurements: &Measurements) -> Result<String, String> {
    const LEFT: f64 = 280.0;
    const OCTAVE: f64 = 44.0;
    const ROW: f64 = 21.0;
    let x = |ratio: f64| LEFT + OCTAVE * (ratio.log2() + 5.0);
    let mut bars = String::new();
    let mut y = 40.0;
    for group in &GROUPS {
        let _ = writeln!(bars, "<text class=\"title\" x=\"12\" y=\"{}\">{}</text>", y + 15.0, group.title);
        y += ROW;
        for (label, source) in group.bars {
            let ratio = source.speedup(performance, measurements)?;
            let (from, to, class) = if ratio < 1.0 { (x(ratio), x(1.0), "less") } else { (x(1.0), x(ratio), "more") };
            let text = if ratio < 10.0 { format!("{ratio:.2}") } else { format!("{ratio:.1}") };
            let (at, anchor) = if ratio < 1.0 { (from - 6.0, "end") } else { (to + 6.0, "start") };
            let _ = writeln!(
                bars,
                "<text x=\"24\" y=\"{base}\">{label}</text><rect class=\"{class}\" x=\"{from:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"14\"/>\
                 <text x=\"{at:.1}\" y=\"{base}\" text-anchor=\"{anchor}\">{text}</text>",
                base = y + 15.0,
                top = y + 4.0,
                width = to - from,
            );
            y += ROW;
        }
        y += 10.0;
    }
    let mut svg = head(740.0, y + 4.0);
    let _ = writeln!(svg, "<text class=\"axis\" x=\"12\" y=\"20\">times as fast as</text>");
    for power in -5..=4 {
        let (at, class) = (x(2f64.powi(power)), if power == 0 { "one" } else { "grid" });
        let text = if power < 0 { format!("1/{}", 1 << -power) } else { (1 << power).to_string() };
        let _ = writeln!(
            svg,
            "<path class=\"{class}\" d=\"M{at:.1} 28V{y}\"/><text class=\"axis\" x=\"{at:.1}\" y=\"20\" text-anchor=\"middle\">{text}</text>"
        );
    }
    Ok(svg + &bars + "</svg>\n")
}

fn head(width: f64, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <style>{STYLE}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    )
}

/// Losses of the examples that train, as parts of the first loss that each prints.
///
/// # Errors
/// An example without losses in the page.
pub fn losses(examples: &str) -> Result<String, String> {
    const EXAMPLES: [(&str, &str, &str); 3] = [
        ("two_tower", "#0969da", "two towers, 400 steps"),
        ("din", "#cf222e", "deep interest network, 6 epochs"),
        ("retrieval", "#1a7f37", "HSTU retrieval, 200 steps"),
    ];
    const LEFT: f64 = 56.0;
    const RIGHT: f64 = 480.0;
    const BOTTOM: f64 = 260.0;
    let y = |part: f64| BOTTOM - 220.0 * part;
    let mut svg = head(740.0, 300.0);
    let _ = writeln!(
        svg,
        "<text class=\"axis\" x=\"{LEFT}\" y=\"24\">loss, as a part of the first one printed</text>\
         <text class=\"axis\" x=\"{RIGHT}\" y=\"{}\" text-anchor=\"end\">end of the training</text>",
        BOTTOM + 20.0
    );
    for tenths in (0..=10).step_by(2) {
        let at = y(f64::from(tenths) / 10.0);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/><text class=\"axis\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{:.1}</text>",
            LEFT - 8.0,
            at + 4.0,
            f64::from(tenths) / 10.0
        );
    }
    for (number, (name, colour, title)) in EXAMPLES.into_iter().enumerate() {
        let block = examples.split_once(&format!("```text {name}\n")).and_then(|(_, rest)| rest.split_once("```"));
        let lines = block.into_iter().flat_map(|(block, _)| block.lines());
        let losses: Vec<f64> =
            lines.filter_map(|line| line.split_once("loss ")?.1.split_whitespace().next()?.parse().ok()).collect();
        let [first, ..] = losses[..] else { return Err(format!("examples.md shows no losses of `{name}`")) };
        let step = (RIGHT - LEFT) / losses.len() as f64;
        let point = |(at, loss): (usize, &f64)| format!("{:.1},{:.1}", LEFT + step * (at + 1) as f64, y(loss / first));
        let points: Vec<String> = losses.iter().enumerate().map(point).collect();
        let _ = writeln!(
            svg,
            "<polyline stroke=\"{colour}\" points=\"{}\"/><text x=\"{}\" y=\"{:.1}\" style=\"fill:{colour}\">{title}</text>",
            points.join(" "),
            RIGHT + 16.0,
            60.0 + 22.0 * number as f64
        );
    }
    Ok(svg + "</svg>\n")
}
