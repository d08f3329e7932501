use super::layered::Wire;
use super::scene::{CHAR, Figure, Kind, LINE, Note, Picture};
use std::fmt::Write;

const BORDER: f64 = 16.0;
const LEGEND: [(&str, &str); 6] = [
    ("input", "input"),
    ("host", "shape program, on the host"),
    ("parameter", "parameter"),
    ("reference", "value from elsewhere"),
    ("fused", "fused: one kernel"),
    ("output", "output"),
];
const STYLE: &str = "\
text{font:10px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#1f2328}\
.t{font-weight:bold}.d{fill:#656d76}\
rect{stroke:#8c959f;stroke-width:1;fill:#fff}\
.input{fill:#d9ead3}.host{fill:#e6e0f0}.fused{fill:#eaf3fb;stroke:#6fa8dc}.output{fill:#f4cccc}\
.page{stroke:none}.port{fill:#6fa8dc;stroke:none}.parameter{fill:#fff2cc;stroke:none}.reference{fill:#eeeeee;stroke:none}\
path{fill:none;stroke:#57606a;stroke-width:1}#a path{fill:#57606a;stroke:none}";

/// The whole file.
pub(super) fn document(picture: &Picture, sizes: &[String]) -> String {
    let width = picture.width.max(640.0) + 2.0 * BORDER;
    let sizes = wrap(sizes, ((width - 2.0 * BORDER) / CHAR) as usize);
    let top = BORDER + LINE + 20.0;
    let foot = top + picture.height + 24.0;
    let height = foot + sizes.len() as f64 * LINE + BORDER;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\">\n\
         <style>{STYLE}</style>\n\
         <defs><marker id=\"a\" viewBox=\"0 0 6 6\" refX=\"6\" refY=\"3\" markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\">\
         <path d=\"M0 0L6 3L0 6z\"/></marker></defs>\n\
         <rect class=\"page\" width=\"100%\" height=\"100%\"/>\n"
    );
    legend(&mut text);
    let _ = writeln!(text, "<g transform=\"translate({:.1} {top:.1})\">", (width - picture.width) / 2.0);
    paint(&mut text, picture);
    text.push_str("</g>\n");
    for (row, line) in sizes.iter().enumerate() {
        let _ = writeln!(
            text,
            "<text class=\"d\" x=\"{BORDER}\" y=\"{:.1}\">{}</text>",
            foot + row as f64 * LINE,
            escape(line)
        );
    }
    text.push_str("</svg>\n");
    text
}

fn legend(text: &mut String) {
    let mut x = BORDER;
    for (class, label) in LEGEND {
        let _ = writeln!(
            text,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{BORDER}\" width=\"10\" height=\"10\" rx=\"2\"/>\
             <text class=\"d\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
            x + 15.0,
            BORDER + 9.0
        );
        x += 15.0 + (label.len() as f64 + 3.0) * CHAR;
    }
}

fn wrap(parts: &[String], limit: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![];
    for part in parts {
        match lines.last_mut() {
            Some(line) if line.chars().count() + part.chars().count() + 2 <= limit => {
                line.push_str("; ");
                line.push_str(part);
            }
            _ => lines.push(part.clone()),
        }
    }
    lines
}

fn paint(text: &mut String, picture: &Picture) {
    for wire in &picture.wires {
        paint_wire(text, wire);
    }
    for (corner, figure) in &picture.figures {
        let _ = write!(text, "<g transform=\"translate({:.1} {:.1})\">", corner[0], corner[1]);
        paint_figure(text, figure);
        text.push_str("</g>\n");
    }
}

fn paint_wire(text: &mut String, wire: &Wire) {
    let ([x0, y0], [x1, y1]) = (wire.from, wire.to);
    let (leave, enter) = (wire.leave, wire.enter);
    let _ = write!(text, "<path d=\"M{x0:.1} {y0:.1}");
    if (x0 - x1).abs() > 0.5 {
        let middle = (leave + enter) / 2.0;
        let _ = write!(text, "V{leave:.1}C{x0:.1} {middle:.1} {x1:.1} {middle:.1} {x1:.1} {enter:.1}");
    }
    let marker = if wire.arrow { " marker-end=\"url(#a)\"" } else { "" };
    let _ = writeln!(text, "V{y1:.1}\"{marker}/>");
}

fn paint_figure(text: &mut String, figure: &Figure) {
    let class = match figure.kind {
        Kind::Input => "input",
        Kind::Host => "host",
        Kind::Operator | Kind::Inner => "op",
        Kind::Fused => "fused",
        Kind::Output => "output",
        Kind::Port => "port",
    };
    let (width, height) = (figure.width, figure.height);
    let _ = write!(
        text,
        "<title>{}</title><rect class=\"{class}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"3\"/>",
        escape(&figure.tooltip)
    );
    if figure.kind == Kind::Port {
        return;
    }
    let mut label = Label { text, width, y: 0.0 };
    if let Some(inner) = &figure.inner {
        let [x, y] = figure.inset();
        let _ = writeln!(label.text, "<g transform=\"translate({x:.1} {y:.1})\">");
        paint(label.text, inner);
        label.text.push_str("</g>");
        label.width = x;
    }
    label.line("t", &figure.title);
    for detail in &figure.details {
        label.line("d", detail);
    }
    for note in &figure.notes {
        label.note(note);
    }
}

struct Label<'a> {
    text: &'a mut String,
    width: f64,
    y: f64,
}

impl Label<'_> {
    fn line(&mut self, class: &str, content: &str) {
        self.y += LINE;
        let _ = write!(
            self.text,
            "<text class=\"{class}\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            self.width / 2.0,
            self.y,
            escape(content)
        );
    }

    fn note(&mut self, note: &Note) {
        let class = if matches!(note, Note::Parameter(_)) { "parameter" } else { "reference" };
        let (y, width) = (self.y + 3.0, self.width - 6.0);
        let _ =
            write!(self.text, "<rect class=\"{class}\" x=\"3\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{LINE}\"/>");
        self.line("n", note.text());
    }
}

/// Text as XML: markup escaped, characters that XML forbids replaced.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(character),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ if character.is_control() => escaped.push('\u{fffd}'),
            _ => escaped.push(character),
        }
    }
    escaped
}
