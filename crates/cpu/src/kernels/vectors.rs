//! Implements the vector interface of scalar functions with the processor's instructions.

use super::arch;
use pulp::Simd;
use rewire_graph::pointwise::Vectors;
use rewire_graph::pointwise::functions::{Exp, Unary};

/// The instructions of `S`.
#[derive(Clone, Copy)]
pub(super) struct Instructions<S>(pub S);

/// `e^x`
#[inline(always)]
pub(super) fn exp<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    Exp::lanes(Instructions(simd), x)
}

macro_rules! instructions {
    ($($name:ident($($argument:ident: $type:ident),*) -> $result:ident = $instruction:ident;)*) => {$(
        #[inline(always)]
        fn $name(self, $($argument: Self::$type),*) -> Self::$result {
            self.0.$instruction($($argument),*)
        }
    )*};
}

impl<S: Simd> Vectors for Instructions<S> {
    type Floats = S::f32s;
    type Words = S::u32s;
    type Mask = S::m32s;

    instructions! {
        add(a: Floats, b: Floats) -> Floats = add_f32s;
        sub(a: Floats, b: Floats) -> Floats = sub_f32s;
        mul(a: Floats, b: Floats) -> Floats = mul_f32s;
        div(a: Floats, b: Floats) -> Floats = div_f32s;
        neg(x: Floats) -> Floats = neg_f32s;
        abs(x: Floats) -> Floats = abs_f32s;
        sqrt(x: Floats) -> Floats = sqrt_f32s;
        equal(a: Floats, b: Floats) -> Mask = equal_f32s;
        less(a: Floats, b: Floats) -> Mask = less_than_f32s;
        less_or_equal(a: Floats, b: Floats) -> Mask = less_than_or_equal_f32s;
        not(mask: Mask) -> Mask = not_m32s;
        select(mask: Mask, a: Floats, b: Floats) -> Floats = select_f32s;
        bits(x: Floats) -> Words = transmute_u32s_f32s;
        of_bits(bits: Words) -> Floats = transmute_f32s_u32s;
        add_words(a: Words, b: Words) -> Words = add_u32s;
        sub_words(a: Words, b: Words) -> Words = sub_u32s;
        and(a: Words, b: Words) -> Words = and_u32s;
        or(a: Words, b: Words) -> Words = or_u32s;
        xor(a: Words, b: Words) -> Words = xor_u32s;
    }

    #[inline(always)]
    fn any(self, mask: S::m32s) -> bool {
        self.0.first_true_m32s(mask) < S::F32_LANES
    }

    #[inline(always)]
    fn mul_add(self, a: S::f32s, b: S::f32s, c: S::f32s) -> S::f32s {
        arch::mul_add(self.0, a, b, c)
    }

    /// Vector instructions return the second operand, or NaN, if either is NaN.
    #[inline(always)]
    fn at_least(self, x: S::f32s, low: f32) -> S::f32s {
        let low = self.splat(low);
        if S::F32_LANES == 1 { self.select(self.less(x, low), low, x) } else { self.0.max_f32s(low, x) }
    }

    #[inline(always)]
    fn at_most(self, x: S::f32s, high: f32) -> S::f32s {
        let high = self.splat(high);
        if S::F32_LANES == 1 { self.select(self.less(high, x), high, x) } else { self.0.min_f32s(high, x) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> S::f32s {
        self.0.splat_f32s(x)
    }

    #[inline(always)]
    fn splat_word(self, word: u32) -> S::u32s {
        self.0.splat_u32s(word)
    }

    #[inline(always)]
    fn shift_up(self, words: S::u32s, bits: u32) -> S::u32s {
        self.0.wrapping_dyn_shl_u32s(words, self.splat_word(bits))
    }

    #[inline(always)]
    fn shift_down(self, words: S::u32s, bits: u32) -> S::u32s {
        self.0.wrapping_dyn_shr_u32s(words, self.splat_word(bits))
    }

    #[inline(always)]
    fn each(self, mut x: S::f32s, function: impl Fn(f32) -> f32) -> S::f32s {
        for x in floats::<S>(&mut x) {
            *x = function(*x);
        }
        x
    }

    #[inline(always)]
    fn each_pair(self, mut a: S::f32s, mut b: S::f32s, function: impl Fn(f32, f32) -> f32) -> S::f32s {
        for (a, b) in floats::<S>(&mut a).iter_mut().zip(floats::<S>(&mut b)) {
            *a = function(*a, *b);
        }
        a
    }
}

#[inline(always)]
fn floats<S: Simd>(vector: &mut S::f32s) -> &mut [f32] {
    bytemuck::cast_slice_mut(std::slice::from_mut(vector))
}
