use std::fmt::Write;

const CHARACTER: f64 = 6.7;
const LINE: f64 = 12.0;
/// Half the side length of a point's area.
const POINT: f64 = 4.5;

/// A rectangle: left, top, right, bottom.
#[derive(Clone, Copy)]
struct Area([f64; 4]);

impl Area {
    fn meets(&self, other: &Self) -> bool {
        let (Self([l, t, r, b]), Self([left, top, right, bottom])) = (self, other);
        l < right && left < r && t < bottom && top < b
    }
}

/// Places labels so that they do not overlap other labels, points or lines.
pub(super) struct Labels {
    frame: Area,
    taken: Vec<Area>,
}

impl Labels {
    pub fn within([(left, top), (right, bottom)]: [(f64, f64); 2]) -> Self {
        Self { frame: Area([left, top, right, bottom]), taken: vec![] }
    }

    /// Marks a point as occupied.
    pub fn keep_point(&mut self, (x, y): (f64, f64)) {
        self.taken.push(Area([x - POINT, y - POINT, x + POINT, y + POINT]));
    }

    /// Marks a line as occupied.
    pub fn keep_line(&mut self, (x, y): (f64, f64), (end_x, end_y): (f64, f64)) {
        let steps = ((end_x - x).hypot(end_y - y) / POINT).ceil().max(1.0);
        let at = |step: usize| {
            let part = step as f64 / steps;
            (x + (end_x - x) * part, y + (end_y - y) * part)
        };
        let areas = (0..=steps as usize).map(at).map(|(x, y)| Area([x - 1.0, y - 1.0, x + 1.0, y + 1.0]));
        self.taken.extend(areas);
    }

    /// Writes a label as close to a point as possible, with a leader line if it is not adjacent. If there is no space, writes nothing.
    pub fn write(&mut self, svg: &mut String, (x, y): (f64, f64), text: &str) {
        let width = CHARACTER * text.chars().count() as f64;
        let Some((area, distance)) = self.free(width, (x, y)) else { return };
        let Area([left, top, right, bottom]) = area;
        if distance > 0 {
            let end = x.clamp(left, right);
            let edge = if bottom < y { bottom } else { top };
            let _ = writeln!(svg, "<path class=\"leader\" d=\"M{x:.1} {y:.1}L{end:.1} {edge:.1}\"/>");
        }
        let _ = writeln!(svg, "<text x=\"{left:.1}\" y=\"{:.1}\">{text}</text>", bottom - 3.0);
        self.taken.push(area);
    }

    /// Finds a free area for a label. Also returns its distance from the point in lines.
    fn free(&self, width: f64, (x, y): (f64, f64)) -> Option<(Area, i32)> {
        let lefts = [x + POINT + 2.0, x - POINT - 2.0 - width, x - width / 2.0];
        let distances = (0..10_i32).flat_map(|lines| [-lines, lines]);
        let places = distances.flat_map(|lines| lefts.map(|left| (left, lines)));
        let areas = places.map(|(left, lines)| {
            let top = y - LINE / 2.0 + LINE * f64::from(lines);
            (Area([left, top + 0.5, left + width, top + LINE - 0.5]), lines.abs())
        });
        let Area([left, top, right, bottom]) = self.frame;
        areas.into_iter().find(|(area, _)| {
            let Area([l, t, r, b]) = *area;
            l >= left && t >= top && r <= right && b <= bottom && !self.taken.iter().any(|taken| area.meets(taken))
        })
    }
}
