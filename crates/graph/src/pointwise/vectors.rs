/// Vectors of floats and of 32-bit words, and the processor's instructions on them.
///
/// The CPU forms of scalar functions are generic over this trait and work with all vector widths.
pub trait Vectors: Copy {
    /// A vector of floats.
    type Floats: Copy;
    /// A vector with as many words.
    type Words: Copy;
    /// A mask with as many lanes.
    type Mask: Copy;

    /// The same float in all lanes.
    fn splat(self, x: f32) -> Self::Floats;
    /// `a + b`
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a - b`
    fn sub(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b`
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a / b`
    fn div(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + c`, with one or two roundings.
    fn mul_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// `-x`
    fn neg(self, x: Self::Floats) -> Self::Floats;
    /// `|x|`
    fn abs(self, x: Self::Floats) -> Self::Floats;
    /// Square root.
    fn sqrt(self, x: Self::Floats) -> Self::Floats;
    /// The larger of `x` and `low`; NaN stays NaN.
    fn at_least(self, x: Self::Floats, low: f32) -> Self::Floats;
    /// The smaller of `x` and `high`; NaN stays NaN.
    fn at_most(self, x: Self::Floats, high: f32) -> Self::Floats;
    /// Applies a function to each float.
    fn each(self, x: Self::Floats, function: impl Fn(f32) -> f32) -> Self::Floats;
    /// Applies a function to each pair of floats.
    fn each_pair(self, a: Self::Floats, b: Self::Floats, function: impl Fn(f32, f32) -> f32) -> Self::Floats;

    /// `a == b`
    fn equal(self, a: Self::Floats, b: Self::Floats) -> Self::Mask;
    /// `a < b`
    fn less(self, a: Self::Floats, b: Self::Floats) -> Self::Mask;
    /// `a <= b`
    fn less_or_equal(self, a: Self::Floats, b: Self::Floats) -> Self::Mask;
    /// Logical negation.
    fn not(self, mask: Self::Mask) -> Self::Mask;
    /// True if a lane of the mask is.
    fn any(self, mask: Self::Mask) -> bool;
    /// `mask ? a : b`
    fn select(self, mask: Self::Mask, a: Self::Floats, b: Self::Floats) -> Self::Floats;

    /// Reinterprets floats as words.
    fn bits(self, x: Self::Floats) -> Self::Words;
    /// Reinterprets words as floats.
    fn of_bits(self, bits: Self::Words) -> Self::Floats;
    /// The same word in all lanes.
    fn splat_word(self, word: u32) -> Self::Words;
    /// Wrapping sum of words.
    fn add_words(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// Wrapping difference of words.
    fn sub_words(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// Bitwise and.
    fn and(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// Bitwise or.
    fn or(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// Bitwise exclusive or.
    fn xor(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// Shifts words left.
    fn shift_up(self, words: Self::Words, bits: u32) -> Self::Words;
    /// Shifts words right.
    fn shift_down(self, words: Self::Words, bits: u32) -> Self::Words;

    /// `x` clamped to `low..=high`; NaN stays NaN.
    #[inline(always)]
    fn clamp(self, x: Self::Floats, low: f32, high: f32) -> Self::Floats {
        self.at_most(self.at_least(x, low), high)
    }

    /// `y`, which is not negative, with the sign of `x`.
    #[inline(always)]
    fn signed(self, y: Self::Floats, x: Self::Floats) -> Self::Floats {
        let sign = self.and(self.bits(x), self.splat_word(1 << 31));
        self.of_bits(self.or(self.bits(y), sign))
    }

    /// A polynomial with these coefficients, constant term first.
    #[inline(always)]
    fn polynomial<const N: usize>(self, x: Self::Floats, coefficients: [f32; N]) -> Self::Floats {
        let mut sum = self.splat(coefficients[N - 1]);
        for n in (0..N - 1).rev() {
            sum = self.mul_add(sum, x, self.splat(coefficients[n]));
        }
        sum
    }
}
