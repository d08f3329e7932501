//! Non-maximum suppression. The number of selected boxes depends on the data, so the operands must be known.

use super::Many;
use crate::onnx::item::Item;
use crate::onnx::node::Node;
use crate::value::{Fault, Lowered};

pub(super) const MANY: Many = &[("NonMaxSuppression", non_max_suppression)];

/// A box with its lower and upper corner.
#[derive(Clone, Copy)]
struct Rectangle {
    low: [f32; 2],
    high: [f32; 2],
}

impl Rectangle {
    fn of(numbers: &[f32], is_centered: bool) -> Option<Self> {
        let &[a, b, c, d] = numbers else { return None };
        if is_centered {
            let half = [c / 2.0, d / 2.0];
            return Some(Self { low: [a - half[0], b - half[1]], high: [a + half[0], b + half[1]] });
        }
        // The corners may be on either diagonal.
        Some(Self { low: [a.min(c), b.min(d)], high: [a.max(c), b.max(d)] })
    }

    fn area(&self) -> f32 {
        (self.high[0] - self.low[0]) * (self.high[1] - self.low[1])
    }

    /// Intersection over union of two boxes.
    fn overlap(&self, other: &Self) -> f32 {
        let side = |axis: usize| self.high[axis].min(other.high[axis]) - self.low[axis].max(other.low[axis]);
        let (width, height) = (side(0), side(1));
        if width <= 0.0 || height <= 0.0 {
            return 0.0;
        }
        let shared = width * height;
        shared / (self.area() + other.area() - shared)
    }
}

/// For each class of each image, boxes by descending score, without boxes that overlap a selected one.
fn non_max_suppression(n: &Node<'_>) -> Lowered<Vec<Item>> {
    let (boxes, scores) = (n.constant(0)?, n.constant(1)?);
    let (&[images, count, 4], &[_, classes, _]) = (boxes.data.tensor.shape(), scores.data.tensor.shape()) else {
        return Fault::program("NonMaxSuppression: boxes or scores of other axes");
    };
    if scores.data.tensor.shape() != [images, classes, count] {
        return Fault::program("NonMaxSuppression: expected one score per box");
    }
    let most = if n.has(2) { usize::try_from(n.known_int(2)?).unwrap_or(0) } else { 0 };
    let limit = |place: usize, default: f32| -> Lowered<f32> {
        let given = if n.has(place) { n.known_floats(place)?.first().copied() } else { None };
        Ok(given.map_or(default, |limit| limit as f32))
    };
    let (overlap, least) = (limit(3, 0.0)?, limit(4, f32::NEG_INFINITY)?);
    let numbers: Vec<f32> = boxes.data.tensor.to_f64().into_iter().map(|x| x as f32).collect();
    let is_centered = n.int("center_point_box", 0) != 0;
    let rectangles: Option<Vec<Rectangle>> = numbers.chunks(4).map(|box_| Rectangle::of(box_, is_centered)).collect();
    let rectangles = rectangles.ok_or_else(|| Fault::Program("NonMaxSuppression: no boxes".to_owned()))?;
    let scores = scores.data.tensor.to_f64();
    let mut selected = vec![];
    for (place, scores) in scores.chunks(count.max(1)).enumerate().take(images * classes) {
        let own = &rectangles[place / classes * count..][..count];
        let mut order: Vec<usize> = (0..count).filter(|&at| scores[at] as f32 > least).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        let mut kept: Vec<usize> = vec![];
        for at in order {
            if kept.len() < most && kept.iter().all(|&other| own[at].overlap(&own[other]) <= overlap) {
                kept.push(at);
            }
        }
        selected.extend(kept.into_iter().flat_map(|at| [place / classes, place % classes, at].map(|n| n as i64)));
    }
    Ok(vec![Item::integers(vec![selected.len() / 3, 3], &selected)?])
}
