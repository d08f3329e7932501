use super::GenerateError;
use std::ops::Range;

/// The semantic ids that there are: which codes may follow which.
///
/// ```
/// use rewire::generate::Trie;
/// let trie = Trie::new(&[4, 4], [(7, vec![1, 2]), (9, vec![1, 3]), (8, vec![1, 2])])?;
/// assert_eq!((trie.ids(), trie.levels()), (2, 2));
/// # Ok::<(), rewire::generate::GenerateError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trie {
    /// By level the nodes below the root, those of a parent side by side in ascending order of their codes.
    levels: Vec<Vec<Node>>,
    /// Items by leaf.
    items: Vec<Vec<i64>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    code: u32,
    /// Nodes of the next level; of the last level a leaf.
    children: Range<u32>,
}

impl Trie {
    /// Of items with their semantic ids, a code a level. Several items may have one id.
    ///
    /// # Errors
    /// [`GenerateError::Id`] for an id with another number of levels, or a code beyond its level.
    pub fn new(codes: &[usize], items: impl IntoIterator<Item = (i64, Vec<u32>)>) -> Result<Self, GenerateError> {
        let mut all: Vec<(Vec<u32>, i64)> = items.into_iter().map(|(item, id)| (id, item)).collect();
        for (id, item) in &all {
            let fits = id.len() == codes.len() && id.iter().zip(codes).all(|(&code, &codes)| (code as usize) < codes);
            if !fits {
                return Err(GenerateError::Id { item: *item, id: id.clone(), codes: codes.to_vec() });
            }
        }
        all.sort_unstable();
        all.dedup();
        let mut trie = Self { levels: vec![vec![]; codes.len()], items: vec![] };
        let mut before: &[u32] = &[];
        for (id, item) in &all {
            let shared = id.iter().zip(before).take_while(|(a, b)| a == b).count();
            if shared < id.len() || before.is_empty() {
                trie.add(id, shared);
            }
            trie.items.last_mut().into_iter().for_each(|items| items.push(*item));
            before = id;
        }
        Ok(trie)
    }

    /// Adds an id after all others, of which `shared` levels are those of the last one.
    fn add(&mut self, id: &[u32], shared: usize) {
        self.items.push(vec![]);
        let mut next = self.items.len() as u32;
        for (level, &code) in id.iter().enumerate().rev() {
            let Some(nodes) = self.levels.get_mut(level) else { continue };
            if level >= shared {
                nodes.push(Node { code, children: next - 1..next });
            } else if let Some(last) = nodes.last_mut() {
                last.children.end = next;
            }
            next = nodes.len() as u32;
        }
    }

    /// Number of levels.
    pub fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Number of semantic ids.
    pub fn ids(&self) -> usize {
        self.items.len()
    }

    /// The nodes of the first level.
    pub(super) fn root(&self) -> Range<u32> {
        0..self.levels.first().map_or(0, |nodes| nodes.len() as u32)
    }

    /// Codes that may follow, with what may follow them.
    pub(super) fn follow(&self, level: usize, nodes: Range<u32>) -> impl Iterator<Item = (u32, Range<u32>)> {
        let level = self.levels.get(level).map(Vec::as_slice).unwrap_or_default();
        let nodes = level.get(nodes.start as usize..nodes.end as usize).unwrap_or_default();
        nodes.iter().map(|node| (node.code, node.children.clone()))
    }

    /// The items of a leaf.
    pub(super) fn items(&self, leaf: &Range<u32>) -> &[i64] {
        self.items.get(leaf.start as usize).map(Vec::as_slice).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(trie: &Trie, level: usize, nodes: Range<u32>) -> Vec<(Vec<u32>, Vec<i64>)> {
        if level == trie.levels() {
            return vec![(vec![], trie.items(&nodes).to_vec())];
        }
        let below = |(code, children): (u32, Range<u32>)| {
            let rest = paths(trie, level + 1, children);
            rest.into_iter().map(move |(path, items)| ([vec![code], path].concat(), items))
        };
        trie.follow(level, nodes).flat_map(below).collect()
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
        assert_eq!(paths(&trie, 0, trie.root()), expected);
        assert_eq!(trie.ids(), 4);
        let none = Trie::new(&[3], []).unwrap();
        assert_eq!((none.ids(), none.root()), (0, 0..0));
    }

    #[test]
    fn ids_that_cannot_be_are_errors() {
        for id in [vec![1], vec![1, 4], vec![0, 0, 0]] {
            let error = Trie::new(&[3, 4], [(8, id)]).unwrap_err().to_string();
            assert!(error.contains("item 8") && error.contains("[3, 4]"), "{error}");
        }
    }
}
