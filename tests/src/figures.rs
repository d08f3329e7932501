//! Measured figures in the pages, which come from `docs/measurements.json`.
//!
//! A page marks them: `<!-- figure ID -->24 ms<!-- / -->`. `figure` is the value with its unit, `value` only the value, `megabytes`
//! millions of bytes.

use serde::Deserialize;
use serde_json::{Number, Value};
use std::collections::{BTreeMap, BTreeSet};

const END: &str = "<!-- / -->";
const OPEN: &str = "<!-- ";
const CLOSE: &str = " -->";

/// Units of measurements. Limits are in MiB and GiB.
const UNITS: [&str; 12] = ["s", "ms", "us", "µs", "min", "minutes", "bytes", "KB", "MB", "GB", "GB/s", "TFLOP/s"];

/// A measurement.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// A number, the ends of a range, or numbers by name.
    pub value: Value,
    /// Unit of the value; none for texts.
    pub unit: String,
    /// The device that it was measured on.
    pub device: String,
    /// Model, data and sizes.
    pub shape: String,
    /// The command or method, and the statistic.
    pub how: String,
}

/// All measurements by id.
pub type Measurements = BTreeMap<String, Measurement>;

impl Measurement {
    fn text(&self, form: &str) -> Result<String, String> {
        let value = match &self.value {
            Value::Array(ends) => ends.iter().map(number).collect::<Result<Vec<_>, _>>()?.join(" to "),
            Value::Object(named) => named.values().map(number).collect::<Result<Vec<_>, _>>()?.join(", "),
            one => number(one)?,
        };
        match (form, self.unit.as_str()) {
            ("value", _) | ("figure", "") => Ok(value),
            ("figure", unit) => Ok(format!("{value} {unit}")),
            ("megabytes", "bytes") => {
                let bytes = self.value.as_f64().ok_or("expected a number of bytes")?;
                Ok(format!("{:.2} MB", bytes / 1e6))
            }
            _ => Err(format!("there is no form `{form}` of a value in {}", self.unit)),
        }
    }
}

/// A number in the format of pages: thousands of integers are separated by commas.
fn number(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.as_u64().map_or_else(|| Number::to_string(number), with_commas)),
        other => Err(format!("expected a number or a text, got {other}")),
    }
}

fn with_commas(number: u64) -> String {
    match (number / 1000, number % 1000) {
        (0, rest) => rest.to_string(),
        (thousands, rest) => format!("{},{rest:03}", with_commas(thousands)),
    }
}

/// A page with the figures of the measurements, and their ids.
pub fn written(page: &str, measurements: &Measurements) -> Result<(String, BTreeSet<String>), String> {
    let (mut text, mut used) = (String::new(), BTreeSet::new());
    let mut rest = page;
    while let Some((before, form, id, after)) = next(rest) {
        let measurement = measurements.get(id).ok_or_else(|| format!("there is no measurement `{id}`"))?;
        let figure = measurement.text(form).map_err(|error| format!("{id}: {error}"))?;
        let (_, after) = after.split_once(END).ok_or_else(|| format!("the figure `{id}` has no end `{END}`"))?;
        text += &format!("{before}{OPEN}{form} {id}{CLOSE}{figure}{END}");
        used.insert(id.to_owned());
        rest = after;
    }
    Ok((text + rest, used))
}

/// The next mark: the text before it, its form, its id and the text after it.
fn next(page: &str) -> Option<(&str, &str, &str, &str)> {
    let mut from = 0;
    while let Some(at) = page.get(from..)?.find(OPEN) {
        let (before, mark) = page.split_at(from + at);
        let (inner, after) = mark.strip_prefix(OPEN)?.split_once(CLOSE)?;
        match inner.split_once(' ') {
            Some((form @ ("figure" | "value" | "megabytes"), id)) => return Some((before, form, id, after)),
            _ => from += at + OPEN.len(),
        }
    }
    None
}

/// Measured figures of a page without a mark: numbers with units, outside of code.
pub fn unmarked(page: &str) -> Vec<String> {
    let mut text = String::new();
    let mut rest = page;
    while let Some((before, _, _, after)) = next(rest) {
        text += before;
        rest = after.split_once(END).map_or("", |(_, after)| after);
    }
    text += rest;
    let prose = text.split("```").step_by(2).flat_map(|part| part.split('`').step_by(2));
    prose.flat_map(figures).collect()
}

fn figures(text: &str) -> Vec<String> {
    let bare = |word: &str| word.trim_start_matches(['(', '~']).trim_end_matches(['.', ',', ';', ':', ')']).to_owned();
    let words: Vec<String> = text.split_whitespace().map(bare).collect();
    let is_figure =
        |pair: &&[String]| pair[0].replace(',', "").parse::<f64>().is_ok() && UNITS.contains(&pair[1].as_str());
    words.windows(2).filter(is_figure).map(|pair| pair.join(" ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurements() -> Measurements {
        let one = |value: &str, unit: &str| {
            let text = format!(r#"{{"value":{value},"unit":"{unit}","device":"d","shape":"s","how":"h"}}"#);
            serde_json::from_str(&text).unwrap()
        };
        [
            ("size", one("8027136", "bytes")),
            ("time", one("[70.0, 72.5]", "ms")),
            ("both", one(r#"{"least":1,"median":2.5}"#, "s")),
        ]
        .into_iter()
        .map(|(id, measurement)| (id.to_owned(), measurement))
        .collect()
    }

    #[test]
    fn figures_of_a_page_are_written() {
        let page = "<!-- note --> <!-- figure size -->1 byte<!-- / -->, <!-- megabytes size --><!-- / -->, <!-- figure time -->?<!-- / -->, \
                    <!-- value both -->?<!-- / -->.";
        let (text, used) = written(page, &measurements()).unwrap();
        let expected = "<!-- note --> <!-- figure size -->8,027,136 bytes<!-- / -->, <!-- megabytes size -->8.03 MB<!-- / -->, \
                        <!-- figure time -->70.0 to 72.5 ms<!-- / -->, <!-- value both -->1, 2.5<!-- / -->.";
        assert_eq!(text, expected);
        assert_eq!(used.len(), 3);
        assert_eq!(written(&text, &measurements()).unwrap().0, text);
        assert!(written("<!-- figure none -->1<!-- / -->", &measurements()).unwrap_err().contains("`none`"));
        assert!(written("<!-- figure size -->1", &measurements()).unwrap_err().contains("no end"));
    }

    #[test]
    fn figures_without_a_mark_are_found() {
        let page = "It takes 24 ms (1,024 bytes). <!-- figure time -->70.0 to 72.5 ms<!-- / -->, `5 s`, 256 MiB, 3 users.\n```sh\nsleep 5 s\n```\n";
        assert_eq!(unmarked(page), ["24 ms", "1,024 bytes"]);
    }
}
