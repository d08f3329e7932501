use rewire_graph::{Arrange, DType, Dim};
use std::collections::BTreeMap;

/// Assumed value of symbols, to compare sizes of tensors.
const TYPICAL_SYMBOL: i64 = 1000;

/// The steps during which a tensor is in use: from the step that writes it to the last one that reads it, both
/// inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// The first step.
    pub first: usize,
    /// The last step.
    pub last: usize,
    /// Bytes at a typical size, to choose among free slots.
    pub estimate: u64,
}

impl Lifetime {
    /// The lifetime of a tensor of some type, for any sizes of a run.
    pub fn new((first, last): (usize, usize), dtype: DType, shape: &[Dim]) -> Self {
        let extents = shape.iter().map(|dim| dim.evaluate(|_| Some(TYPICAL_SYMBOL)).unwrap_or(1) as u64);
        Self { first, last, estimate: dtype.format().bytes(extents.fold(1, u64::saturating_mul)) }
    }
}

/// The assignment of tensors to shared buffers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotPlan {
    /// The slot of each tensor.
    pub slot: Vec<usize>,
    /// Number of slots.
    pub slots: usize,
}

impl SlotPlan {
    /// Assigns slots so that no two tensors in a slot are in use at the same step.
    ///
    /// Largest tensors first; each gets the smallest slot that is free during its lifetime.
    pub fn new(lifetimes: &[Lifetime]) -> Self {
        let mut order: Vec<usize> = (0..lifetimes.len()).collect();
        order.arrange_by_key(|&n| (std::cmp::Reverse(lifetimes[n].estimate), lifetimes[n].first, n));
        let mut slot = vec![0; lifetimes.len()];
        let mut slots: Vec<Slot> = Vec::new();
        for n in order {
            let life = &lifetimes[n];
            // Slots are created in descending order of size.
            slot[n] = slots.iter().rposition(|slot| slot.is_free(life)).unwrap_or(slots.len());
            if slot[n] == slots.len() {
                slots.push(Slot::default());
            }
            slots[slot[n]].taken.insert(life.first, life.last);
        }
        Self { slot, slots: slots.len() }
    }
}

/// The step ranges in which a slot is in use, without overlaps: last step by first step.
#[derive(Default)]
struct Slot {
    taken: BTreeMap<usize, usize>,
}

impl Slot {
    fn is_free(&self, life: &Lifetime) -> bool {
        self.taken.range(..=life.last).next_back().is_none_or(|(_, last)| *last < life.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(first: usize, last: usize, estimate: u64) -> Lifetime {
        Lifetime { first, last, estimate }
    }

    #[test]
    fn a_chain_takes_two_slots() {
        let chain: Vec<Lifetime> = (0..9).map(|n| life(n, n + 1, 64)).collect();
        assert_eq!(SlotPlan::new(&chain).slots, 2);
    }

    #[test]
    fn tensors_of_growing_sizes_share_the_largest() {
        let growing: Vec<Lifetime> = (1..8).map(|n| life(2 * n, 2 * n + 1, n as u64)).collect();
        assert_eq!(SlotPlan::new(&growing).slots, 1);
        // A tensor that outlives the others has a slot of its size.
        let plan = SlotPlan::new(&[life(0, 9, 5), life(0, 1, 1), life(2, 3, 9), life(4, 9, 9)]);
        assert_eq!(plan.slot, [1, 0, 0, 0]);
    }

    #[test]
    fn a_small_tensor_leaves_the_large_slot_free() {
        let plan = SlotPlan::new(&[life(0, 0, 1000), life(0, 0, 10), life(1, 3, 8), life(2, 3, 900)]);
        assert_eq!(plan.slots, 2);
        assert_eq!(plan.slot[2], plan.slot[1]);
    }
}
