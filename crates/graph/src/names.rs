/// Names sorted by their edit distance from one that may be misspelt; the order of ties is kept.
///
/// ```
/// use rewire_graph::nearest_names;
/// assert_eq!(nearest_names("ids", ["weights", "idx", "id"]), ["idx", "id", "weights"]);
/// ```
pub fn nearest_names<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_by_cached_key(|name| strsim::osa_distance(wanted, name));
    names
}

/// The nearest name, if the edit distance is at most a third of the letters after the last dot of `wanted`.
///
/// ```
/// use rewire_graph::similar_name;
/// assert_eq!(similar_name("history.action", ["history.item", "history.actoin"]), Some("history.actoin"));
/// assert_eq!(similar_name("history.age", ["history.item"]), None);
/// ```
pub fn similar_name<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let own = wanted.rsplit('.').next().map_or(0, str::len);
    let nearest = *nearest_names(wanted, names).first()?;
    (strsim::osa_distance(wanted, nearest) * 3 <= own).then_some(nearest)
}
