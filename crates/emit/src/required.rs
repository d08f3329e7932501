//! Expressions that are evaluated unconditionally.

use rewire_graph::Ordered;
use rewire_graph::pointwise::{Dag, Expr, ExprId};
use std::collections::BTreeSet;

/// For every expression, a bit mask of the expressions that it always needs, including itself.
pub(super) struct Required {
    /// Words of a row.
    pitch: usize,
    bits: Vec<u64>,
}

impl Required {
    pub fn of(dag: &Dag) -> Self {
        let pitch = dag.len().div_ceil(64);
        let mut this = Self { pitch, bits: vec![0; dag.len() * pitch] };
        for id in dag.ids() {
            let expr = dag.expr(id);
            match *expr {
                Expr::Select(condition, a, b) => {
                    this.add(id, |this, word| this.word(condition, word) | this.word(a, word) & this.word(b, word));
                }
                _ => {
                    for operand in expr.operands() {
                        this.add(id, |this, word| this.word(operand, word));
                    }
                }
            }
            let own = id.0 as usize;
            this.bits[own * pitch + own / 64] |= 1 << (own % 64);
        }
        this
    }

    /// The expressions that any of `roots` always needs, in ascending order.
    pub fn by(&self, roots: &[ExprId]) -> BTreeSet<ExprId> {
        let of_word = |word: usize| {
            let all = roots.iter().fold(0, |all, &root| all | self.word(root, word));
            (0..64u32).filter(move |bit| all >> bit & 1 == 1).map(move |bit| ExprId(word as u32 * 64 + bit))
        };
        (0..self.pitch).flat_map(of_word).ordered_set()
    }

    fn word(&self, id: ExprId, word: usize) -> u64 {
        self.bits.get(id.0 as usize * self.pitch + word).copied().unwrap_or(0)
    }

    fn add(&mut self, id: ExprId, of: impl Fn(&Self, usize) -> u64) {
        for word in 0..self.pitch {
            let more = of(self, word);
            self.bits[id.0 as usize * self.pitch + word] |= more;
        }
    }
}
