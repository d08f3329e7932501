use super::Tensor;
use crate::op::{Cast, Detach, Dropout, HostOp, Where};
use crate::pointwise::{BinaryOp, UnaryOp};
use crate::{DType, Number};
use std::borrow::Borrow;
use std::ops::{Add, Div, Mul, Neg, Sub};

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident => $op:ident),* $(,)?) => {
        /// Functions of one value, element by element.
        impl Tensor {
            $($(#[$doc])* #[track_caller] pub fn $name(&self) -> Tensor { self.unary(UnaryOp::$op) })*
        }
    };
}

unary! {
    /// `|x|`
    abs => Abs,
    /// `e^x`
    exp => Exp,
    /// Natural logarithm.
    log => Log,
    /// Square root.
    sqrt => Sqrt,
    /// `1 / sqrt(x)`
    rsqrt => Rsqrt,
    /// `1 / (1 + e^-x)`
    sigmoid => Sigmoid,
    /// `x / (1 + e^-x)`
    silu => Silu,
    /// `log(1 + e^x)`
    softplus => Softplus,
    /// `max(x, 0)`
    relu => Relu,
    /// Hyperbolic tangent.
    tanh => Tanh,
    /// Error function.
    erf => Erf,
    /// Sine of an angle in radians.
    sin => Sin,
    /// Cosine of an angle in radians.
    cos => Cos,
    /// Largest integer not above `x`.
    floor => Floor,
    /// Smallest integer not below `x`.
    ceil => Ceil,
    /// Rounded toward zero.
    trunc => Trunc,
    /// Rounded to nearest, ties to even.
    round => Round,
    /// Logical negation.
    not => Not,
}

/// A second operand: a tensor, or a number of the type of the first.
///
/// ```
/// use rewire_graph::{DType, Scope};
/// let scope = Scope::new();
/// let x = scope.input("x", DType::F32, [4]);
/// let y = x.gt(0.5).and(x.lt(&x.square()));
/// # let _ = scope.finish(&[("y", y)])?;
/// # Ok::<(), rewire_graph::GraphError>(())
/// ```
pub trait Operand {
    /// A function of `first` and this operand.
    fn after(self, first: &Tensor, op: BinaryOp) -> Tensor;
}

macro_rules! operands {
    ($function:ident: $($ty:ty $(as $view:ident)?),*) => {$(
        impl Operand for $ty {
            #[track_caller]
            fn after(self, first: &Tensor, op: BinaryOp) -> Tensor {
                first.$function(op, self$(.$view())?)
            }
        }
    )*};
}

operands!(binary: &Tensor, Tensor as borrow);
operands!(binary_scalar: f64, i64);

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident => $op:ident),* $(,)?) => {
        /// Functions of two values, element by element, broadcast like in numpy.
        impl Tensor {
            $(
                $(#[$doc])*
                #[track_caller]
                pub fn $name(&self, other: impl Operand) -> Tensor { other.after(self, BinaryOp::$op) }
            )*
        }
    };
}

binary! {
    /// `a^b`
    pow => Pow,
    /// `a - b * floor(a / b)`
    modulo => Mod,
    /// The minimum.
    minimum => Min,
    /// The maximum.
    maximum => Max,
    /// `a == b`
    equal => Eq,
    /// `a != b`
    not_equal => Ne,
    /// `a < b`
    lt => Lt,
    /// `a <= b`
    le => Le,
    /// `a > b`
    gt => Gt,
    /// `a >= b`
    ge => Ge,
    /// Logical and; bitwise on integers.
    and => And,
    /// Logical or; bitwise on integers.
    or => Or,
}

impl Tensor {
    /// A function of one value, element by element.
    #[track_caller]
    pub fn unary(&self, op: UnaryOp) -> Tensor {
        self.apply(op, &[])
    }

    /// A function of two values, element by element. The result of two host values is a host value.
    #[track_caller]
    pub fn binary(&self, op: BinaryOp, other: &Tensor) -> Tensor {
        if self.is_host() && other.is_host() {
            return self.host(HostOp::Binary(op), &[other]);
        }
        self.apply(op, &[other])
    }

    /// A function of this and a constant of the same type; for integers the constant must be whole.
    #[track_caller]
    pub fn binary_scalar(&self, op: BinaryOp, value: impl Into<Number>) -> Tensor {
        match self.number(op, "b", value.into()) {
            Ok(number) => self.binary(op, &number),
            Err(failed) => failed,
        }
    }

    /// A function of a constant and this, like [`Tensor::binary_scalar`].
    ///
    /// ```
    /// use rewire_graph::{DType, HostTensor, Scope, interpret, pointwise::BinaryOp};
    /// let scope = Scope::new();
    /// let x = scope.constant(HostTensor::vector(&[2.0f32, 4.0]));
    /// let graph = scope.finish(&[("y", x.after_scalar(BinaryOp::Div, 5.0).ceil())])?;
    /// assert_eq!(interpret(&graph, &Default::default(), &Default::default())?["y"].to_f32(), [3.0, 2.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn after_scalar(&self, op: BinaryOp, value: impl Into<Number>) -> Tensor {
        match self.number(op, "a", value.into()) {
            Ok(number) => number.binary(op, self),
            Err(failed) => failed,
        }
    }

    /// A constant of the type that a function of this and a number requires.
    #[track_caller]
    fn number(&self, op: BinaryOp, argument: &str, value: Number) -> Result<Tensor, Tensor> {
        if self.is_host() {
            return match value.whole().and_then(|whole| usize::try_from(whole).ok()) {
                Some(size) => Ok(super::shared(&self.state, HostOp::Size(size.into()), &[])),
                None => Err(self.fail(op.name(), argument, "a non-negative integer", value)),
            };
        }
        let dtype = if self.dtype().is_float() { DType::F32 } else { self.dtype() };
        Ok(self.scalar(dtype, value))
    }

    /// `x * x`
    #[track_caller]
    pub fn square(&self) -> Tensor {
        self * self
    }

    /// Elements converted to another type.
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Tensor {
        if dtype == self.dtype() && !self.is_host() { self.clone() } else { self.apply(Cast { dtype }, &[]) }
    }

    /// `self ? a : b`
    #[track_caller]
    pub fn select(&self, a: impl AsRef<Tensor>, b: impl AsRef<Tensor>) -> Tensor {
        let (a, b) = (a.as_ref(), b.as_ref());
        self.apply(Where, &[a, b])
    }

    /// Clamps to `low..=high`.
    #[track_caller]
    pub fn clamp<N: Into<Number>>(&self, low: Option<N>, high: Option<N>) -> Tensor {
        let above = match low {
            Some(low) => self.binary_scalar(BinaryOp::Max, low),
            None => self.clone(),
        };
        match high {
            Some(high) => above.binary_scalar(BinaryOp::Min, high),
            None => above,
        }
    }

    /// The same values; no gradient passes through them.
    #[track_caller]
    pub fn detach(&self) -> Tensor {
        self.apply(Detach, &[])
    }

    /// Runs `body`. If `is_recomputed`, the results of its operators are not kept for the backward pass; kernels
    /// compute them again there. Results are identical to the bit. It trades time for memory.
    ///
    /// ```
    /// use rewire_graph::{DType, Scope};
    /// let scope = Scope::new();
    /// let x = scope.input("x", DType::F32, [scope.size("rows"), 8.into()]);
    /// let y = x.recompute(true, || (&x * 2.0).sin()).exp();
    /// let graph = scope.finish(&[("y", y)])?;
    /// assert_eq!(graph.ids().filter(|id| graph.node(*id).is_some_and(|node| node.is_recomputed)).count(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn recompute<T>(&self, is_recomputed: bool, body: impl FnOnce() -> T) -> T {
        let outer = self.state.lock().is_recomputed;
        self.state.lock().is_recomputed = outer || is_recomputed;
        let result = body();
        self.state.lock().is_recomputed = outer;
        result
    }

    /// `0.5 x (1 + erf(x / sqrt 2))`
    #[track_caller]
    pub fn gelu_erf(&self) -> Tensor {
        self * (((self * std::f64::consts::FRAC_1_SQRT_2).erf() + 1.0) * 0.5)
    }

    /// `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`
    #[track_caller]
    pub fn gelu_tanh(&self) -> Tensor {
        let cubic = self.square() * self * 0.044715;
        let inner = (self + cubic) * (2.0 / std::f64::consts::PI).sqrt();
        self * ((inner.tanh() + 1.0) * 0.5)
    }

    /// Elements become 0 with probability `ratio`, the others are divided by `1 - ratio`; `seed` is an `I64` scalar.
    #[track_caller]
    pub fn dropout(&self, ratio: f32, seed: impl AsRef<Tensor>) -> Tensor {
        let seed = seed.as_ref();
        self.apply(Dropout { ratio }, &[seed])
    }
}

macro_rules! overload {
    ($($trait:ident $method:ident $op:ident),*) => {$(
        overload!(@tensors $trait $method $op &Tensor, &Tensor);
        overload!(@tensors $trait $method $op &Tensor, Tensor);
        overload!(@tensors $trait $method $op Tensor, &Tensor);
        overload!(@tensors $trait $method $op Tensor, Tensor);
        overload!(@numbers $trait $method $op f64);
        overload!(@numbers $trait $method $op i64);
    )*};
    (@tensors $trait:ident $method:ident $op:ident $left:ty, $right:ty) => {
        impl $trait<$right> for $left {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: $right) -> Tensor {
                self.binary(BinaryOp::$op, other.borrow())
            }
        }
    };
    (@numbers $trait:ident $method:ident $op:ident $number:ty) => {
        overload!(@number $trait $method $op $number, &Tensor);
        overload!(@number $trait $method $op $number, Tensor);
    };
    (@number $trait:ident $method:ident $op:ident $number:ty, $tensor:ty) => {
        impl $trait<$number> for $tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: $number) -> Tensor {
                self.binary_scalar(BinaryOp::$op, other)
            }
        }

        impl $trait<$tensor> for $number {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: $tensor) -> Tensor {
                other.after_scalar(BinaryOp::$op, self)
            }
        }
    };
}

overload!(Add add Add, Sub sub Sub, Mul mul Mul, Div div Div);

impl Neg for &Tensor {
    type Output = Tensor;
    fn neg(self) -> Tensor {
        self.unary(UnaryOp::Neg)
    }
}

impl Neg for Tensor {
    type Output = Tensor;
    fn neg(self) -> Tensor {
        -&self
    }
}
