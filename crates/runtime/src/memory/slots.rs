/// When a tensor is in use: from the step that writes it to the last that reads it, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub first: usize,
    pub last: usize,
    /// Bytes at a typical size, to choose among free slots.
    pub estimate: u64,
}

/// Which tensors share a device buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotPlan {
    /// The slot of each tensor.
    pub slot: Vec<usize>,
    /// Number of slots.
    pub slots: usize,
}

impl SlotPlan {
    /// Gives each lifetime a slot that no other one has at the same step.
    ///
    /// A tensor takes the smallest free slot that holds it, else the largest, which then grows.
    pub fn new(lifetimes: &[Lifetime]) -> Self {
        let mut order: Vec<usize> = (0..lifetimes.len()).collect();
        order.sort_by_key(|&n| (lifetimes[n].first, std::cmp::Reverse(lifetimes[n].estimate), n));
        let mut slot = vec![0; lifetimes.len()];
        let mut slots: Vec<(usize, u64)> = Vec::new();
        for n in order {
            let Lifetime { first, last, estimate } = lifetimes[n];
            let free = || slots.iter().enumerate().filter(|(_, (busy, _))| *busy < first);
            let fits = free().filter(|(_, (_, size))| *size >= estimate).min_by_key(|(_, (_, size))| *size);
            let chosen = fits.or_else(|| free().max_by_key(|(_, (_, size))| *size)).map(|(position, _)| position);
            slot[n] = chosen.unwrap_or(slots.len());
            match chosen {
                Some(position) => slots[position] = (last, slots[position].1.max(estimate)),
                None => slots.push((last, estimate)),
            }
        }
        Self { slot, slots: slots.len() }
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
    fn a_small_tensor_leaves_the_large_slot_free() {
        let plan = SlotPlan::new(&[life(0, 0, 1000), life(0, 0, 10), life(1, 3, 8), life(2, 3, 900)]);
        assert_eq!(plan.slots, 2);
        assert_eq!(plan.slot[2], plan.slot[1]);
    }
}
