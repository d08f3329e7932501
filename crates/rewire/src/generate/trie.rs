use super::GenerateError;
use std::ops::Range;
use std::sync::Arc;

/// The valid items, as semantic ids or tokens: a prefix tree of their codes.
///
/// ```
/// use rewire::generate::Trie;
/// let trie = Trie::new(&[4, 4], [(7, vec![1, 2]), (9, vec![1, 3]), (8, vec![1, 2])])?;
/// assert_eq!((trie.ids(), trie.levels()), (2, 2));
/// # Ok::<(), rewire::generate::GenerateError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trie {
    /// The nodes below the root by level; the children of a node are adjacent, in ascending order of their codes.
    levels: Vec<Vec<Node>>,
    /// Items by leaf.
    items: Vec<Vec<i64>>,
    /// Shared with its clones.
    identity: Arc<()>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub code: u32,
    /// Nodes of the next level.
    pub children: Range<u32>,
    /// The leaf, if an id ends at this node.
    pub leaf: Option<u32>,
}

impl Trie {
    /// The trie of items with their semantic ids, one code per level. Several items may share an id.
    ///
    /// # Errors
    /// [`GenerateError::Id`] for an id with a wrong number of levels, or a code outside its level.
    pub fn new(codes: &[usize], items: impl IntoIterator<Item = (i64, Vec<u32>)>) -> Result<Self, GenerateError> {
        let mut trie = Self::checked(items, |id| match id.len() == codes.len() && fits(id, codes) {
            true => Ok(()),
            false => Err(codes.to_vec()),
        })?;
        trie.levels.resize(codes.len(), vec![]);
        Ok(trie)
    }

    /// The trie of items as tokens of a vocabulary. Items may have different lengths, and one may be a prefix of another.
    ///
    /// # Errors
    /// [`GenerateError::Id`] for an item without tokens, or with a token outside the vocabulary.
    pub fn of_tokens(
        vocabulary: usize,
        items: impl IntoIterator<Item = (i64, Vec<u32>)>,
    ) -> Result<Self, GenerateError> {
        Self::checked(items, |id| match !id.is_empty() && id.iter().all(|&token| (token as usize) < vocabulary) {
            true => Ok(()),
            false => Err(vec![vocabulary; id.len().max(1)]),
        })
    }

    fn checked(
        items: impl IntoIterator<Item = (i64, Vec<u32>)>,
        check: impl Fn(&[u32]) -> Result<(), Vec<usize>>,
    ) -> Result<Self, GenerateError> {
        let mut all: Vec<(Vec<u32>, i64)> = items.into_iter().map(|(item, id)| (id, item)).collect();
        for (id, item) in &all {
            check(id).map_err(|codes| GenerateError::Id { item: *item, id: id.clone(), codes })?;
        }
        all.sort_unstable();
        all.dedup();
        let levels = all.iter().map(|(id, _)| id.len()).max().unwrap_or(0);
        let mut trie = Self { levels: vec![vec![]; levels], items: vec![], identity: Arc::default() };
        let mut before: &[u32] = &[];
        for (id, item) in &all {
            let shared = id.iter().zip(before).take_while(|(a, b)| a == b).count();
            if shared < id.len() {
                trie.add(id, shared);
            }
            trie.items.last_mut().into_iter().for_each(|items| items.push(*item));
            before = id;
        }
        Ok(trie)
    }

    /// Appends an id; its first `shared` levels are those of the previous id.
    fn add(&mut self, id: &[u32], shared: usize) {
        let mut leaf = Some(self.items.len() as u32);
        self.items.push(vec![]);
        let mut below = self.levels.get(id.len()).map_or(0, Vec::len) as u32;
        for (level, &code) in id.iter().enumerate().rev() {
            let Some(nodes) = self.levels.get_mut(level) else { continue };
            if level >= shared {
                let first = below - u32::from(leaf.is_none());
                nodes.push(Node { code, children: first..below, leaf: leaf.take() });
            } else if let Some(last) = nodes.last_mut() {
                last.children.end = below;
            }
            below = nodes.len() as u32;
        }
    }

    /// The number of codes of the longest id.
    pub fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Number of ids.
    pub fn ids(&self) -> usize {
        self.items.len()
    }

    /// The number of prefixes that may be continued, including the empty one.
    pub(super) fn prefixes(&self) -> usize {
        1 + self.levels.iter().flatten().filter(|node| !node.children.is_empty()).count()
    }

    /// Equal pointers identify equal tries.
    pub(super) fn identity(&self) -> &Arc<()> {
        &self.identity
    }

    /// The nodes of the first level.
    pub(super) fn root(&self) -> Range<u32> {
        0..self.levels.first().map_or(0, |nodes| nodes.len() as u32)
    }

    /// Nodes of a level.
    pub(super) fn nodes(&self, level: usize, nodes: &Range<u32>) -> &[Node] {
        let level = self.levels.get(level).map(Vec::as_slice).unwrap_or_default();
        level.get(nodes.start as usize..nodes.end as usize).unwrap_or_default()
    }

    /// The tokens that are allowed at each position of concatenated items; `None` if a token does not continue an item.
    #[cfg(feature = "train")]
    pub(super) fn walk<'a>(&'a self, tokens: &'a [u32]) -> impl Iterator<Item = Option<Vec<u32>>> + 'a {
        let mut open = vec![(0, self.root())];
        tokens.iter().map(move |&token| {
            let nodes = |(level, nodes): &(usize, Range<u32>)| {
                let level = *level;
                self.nodes(level, nodes).iter().map(move |node| (level, node))
            };
            let nodes: Vec<(usize, &Node)> = open.iter().flat_map(nodes).collect();
            let taken: Vec<_> = nodes.iter().filter(|(_, node)| node.code == token).collect();
            let ends = taken.iter().any(|(_, node)| node.leaf.is_some());
            let longer = taken.iter().map(|(level, node)| (level + 1, node.children.clone()));
            open = longer.chain(ends.then(|| (0, self.root()))).collect();
            (!open.is_empty()).then(|| nodes.iter().map(|(_, node)| node.code).collect())
        })
    }

    /// The items of a leaf.
    pub(super) fn items(&self, leaf: u32) -> &[i64] {
        self.items.get(leaf as usize).map(Vec::as_slice).unwrap_or_default()
    }
}

fn fits(id: &[u32], codes: &[usize]) -> bool {
    id.iter().zip(codes).all(|(&code, &codes)| (code as usize) < codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(trie: &Trie, level: usize, nodes: &Range<u32>) -> Vec<(Vec<u32>, Vec<i64>)> {
        let below = |node: &Node| {
            let own = node.leaf.map(|leaf| (vec![], trie.items(leaf).to_vec()));
            let rest = own.into_iter().chain(paths(trie, level + 1, &node.children));
            rest.map(|(path, items)| ([vec![node.code], path].concat(), items)).collect::<Vec<_>>()
        };
        trie.nodes(level, nodes).iter().flat_map(below).collect()
    }

    fn all(trie: &Trie) -> Vec<(Vec<u32>, Vec<i64>)> {
        paths(trie, 0, &trie.root())
    }

    #[test]
    fn a_trie_holds_what_it_was_made_of() {
        let ids = [(5, vec![2, 0, 1]), (3, vec![0, 1, 1]), (4, vec![2, 0, 1]), (9, vec![2, 0, 0]), (1, vec![0, 3, 2])];
        let trie = Trie::new(&[3, 4, 3], ids).unwrap();
        let expected: Vec<(Vec<u32>, Vec<i64>)> = vec![
            (vec![0, 1, 1], vec![3]),
            (vec![0, 3, 2], vec![1]),
            (vec![2, 0, 0], vec![9]),
            (vec![2, 0, 1], vec![4, 5]),
        ];
        assert_eq!((all(&trie), trie.ids()), (expected, 4));
        let none = Trie::new(&[3], []).unwrap();
        assert_eq!((none.ids(), none.root()), (0, 0..0));
    }

    #[test]
    fn items_of_tokens_have_any_length_and_begin_others() {
        let ids =
            [vec![7], vec![3, 1, 4, 1], vec![7, 0, 2], vec![3], vec![7, 0], vec![3, 1, 4, 2], vec![9, 9], vec![7, 8]];
        let mut expected: Vec<(Vec<u32>, Vec<i64>)> = ids.iter().cloned().zip((0..).map(|item| vec![item])).collect();
        let trie = Trie::of_tokens(10, (0..).zip(ids)).unwrap();
        expected.sort_unstable();
        assert_eq!((all(&trie), trie.ids(), trie.levels()), (expected, 8, 4));
        for id in [vec![], vec![3, 10]] {
            assert!(matches!(Trie::of_tokens(10, [(2, id)]), Err(GenerateError::Id { item: 2, .. })));
        }
    }

    #[test]
    fn ids_that_cannot_be_are_errors() {
        for id in [vec![1], vec![1, 4], vec![0, 0, 0]] {
            let error = Trie::new(&[3, 4], [(8, id)]).unwrap_err().to_string();
            assert!(error.contains("item 8") && error.contains("[3, 4]"), "{error}");
        }
    }
}
