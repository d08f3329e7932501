use super::{Algebra, Arithmetic, Binary, Bounds, Comparison, Declaration, Unary};
use crate::Scalar;
use serde::{Deserialize, Serialize};

/// A visitor for functions of one scalar.
pub trait UnaryVisitor {
    /// Its result.
    type Output;

    /// Visits a function.
    fn visit<F: Unary>(self) -> Self::Output;
}

/// A visitor for functions of two scalars.
pub trait BinaryVisitor {
    /// Its result.
    type Output;

    /// Visits a function with a result of the operands' type.
    fn arithmetic<F: Arithmetic>(self) -> Self::Output;

    /// Visits a comparison.
    fn comparison<F: Comparison>(self) -> Self::Output;
}

/// Common methods of unary and binary functions: their types and properties.
macro_rules! declared {
    ($op:ident $($(#[$doc:meta])* $name:ident,)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub struct $name;
        )*

        impl $op {
            /// All functions.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The properties of the function that do not depend on its arguments.
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
        /// A function of one scalar; of floats unless stated otherwise.
        ///
        /// Floats follow IEEE 754 in the interpreter, in constant folding and in all kernels. NaN gives NaN. Infinities
        /// and zeros give the limit there, or NaN if there is none. Results beyond the range of f32 are infinite.
        /// Subnormals, magnitudes below `1.2e-38`, may be flushed to zeros of their sign.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum UnaryOp {
            $($(#[$doc])* $name,)*
        }

        declared!(UnaryOp $($(#[$doc])* $name,)*);

        impl UnaryOp {
            /// Calls a visitor with the function.
            #[inline(always)]
            pub fn visit<V: UnaryVisitor>(self, visitor: V) -> V::Output {
                match self { $(Self::$name => visitor.visit::<$name>(),)* }
            }

            /// The function in f64.
            pub fn evaluate(self, x: f64) -> f64 {
                match self { $(Self::$name => $name::EVALUATE(x),)* }
            }

            /// The function of an integer or bool of type `scalar`.
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

            /// Bounds of the function of a `scalar` within bounds, if known.
            pub fn interval<A: Algebra>(self, at: &mut A, scalar: Scalar, a: &Bounds<A>) -> Option<Bounds<A>> {
                match self { $(Self::$name => $name::interval(at, scalar, a),)* }
            }

            /// The gradient of the argument `x`, given the gradient of the value `y`; `None` if it is 0 or undefined
            /// everywhere.
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
    /// `log(1 + e^x)`; close to `x` if that is large.
    Softplus,
    /// `max(x, 0)`; a zero of either sign for zeros.
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
    /// Logical negation.
    Not,
}

macro_rules! binary {
    (
        arithmetic { $($(#[$doc:meta])* $name:ident,)* }
        comparison { $($(#[$same:meta])* $test:ident,)* }
    ) => {
        /// A function of two scalars of the same type. Floats follow the rules of [`UnaryOp`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum BinaryOp {
            $($(#[$doc])* $name,)*
            $($(#[$same])* $test,)*
        }

        declared!(BinaryOp $($(#[$doc])* $name,)* $($(#[$same])* $test,)*);

        impl BinaryOp {
            /// Calls a visitor with the function.
            #[inline(always)]
            pub fn visit<V: BinaryVisitor>(self, visitor: V) -> V::Output {
                match self {
                    $(Self::$name => visitor.arithmetic::<$name>(),)*
                    $(Self::$test => visitor.comparison::<$test>(),)*
                }
            }

            /// True if the result is a bool for all argument types.
            pub fn is_comparison(self) -> bool {
                matches!(self, $(Self::$test)|*)
            }

            /// True if the function is commutative.
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

            /// The function of two integers or bools of type `scalar`; comparisons give 0 or 1.
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

            /// Bounds of the function of two of type `scalar` within bounds, if known.
            pub fn interval<A: Algebra>(self, at: &mut A, scalar: Scalar, ab: [&Bounds<A>; 2]) -> Option<Bounds<A>> {
                match self {
                    $(Self::$name => $name::interval(at, scalar, ab),)*
                    $(Self::$test => $test::interval(at, scalar, ab),)*
                }
            }

            /// The gradients of the operands, given the gradient of the value `y`; `None` for one that is 0 or
            /// undefined everywhere.
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
        /// `a / b`; for integers, rounded toward negative infinity, and 0 if `b` is 0.
        Div,
        /// The remainder of `a / b` rounded down, with the sign of `b`; 0 if `b` is the integer 0. For floats it is
        /// exact, except for one addition of `b` if the signs differ; it may be a zero of either sign, and is NaN if
        /// `b` is 0 or `a` is infinite.
        Mod,
        /// `a^b` like C's `pow`: NaN for a negative base with a fractional exponent; 1 if the base is 1 or the exponent
        /// 0, whatever the other operand is.
        Pow,
        /// The minimum; for floats NaN if either is NaN, and either of two zeros.
        Min,
        /// The maximum; for floats NaN if either is NaN, and either of two zeros.
        Max,
        /// Logical and; bitwise on integers.
        And,
        /// Logical or; bitwise on integers.
        Or,
    }
    comparison {
        /// `a == b`; false for NaN.
        Eq,
        /// `a != b`, true for NaN.
        Ne,
        /// `a < b`; like all order comparisons false for NaN.
        Lt,
        /// `a <= b`
        Le,
        /// `a > b`
        Gt,
        /// `a >= b`
        Ge,
    }
}
