use crate::Dim;
use std::fmt::Display;

/// A shape, outermost extent first: a tuple of constants and sizes, or an array, slice or vector of one kind.
///
/// ```
/// use rewire_graph::{DType, Scope};
/// let scope = Scope::new();
/// let rows = scope.size("rows");
/// let x = scope.input("x", DType::F32, (&rows, 2, 8));
/// let weight = scope.parameter("weight", DType::F32, [16, 4]);
/// let y = x.reshape((rows, 16)).matmul(&weight);
/// assert_eq!(y.width(), 4);
/// # let _ = scope.finish(&[("y", y)])?;
/// # Ok::<(), rewire_graph::GraphError>(())
/// ```
pub trait Shape {
    /// The extents.
    fn dims(self) -> Vec<Dim>;
}

impl Shape for &[Dim] {
    fn dims(self) -> Vec<Dim> {
        self.to_vec()
    }
}

impl<const N: usize> Shape for &[Dim; N] {
    fn dims(self) -> Vec<Dim> {
        self.to_vec()
    }
}

impl<T: Into<Dim>, const N: usize> Shape for [T; N] {
    fn dims(self) -> Vec<Dim> {
        self.into_iter().map(Into::into).collect()
    }
}

impl Shape for Vec<Dim> {
    fn dims(self) -> Vec<Dim> {
        self
    }
}

impl Shape for &Vec<Dim> {
    fn dims(self) -> Vec<Dim> {
        self.clone()
    }
}

macro_rules! tuples {
    ($(($($name:ident),*)),* $(,)?) => {$(
        impl<$($name: Into<Dim>),*> Shape for ($($name,)*) {
            #[allow(non_snake_case)]
            fn dims(self) -> Vec<Dim> {
                let ($($name,)*) = self;
                vec![$($name.into()),*]
            }
        }
    )*};
}

tuples!((), (A), (A, B), (A, B, C), (A, B, C, D), (A, B, C, D, E), (A, B, C, D, E, F));

/// An axis of a tensor; negative positions count from the last axis, `-1`.
pub trait Axis: Copy + Display {
    /// The position among `rank` axes, which may be out of range; `None` if before the first.
    fn of(self, rank: usize) -> Option<usize>;
}

impl Axis for usize {
    fn of(self, _: usize) -> Option<usize> {
        Some(self)
    }
}

impl Axis for i32 {
    fn of(self, rank: usize) -> Option<usize> {
        match usize::try_from(self) {
            Ok(axis) => Some(axis),
            Err(_) => rank.checked_sub(self.unsigned_abs() as usize),
        }
    }
}
