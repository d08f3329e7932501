//! Loads from operands. All are total: what lies out of range reads as zero.

use super::execute::{Execution, Lanes};
use super::memory::Elements;
use super::operand::View;
use super::program::{Last, Load, Source};
use half::f16;
use half::slice::HalfFloatSliceExt;
use rewire_graph::Scalar;

/// An offset that is out of range, as is every sum of up to eight of them.
const OUTSIDE: usize = usize::MAX / 16;

impl Execution<'_, '_> {
    pub(super) fn load(&mut self, load: &Load, kind: Scalar, target: Source) {
        let Some(view) = self.env.views.get(usize::from(load.operand)) else { return };
        match &load.last {
            Some(Last::Run(terms)) => self.load_run(load, view, terms, kind, target),
            Some(Last::At(last)) => self.load_gather(load, view, *last, kind, target),
            None => self.load_row(view, Some(0), kind, target),
        }
    }

    /// Loads neighbouring elements; those beyond the last dimension are zero.
    fn load_run(&mut self, load: &Load, view: &View<'_>, terms: &[(Source, i32)], kind: Scalar, target: Source) {
        let mut row = Some(0usize);
        for ((&index, &extent), &stride) in load.index.iter().zip(&view.shape).zip(&view.strides) {
            let index = self.int(index) as usize;
            row = row.filter(|_| index < extent).map(|row| row + index * stride);
        }
        let first = terms
            .iter()
            .fold(self.start as i32, |sum, &(term, sign)| sum.wrapping_add(self.int(term).wrapping_mul(sign)));
        let width = view.shape.iter().skip(load.index.len()).product::<usize>() as i64;
        let n = self.n as i64;
        let (from, to) = (i64::from(first).clamp(0, width), (i64::from(first) + n).clamp(0, width));
        let (from, to) = if row.is_some() && from < to { (from, to) } else { (0, 0) };
        let start = row.unwrap_or(0) + from as usize;
        let (len, skip) = ((to - from) as usize, (from - i64::from(first)).clamp(0, n) as usize);
        if let Source::InPlace(slot) = target {
            self.place_run(load.operand, slot, view, (start, len, skip));
        } else {
            let elements = view.elements;
            match kind {
                Scalar::F32 => self.write_floats(target, |_, out| {
                    fill_run(out, (len, skip), |out| copy_floats(elements, start, out));
                }),
                Scalar::I64 => self.write_longs(target, |_, out| {
                    fill_run(out, (len, skip), |out| copy_longs(elements, start, out));
                }),
                _ => self.write_ints(target, |_, out| {
                    fill_run(out, (len, skip), |out| copy_ints(elements, start, out));
                }),
            }
        }
    }

    fn place_run(&mut self, operand: u16, slot: u16, view: &View<'_>, (start, len, skip): (usize, usize, usize)) {
        let n = self.n;
        let Some(run) = self.registers.runs.get_mut(usize::from(slot)) else { return };
        run.operand = operand.into();
        if len == n && matches!(view.elements, Elements::F32(_)) {
            run.start = start;
        } else {
            run.start = usize::MAX;
            fill_run(&mut run.copy[..n], (len, skip), |out| copy_floats(view.elements, start, out));
        }
    }

    /// Loads elements anywhere; those out of range are zero.
    fn load_gather(&mut self, load: &Load, view: &View<'_>, last: Source, kind: Scalar, target: Source) {
        if matches!(target, Source::Row(_)) {
            let mut at = Some(0usize);
            let indices = load.index.iter().chain(std::iter::once(&last));
            for ((&index, &extent), &stride) in indices.zip(&view.shape).zip(&view.strides) {
                let index = self.int(index) as u32 as usize;
                at = at.filter(|_| index < extent).map(|at| at + index * stride);
            }
            return self.load_row(view, at, kind, target);
        }
        let mut offsets = std::mem::take(&mut self.registers.offsets);
        let lanes = &mut offsets[..self.n];
        lanes.fill(0);
        let indices = load.index.iter().chain(std::iter::once(&last));
        for ((&index, &extent), &stride) in indices.zip(&view.shape).zip(&view.strides) {
            let index = self.ints(index);
            let step = |i: i32| if (i as u32 as usize) < extent { i as u32 as usize * stride } else { OUTSIDE };
            match index {
                Lanes::Same(i) => lanes.iter_mut().for_each(|at| *at = at.wrapping_add(step(i))),
                Lanes::Each(i) => lanes.iter_mut().zip(i).for_each(|(at, &i)| *at = at.wrapping_add(step(i))),
            }
        }
        let elements = view.elements;
        match kind {
            Scalar::F32 => self.write_floats(target, |_, out| gather_floats(elements, lanes, out)),
            Scalar::I64 => self.write_longs(target, |_, out| gather_longs(elements, lanes, out)),
            _ => self.write_ints(target, |_, out| gather_ints(elements, lanes, out)),
        }
        self.registers.offsets = offsets;
    }

    fn load_row(&mut self, view: &View<'_>, at: Option<usize>, kind: Scalar, target: Source) {
        let (elements, at) = (view.elements, [at.unwrap_or(usize::MAX)]);
        match kind {
            Scalar::F32 => self.write_floats(target, |_, out| gather_floats(elements, &at, out)),
            Scalar::I64 => self.write_longs(target, |_, out| gather_longs(elements, &at, out)),
            _ => self.write_ints(target, |_, out| gather_ints(elements, &at, out)),
        }
    }
}

/// Fills `len` values after the first `skip` ones; the others become zero.
fn fill_run<T: Copy + Default>(out: &mut [T], (len, skip): (usize, usize), copy: impl FnOnce(&mut [T])) {
    if len < out.len() {
        out.fill(T::default());
    }
    if let Some(part) = out.get_mut(skip..skip + len) {
        copy(part);
    }
}

macro_rules! access {
    ($copy:ident, $gather:ident, $type:ty, $zero:expr, $($variant:ident => $convert:expr),+ $(,)?) => {
        fn $copy(elements: Elements<'_>, start: usize, out: &mut [$type]) {
            match elements {
                $(Elements::$variant(e) => {
                    let found = e.get(start..).unwrap_or(&[]);
                    out.iter_mut().zip(found).for_each(|(out, &e)| *out = $convert(e));
                })+
                _ => out.fill($zero),
            }
        }

        fn $gather(elements: Elements<'_>, at: &[usize], out: &mut [$type]) {
            match elements {
                $(Elements::$variant(e) => {
                    out.iter_mut().zip(at).for_each(|(out, &at)| *out = e.get(at).map_or($zero, |&e| $convert(e)));
                })+
                _ => out.fill($zero),
            }
        }
    };
}

access!(copy_plain_floats, gather_floats, f32, 0.0, F32 => |e: f32| e, F16 => f16::to_f32);
access!(copy_ints, gather_ints, i32, 0,
    I32 => |e: i32| e, Bool => |e: u32| i32::from(e != 0), I64 => |e: i64| e as i32);
access!(copy_longs, gather_longs, i64, 0, I64 => |e: i64| e, I32 => i64::from);

fn copy_floats(elements: Elements<'_>, start: usize, out: &mut [f32]) {
    match elements {
        Elements::F16(e) => {
            if let Some(found) = e.get(start..start.saturating_add(out.len())) {
                found.convert_to_f32_slice(out);
            }
        }
        _ => copy_plain_floats(elements, start, out),
    }
}
