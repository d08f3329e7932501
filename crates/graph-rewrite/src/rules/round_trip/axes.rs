use rewire_graph::Dim;

/// An axis of a padded computation. A tensor axis consists of one of them, or of several merged, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AxisId(usize);

/// The axes that each tensor axis consists of; none for an extent of 1.
pub(super) type View = Vec<Vec<AxisId>>;

/// The extents of the axes that were found so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Axes {
    extents: Vec<Dim>,
}

/// An axis of constant extent that a reshape splits, and the resulting axes, outermost first.
pub(super) type Divided = (AxisId, Vec<AxisId>);

impl Axes {
    pub(super) fn add(&mut self, extent: Dim) -> AxisId {
        self.extents.push(extent);
        AxisId(self.extents.len() - 1)
    }

    /// The axes of a tensor axis: none if its extent is 1.
    pub(super) fn group(&mut self, extent: &Dim) -> Vec<AxisId> {
        if is_one(extent) { vec![] } else { vec![self.add(extent.clone())] }
    }

    pub(super) fn extent(&self, axis: AxisId) -> Dim {
        self.extents.get(axis.0).cloned().unwrap_or_else(|| 1.into())
    }

    pub(super) fn shape(&self, axes: &[AxisId]) -> Vec<Dim> {
        axes.iter().map(|&axis| self.extent(axis)).collect()
    }

    /// The view of a tensor of `shape` whose elements, in row-major order, run along `axes`; and the axes that the view
    /// splits.
    pub(super) fn regroup(&mut self, axes: &[AxisId], shape: &[Dim]) -> Option<(View, Vec<Divided>)> {
        let mut rest: Vec<AxisId> = axes.iter().rev().copied().collect();
        let (mut view, mut divided): (View, Vec<Divided>) = (vec![], vec![]);
        for dim in shape {
            let (mut group, mut left) = (vec![], dim.clone());
            while !is_one(&left) {
                let axis = rest.pop()?;
                let extent = self.extent(axis);
                if let Some(outer) = quotient(&left, &extent) {
                    group.push(axis);
                    left = outer;
                    continue;
                }
                let [outer, inner] = [left.clone(), quotient(&extent, &left)?].map(|part| self.add(part));
                match divided.iter_mut().find(|(_, parts)| parts.last() == Some(&axis)) {
                    Some((_, parts)) => {
                        parts.pop();
                        parts.extend([outer, inner]);
                    }
                    None => divided.push((axis, vec![outer, inner])),
                }
                group.push(outer);
                rest.push(inner);
                left = 1.into();
            }
            view.push(group);
        }
        rest.is_empty().then_some((view, divided))
    }
}

pub(super) fn is_one(dim: &Dim) -> bool {
    dim.as_const() == Some(1)
}

/// `dim / divisor`, if both divide symbolically.
fn quotient(dim: &Dim, divisor: &Dim) -> Option<Dim> {
    if dim == divisor {
        return Some(1.into());
    }
    match divisor.as_const() {
        Some(divisor) if divisor > 0 => dim.divide(i64::try_from(divisor).ok()?),
        Some(_) => None,
        // `dim` is a constant multiple of one symbol.
        None => {
            let (symbol, factor) = divisor.terms().next()?;
            let times = dim.terms().find(|(other, _)| *other == symbol)?.1;
            let count = usize::try_from(times.checked_div(factor)?).ok()?;
            (divisor.product(&count.into()).as_ref() == Some(dim)).then(|| count.into())
        }
    }
}
