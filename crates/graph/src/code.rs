/// An error with a stable code, by which programs and other languages distinguish errors. Codes do not change between
/// versions.
///
/// ```
/// use rewire_graph::{Coded, DType, Scope};
/// let scope = Scope::new();
/// let y = scope.input("a", DType::F32, [4]) + scope.input("b", DType::F32, [3]);
/// assert_eq!(scope.finish(&[("y", y)]).err().map(|error| error.code()), Some("graph.type"));
/// ```
pub trait Coded {
    /// The code: area and kind of error, such as `graph.type`. An error that wraps another one returns the code of that
    /// one.
    fn code(&self) -> &'static str;
}
