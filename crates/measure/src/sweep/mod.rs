//! Sweeps a size of a workload from small to large, and compares kernels, types and modes.

mod chart;

pub use chart::chart;

use crate::{BenchError, Record, Shape};
use std::str::FromStr;

/// A size with its smallest and its largest value. It doubles from one measurement to the next.
///
/// ```
/// use rewire_measure::{Shape, Sweep};
/// let sweep: Sweep = "max-len=100:500".parse()?;
/// let values: Vec<usize> = sweep.shapes(&Shape::default()).into_iter().map(|(_, shape)| shape.max_len).collect();
/// assert_eq!(values, [100, 200, 400, 500]);
/// # Ok::<(), rewire_measure::BenchError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    axis: String,
    low: usize,
    high: usize,
}

/// A measurement of a sweep.
#[derive(Clone, Debug)]
pub struct Swept {
    /// The value of the size.
    pub value: usize,
    /// True if gradients were computed too.
    pub backward: bool,
    /// The measurement.
    pub record: Record,
}

impl Swept {
    /// `forward` or `backward`.
    pub fn mode(&self) -> &'static str {
        if self.backward { "backward" } else { "forward" }
    }
}

/// Sets a size of a shape.
type Set = fn(&mut Shape, usize);

/// The sizes that can be swept, by the names of their options.
const AXES: [(&str, Set); 15] = [
    ("batch", |shape, value| shape.batch = value),
    ("heads", |shape, value| shape.heads = value),
    ("attn-dim", |shape, value| shape.attn_dim = value),
    ("hidden-dim", |shape, value| shape.hidden_dim = value),
    ("embedding-dim", |shape, value| shape.embedding_dim = value),
    ("layers", |shape, value| shape.layers = value),
    ("max-len", |shape, value| shape.max_len = value),
    ("window", |shape, value| shape.window = value),
    ("context", |shape, value| shape.context = value),
    ("m", |shape, value| shape.m = value),
    ("k", |shape, value| shape.k = value),
    ("n", |shape, value| shape.n = value),
    ("rows", |shape, value| shape.rows = value),
    ("width", |shape, value| shape.width = value),
    ("table", |shape, value| shape.table = value),
];

impl FromStr for Sweep {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Self, BenchError> {
        let parse = || {
            let (axis, range) = text.split_once('=')?;
            let (low, high) = range.split_once(':')?;
            let (low, high) = (low.parse().ok()?, high.parse().ok()?);
            let is_known = AXES.iter().any(|(name, _)| *name == axis);
            (is_known && 0 < low && low <= high).then(|| Self { axis: axis.to_owned(), low, high })
        };
        let known = || AXES.map(|(name, _)| name).join(", ");
        parse().ok_or_else(|| BenchError::Sweep { text: text.to_owned(), known: known() })
    }
}

impl Sweep {
    /// Name of the size.
    pub fn axis(&self) -> &str {
        &self.axis
    }

    /// The values of the size in ascending order, with the resulting shapes.
    pub fn shapes(&self, base: &Shape) -> Vec<(usize, Shape)> {
        let doubled = std::iter::successors(Some(self.low), |value| value.checked_mul(2));
        let values = doubled.take_while(|value| *value < self.high).chain([self.high]);
        let set = AXES.iter().find(|(name, _)| *name == self.axis).map(|(_, set)| set);
        let shape = |value| {
            let mut shape = base.clone();
            set.iter().for_each(|set| set(&mut shape, value));
            (value, shape)
        };
        values.map(shape).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_is_doubled_up_to_its_end() {
        let values = |text: &str| {
            let shapes = text.parse::<Sweep>().unwrap().shapes(&Shape::default());
            shapes.into_iter().map(|(value, _)| value).collect::<Vec<_>>()
        };
        assert_eq!(values("rows=8:64"), [8, 16, 32, 64]);
        assert_eq!(values("rows=8:9"), [8, 9]);
        assert_eq!(values("rows=8:8"), [8]);
        for wrong in ["rows", "rows=1", "rows=0:8", "rows=9:8", "rows=a:8", "column=1:2", "len-dist=1:2"] {
            let error = wrong.parse::<Sweep>().unwrap_err().to_string();
            assert!(error.contains(wrong) && error.contains("max-len"), "{error}");
        }
    }

    #[test]
    fn a_chart_has_a_line_a_series() {
        let point = |value, kernel: &str, backward, wall_ms| Swept {
            value,
            backward,
            record: Record {
                op: "a<b".into(),
                kernel: kernel.into(),
                dtype: "f32".into(),
                wall_ms,
                ..Record::default()
            },
        };
        let points = [
            point(128, "cpu", false, Some(1.0)),
            point(256, "cpu", false, Some(2.0)),
            point(128, "wgpu", false, Some(0.5)),
            point(256, "wgpu", false, None),
            point(128, "cpu", true, Some(0.0)),
        ];
        let svg = chart("max-len", &points);
        assert_eq!((svg.matches("<polyline").count(), svg.matches("<circle").count()), (2, 3), "{svg}");
        assert!(svg.contains("a&lt;b cpu f32 forward") && svg.contains("max-len") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("NaN") && !svg.contains("inf") && !chart("rows", &[]).contains("NaN"));
    }
}
