use super::Trie;

/// A trie as arrays for devices. Its states are prefixes, numbered from 0, the root, followed by items.
#[derive(Debug)]
pub(super) struct TrieTables {
    /// The first entry of every prefix, and the number of entries.
    pub offsets: Vec<i32>,
    /// Per entry, the token that may follow.
    pub tokens: Vec<i32>,
    /// Per entry, the next state.
    pub states: Vec<i32>,
    pub levels: Vec<Level>,
    /// Per state, the previous state and the token that leads to it; unused for the root.
    from: Vec<(u32, u32)>,
}

/// Counts of a level.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Level {
    /// The maximum number of entries of a prefix.
    pub entries: usize,
    /// Prefixes below the level, and items up to it.
    pub states: usize,
}

impl TrieTables {
    pub fn new(trie: &Trie) -> Self {
        let prefixes = trie.prefixes();
        let from = vec![(0, 0); prefixes + trie.ids()];
        let mut tables = Self { offsets: vec![], tokens: vec![], states: vec![], levels: vec![], from };
        let (mut parents, mut prefix, mut items) = (vec![trie.root()], 0, 0);
        for level in 0..trie.levels() {
            let mut children = vec![];
            let first = prefix + parents.len();
            let mut most = 0;
            for parent in &parents {
                let begun = tables.tokens.len();
                tables.offsets.push(begun as i32);
                for node in trie.nodes(level, parent) {
                    if let Some(leaf) = node.leaf {
                        tables.push(prefix, node.code, prefixes + leaf as usize);
                        items += 1;
                    }
                    if !node.children.is_empty() {
                        tables.push(prefix, node.code, first + children.len());
                        children.push(node.children.clone());
                    }
                }
                most = most.max(tables.tokens.len() - begun);
                prefix += 1;
            }
            tables.levels.push(Level { entries: most, states: children.len() + items });
            parents = children;
        }
        tables.offsets.push(tables.tokens.len() as i32);
        tables
    }

    fn push(&mut self, prefix: usize, token: u32, state: usize) {
        self.tokens.push(token as i32);
        self.states.push(state as i32);
        if let Some(from) = self.from.get_mut(state) {
            *from = (prefix as u32, token);
        }
    }

    /// The possible tokens after a state, one per entry. An item has one entry, itself, with an unused token.
    pub fn tokens_after(&self, state: u32) -> &[i32] {
        match self.offsets.get(state as usize..) {
            Some(&[first, end, ..]) => self.tokens.get(first as usize..end as usize).unwrap_or(&[]),
            _ => &[0],
        }
    }

    /// The state before a state, and the token between them; `None` for the root.
    pub fn before(&self, state: u32) -> Option<(u32, u32)> {
        self.from.get(state as usize).copied().filter(|_| state > 0)
    }

    /// The leaf of a state, if it is an item.
    pub fn leaf(&self, state: u32) -> Option<u32> {
        state.checked_sub(self.offsets.len() as u32 - 1)
    }

    /// The codes that lead to a state.
    pub fn codes(&self, mut state: u32) -> Vec<u32> {
        let mut codes = vec![];
        while let Some((before, token)) = self.before(state) {
            codes.push(token);
            state = before;
        }
        codes.reverse();
        codes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_the_prefixes_and_items_of_a_trie() {
        let ids = [vec![7], vec![3, 1, 4], vec![7, 0], vec![3, 2], vec![9, 9, 8]];
        let trie = Trie::of_tokens(10, (0..).zip(ids.clone())).unwrap();
        let tables = TrieTables::new(&trie);
        assert_eq!(tables.offsets, [0, 4, 6, 7, 8, 9, 10]);
        assert_eq!(
            tables.levels.iter().map(|level| (level.entries, level.states)).collect::<Vec<_>>(),
            [(4, 4), (2, 5), (1, 5)]
        );
        for state in 6..11 {
            let leaf = tables.leaf(state).unwrap();
            let [item] = trie.items(leaf) else { panic!("not one item") };
            assert_eq!(tables.codes(state), ids[*item as usize]);
        }
        assert_eq!((tables.codes(0), tables.codes(4), tables.leaf(5)), (vec![], vec![3, 1], None));
        assert_eq!((tables.before(0), tables.before(4)), (None, Some((1, 1))));
        let after = [0, 1, 6].map(|state| tables.tokens_after(state));
        assert_eq!(after, [&[3, 7, 7, 9][..], &[1, 2], &[0]]);
    }
}
