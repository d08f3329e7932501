//! The tunings of a kernel: what suits it, and what is worth a measurement.

use super::dequantize::dequantized;
use super::{Scheduled, Target, Tuning, emit, scheduled};
use crate::plan::Computation;
use rewire_graph::Dim;
use std::collections::HashSet;

impl Tuning {
    /// This tuning, and what suits sizes that are known: products and attention with too few tiles to occupy a GPU take
    /// smaller ones. Sums run in the same order whatever the tile, unless [`Tuning::split_sums`] allows another.
    #[must_use]
    pub fn suited(self, computation: &Computation, target: &Target, size: impl Fn(&Dim) -> Option<u64>) -> Self {
        of(computation, target, |schedule| schedule.suited(self, target, &size)).unwrap_or(self)
    }

    /// Tunings of a kernel that are worth a measurement, this one first. What it sets stays as it is. Each is emitted, and no
    /// two have the same shader.
    ///
    /// All of them add in the order of this one: every element of a result is the same sum, to the bit, whichever is
    /// taken. So a choice among them may follow the sizes of a run. That holds since
    /// - a product runs over `k` in order whatever its tile, and attention over the keys; tiles that are skipped would add 0,
    /// - as many threads share a row of a reduction,
    /// - cooperative matrices and multiply-adds, which add in different orders, do not mix: [`Tuning::families`] has both.
    ///
    /// ```
    /// use rewire_graph::{DType, Scope};
    /// use rewire_graph_rewrite::emit::{Target, Tuning};
    /// use rewire_graph_rewrite::{lower, optimize};
    /// let scope = Scope::new();
    /// let x = scope.input("x", DType::F32, &[scope.size("rows"), 64.into()]);
    /// let weight = scope.parameter("weight", DType::F32, &[64.into(), 96.into()]);
    /// let plan = lower(&optimize(scope.finish(&[("y", x.matmul(&weight))])?)?.0)?;
    /// let candidates = Tuning::default().candidates(&plan.steps[0].computation, &Target::BASELINE);
    /// assert_eq!(candidates[0], Tuning::default());
    /// assert!(candidates.len() > 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn candidates(&self, computation: &Computation, target: &Target) -> Vec<Self> {
        let base = self.of_family(computation, target);
        let proposals = of(computation, target, |schedule| schedule.candidates(target, &base)).unwrap_or_default();
        let short = |proposal: &Self| !target.software || proposal.is_short();
        let mut shaders = HashSet::new();
        let mut differs =
            |tuning: &Self| emit(computation, target, tuning).is_ok_and(|emitted| shaders.insert(emitted.wgsl));
        let proposals = proposals.into_iter().filter(short).map(|proposal| base.or(proposal));
        let tunings = std::iter::once(base).chain(proposals);
        tunings.filter(|tuning| differs(tuning)).collect()
    }

    /// Threads of a workgroup with so many groups of columns and rows each.
    pub(super) fn per_thread(groups: &[u32], rows: &[u32]) -> Vec<Self> {
        let shares = groups.iter().flat_map(|groups| rows.iter().map(move |rows| (Some(*groups), Some(*rows))));
        let tuning = |(groups_per_thread, rows_per_thread)| {
            let of_threads =
                move |threads| Self { threads: Some(threads), groups_per_thread, rows_per_thread, ..Self::default() };
            [64, 128, 256].map(of_threads)
        };
        shares.flat_map(tuning).collect()
    }

    /// True where nothing is said of a thread's share, and results have so many elements.
    pub(super) fn is_for_many(&self, extents: &[Dim], many: u64, size: &dyn Fn(&Dim) -> Option<u64>) -> bool {
        let elements = extents.iter().map(size).try_fold(1u64, |all, n| Some(all.saturating_mul(n?)));
        let set = [self.threads, self.groups_per_thread, self.rows_per_thread];
        set.iter().all(Option::is_none) && elements.is_some_and(|elements| elements >= many)
    }

    /// This tuning with the choice between cooperative matrices and multiply-adds made, where a kernel has both.
    #[must_use]
    pub fn of_family(self, computation: &Computation, target: &Target) -> Self {
        let cooperative = of(computation, target, |schedule| schedule.is_cooperative(target, &self)).unwrap_or(false);
        Self { matrices: self.matrices.or(cooperative.then_some(true)), ..self }
    }

    /// The tunings that add in orders of their own: cooperative matrices and multiply-adds where a kernel has both, else one.
    /// Which is taken may follow the widths of a kernel and the target, and never the sizes of a run.
    pub fn families(computation: &Computation, target: &Target) -> Vec<Self> {
        let base = Self::default().of_family(computation, target);
        match base.matrices {
            Some(_) => [true, false].map(|matrices| Self { matrices: Some(matrices), ..base }).into(),
            None => vec![base],
        }
    }

    /// True if it makes a short shader, which is soon compiled.
    fn is_short(&self) -> bool {
        self.rows_per_thread.is_none_or(|rows| rows <= 4) && self.groups_per_thread.is_none_or(|groups| groups == 1)
    }

    /// What it sets, and what only `other` sets.
    fn or(self, other: Self) -> Self {
        Self {
            threads: self.threads.or(other.threads),
            groups_per_thread: self.groups_per_thread.or(other.groups_per_thread),
            rows: self.rows.or(other.rows),
            columns: self.columns.or(other.columns),
            depth: self.depth.or(other.depth),
            rows_per_thread: self.rows_per_thread.or(other.rows_per_thread),
            parts: self.parts.or(other.parts),
            split_sums: self.split_sums.or(other.split_sums),
            matrices: self.matrices.or(other.matrices),
        }
    }
}

/// What the schedule of a kernel says of a target; `None` for an operator of a user's own.
fn of<T>(computation: &Computation, target: &Target, say: impl FnOnce(&dyn Scheduled) -> T) -> Option<T> {
    let (computation, _) = dequantized(computation, target);
    match computation.as_ref() {
        Computation::Nest(kernel) => Some(scheduled(kernel, say)),
        Computation::Custom(_) => None,
    }
}
