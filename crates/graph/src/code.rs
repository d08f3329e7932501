/// An error with a code that stays the same from version to version, for programs to tell errors apart and for other languages.
///
/// ```
/// use rewire_graph::{Coded, DType, Scope};
/// let scope = Scope::new();
/// let y = scope.input("a", DType::F32, [4]) + scope.input("b", DType::F32, [3]);
/// assert_eq!(scope.finish(&[("y", y)]).err().map(|error| error.code()), Some("graph.type"));
/// ```
pub trait Coded {
    /// What is wrong, `graph.type`: where, and the kind of error. Of an error that passes another one on, the code of that.
    fn code(&self) -> &'static str;
}
