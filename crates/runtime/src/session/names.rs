//! Names that may be misspelt.

/// Names in the order of their distance from `wanted`, then as given.
pub(crate) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut names: Vec<&str> = names.collect();
    names.sort_by_cached_key(|name| distance(wanted, name));
    names.into_iter().map(str::to_owned).collect()
}

/// Characters to insert, remove or replace to make one name the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, &b) in row.iter_mut().skip(1).zip(&b) {
            let above = *cell;
            left = (diagonal + usize::from(a != b)).min(above + 1).min(left + 1);
            diagonal = above;
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_comes_first() {
        assert_eq!(nearest("ids", ["weights", "idx", "id"].into_iter()), ["idx", "id", "weights"]);
        assert_eq!([distance("", "abc"), distance("abc", ""), distance("kitten", "sitting")], [3, 3, 3]);
    }
}
