use super::{Algebra, Arithmetic, Binary, Bounds, Comparison, Declaration, Unary};
use crate::Scalar;
use serde::{Deserialize, Serialize};

/// What is done with a function of one scalar, whichever it is.
pub trait UnaryVisitor {
    /// What comes of it.
    type Output;

    /// Does it.
    fn visit<F: Unary>(self) -> Self::Output;
}

/// What is done with a function of two scalars, whichever it is.
pub trait BinaryVisitor {
    /// What comes of it.
    type Output;

    /// Does it with a function that gives one of their type.
    fn arithmetic<F: Arithmetic>(self) -> Self::Output;

    /// Does it with a function that gives a truth value.
    fn comparison<F: Comparison>(self) -> Self::Output;
}

/// What functions of one scalar and of two have in common: their types, and what is declared.
macro_rules! declared {
    ($op:ident $($(#[$doc:meta])* $name:ident,)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub struct $name;
        )*

        impl $op {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// What is known of the function whatever its arguments are.
            pub fn declaration(self) -> &'static Declaration {
                match self { $(Self::$name => &$name::DECLARATION,)* }
            }

            /// The name used in drawings and errors.
            pub fn name(self) -> &'static str {
                self.declaration().name
            }

            /// True if the function is defined for arguments of type `scalar`.
            pub fn accepts(self, scalar: Scalar) -> bool {
                self.declaration().wgsl(scalar).is_some()
            }
        }
    };
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A function of one scalar. Floats unless said otherwise.
        ///
        /// Floats are those of IEEE 754 in the interpreter, in folded constants and on every kernel: NaN gives NaN, infinities
        /// and zeros give the limits there or, where there is none, NaN, and what exceeds single precision is infinite. Magnitudes
        /// below its normal numbers, `1.2e-38`, may count as zeros of their sign.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum UnaryOp {
            $($(#[$doc])* $name,)*
        }

        declared!(UnaryOp $($(#[$doc])* $name,)*);

        impl UnaryOp {
            /// Does something with the function's declaration.
            #[inline(always)]
            pub fn visit<V: UnaryVisitor>(self, visitor: V) -> V::Output {
                match self { $(Self::$name => visitor.visit::<$name>(),)* }
            }

            /// The function in double precision.
            pub fn evaluate(self, x: f64) -> f64 {
                match self { $(Self::$name => $name::EVALUATE(x),)* }
            }

            /// The function of an integer or truth value of type `scalar`.
            ///
            /// ```
            /// use rewire_graph::Scalar;
            /// use rewire_graph::pointwise::UnaryOp;
            /// assert_eq!(UnaryOp::Neg.evaluate_int(Scalar::I64, (1 << 53) + 1), -(1 << 53) - 1);
            /// assert_eq!(UnaryOp::Abs.evaluate_int(Scalar::I32, i64::from(i32::MIN)), i64::from(i32::MIN));
            /// ```
            pub fn evaluate_int(self, scalar: Scalar, x: i64) -> i64 {
                scalar.wrap(match self { $(Self::$name => $name::integer(x),)* })
            }

            /// Bounds of the function of a `scalar` within bounds, where they are known.
            pub fn interval<A: Algebra>(self, at: &mut A, scalar: Scalar, a: &Bounds<A>) -> Option<Bounds<A>> {
                match self { $(Self::$name => $name::interval(at, scalar, a),)* }
            }

            /// The gradient of the argument `x`, given that of the value `y`; `None` where it is 0 or undefined everywhere.
            pub fn gradient<A: Algebra>(
                self,
                at: &mut A,
                x: &A::Value,
                y: &A::Value,
                g: &A::Value,
            ) -> Option<A::Value> {
                match self { $(Self::$name => $name::gradient(at, x, y, g),)* }
            }
        }
    };
}

unary! {
    /// `-x`, floats and integers.
    Neg,
    /// `|x|`, floats and integers.
    Abs,
    /// `e^x`
    Exp,
    /// Natural logarithm; NaN of negative numbers.
    Log,
    /// Square root; NaN of negative numbers.
    Sqrt,
    /// `1 / sqrt(x)`; NaN of negative numbers.
    Rsqrt,
    /// `1 / (1 + e^-x)`
    Sigmoid,
    /// `x / (1 + e^-x)`, the product of `x` and its sigmoid: NaN of negative infinity.
    Silu,
    /// `log(1 + e^x)`, which is about `x` where that is large.
    Softplus,
    /// `max(x, 0)`, a zero of either sign for zeros.
    Relu,
    /// Hyperbolic tangent.
    Tanh,
    /// Error function.
    Erf,
    /// Sine of an angle in radians; NaN of infinities.
    Sin,
    /// Cosine of an angle in radians; NaN of infinities.
    Cos,
    /// Largest integer not above `x`.
    Floor,
    /// Smallest integer not below `x`.
    Ceil,
    /// Rounded toward zero.
    Trunc,
    /// Rounded to nearest, ties to even.
    Round,
    /// Logical negation of a truth value.
    Not,
}

macro_rules! binary {
    (
        arithmetic { $($(#[$doc:meta])* $name:ident,)* }
        comparison { $($(#[$same:meta])* $test:ident,)* }
    ) => {
        /// A function of two scalars of the same type. Of floats, what [`UnaryOp`] says holds as well.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum BinaryOp {
            $($(#[$doc])* $name,)*
            $($(#[$same])* $test,)*
        }

        declared!(BinaryOp $($(#[$doc])* $name,)* $($(#[$same])* $test,)*);

        impl BinaryOp {
            /// Does something with the function's declaration.
            #[inline(always)]
            pub fn visit<V: BinaryVisitor>(self, visitor: V) -> V::Output {
                match self {
                    $(Self::$name => visitor.arithmetic::<$name>(),)*
                    $(Self::$test => visitor.comparison::<$test>(),)*
                }
            }

            /// True if the result is a truth value whatever the arguments are.
            pub fn is_comparison(self) -> bool {
                matches!(self, $(Self::$test)|*)
            }

            /// True if the operands may be exchanged.
            pub fn is_commutative(self) -> bool {
                self.declaration().commutes
            }

            /// The type of the result for arguments of type `scalar`.
            pub fn result(self, scalar: Scalar) -> Scalar {
                if self.is_comparison() { Scalar::Bool } else { scalar }
            }

            /// The function of two floats; comparisons give 0 or 1.
            pub fn evaluate(self, a: f64, b: f64) -> f64 {
                match self {
                    $(Self::$name => $name::EVALUATE(a, b),)*
                    $(Self::$test => u8::from($test::holds(a, b)).into(),)*
                }
            }

            /// The function of two integers or truth values of type `scalar`; comparisons give 0 or 1.
            ///
            /// ```
            /// use rewire_graph::Scalar;
            /// use rewire_graph::pointwise::BinaryOp;
            /// assert_eq!(BinaryOp::Div.evaluate_int(Scalar::I64, -7, 2), -4);
            /// assert_eq!(BinaryOp::Add.evaluate_int(Scalar::I32, i64::from(i32::MAX), 1), i64::from(i32::MIN));
            /// ```
            pub fn evaluate_int(self, scalar: Scalar, a: i64, b: i64) -> i64 {
                self.result(scalar).wrap(match self {
                    $(Self::$name => $name::integer(a, b),)*
                    $(Self::$test => $test::holds(a, b).into(),)*
                })
            }

            /// Bounds of the function of two of type `scalar` within bounds, where they are known.
            pub fn interval<A: Algebra>(self, at: &mut A, scalar: Scalar, ab: [&Bounds<A>; 2]) -> Option<Bounds<A>> {
                match self {
                    $(Self::$name => $name::interval(at, scalar, ab),)*
                    $(Self::$test => $test::interval(at, scalar, ab),)*
                }
            }

            /// The gradients of the operands, given that of the value `y`; `None` where one is 0 or undefined everywhere.
            pub fn gradient<A: Algebra>(
                self,
                at: &mut A,
                operands: [&A::Value; 2],
                y: &A::Value,
                g: &A::Value,
            ) -> [Option<A::Value>; 2] {
                match self {
                    $(Self::$name => $name::gradient(at, operands, y, g),)*
                    $(Self::$test)|* => [None, None],
                }
            }
        }
    };
}

binary! {
    arithmetic {
        /// `a + b`
        Add,
        /// `a - b`
        Sub,
        /// `a * b`
        Mul,
        /// `a / b`; of integers, rounded toward negative infinity; 0 where `b` is the integer 0.
        Div,
        /// What dividing `a` by `b` and rounding down leaves, with the sign of `b`; 0 where `b` is the integer 0. Of floats
        /// it is exact but for one addition of `b` where the signs differ, a zero of either sign, NaN where `b` is 0 or `a`
        /// infinite.
        Mod,
        /// `a^b` as C's `pow` has it: NaN where a negative number has an exponent that is not whole, and 1 where the base is 1
        /// or the exponent 0, whatever the other is.
        Pow,
        /// The smaller; of floats NaN if either is, and either of two zeros.
        Min,
        /// The larger; of floats NaN if either is, and either of two zeros.
        Max,
        /// Conjunction of truth values, bitwise on integers.
        And,
        /// Disjunction of truth values, bitwise on integers.
        Or,
    }
    comparison {
        /// `a == b`; NaN equals nothing.
        Eq,
        /// `a != b`, true for NaN.
        Ne,
        /// `a < b`; like all comparisons of order false for NaN.
        Lt,
        /// `a <= b`
        Le,
        /// `a > b`
        Gt,
        /// `a >= b`
        Ge,
    }
}
