/// Vectors of floats and words of 32 bits, and the instructions of a processor on them.
///
/// What the CPU computes of scalar functions is written with these, for whatever vectors it has.
pub trait Vectors: Copy {
    /// Some floats.
    type Floats: Copy;
    /// As many words.
    type Words: Copy;
    /// As many truth values.
    type Mask: Copy;

    /// The same float everywhere.
    fn splat(self, x: f32) -> Self::Floats;
    /// `a + b`
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a - b`
    fn sub(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b`
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a / b`
    fn div(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + c`, rounded once or twice.
    fn mul_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// `-x`
    fn neg(self, x: Self::Floats) -> Self::Floats;
    /// `|x|`
    fn abs(self, x: Self::Floats) -> Self::Floats;
    /// Square root.
    fn sqrt(self, x: Self::Floats) -> Self::Floats;
    /// A function of every float by itself.
    fn each(self, x: Self::Floats, function: impl Fn(f32) -> f32) -> Self::Floats;
    /// A function of every pair of floats by itself.
    fn each_pair(self, a: Self::Floats, b: Self::Floats, function: impl Fn(f32, f32) -> f32) -> Self::Floats;

    /// `a == b`
    fn equal(self, a: Self::Floats, b: Self::Floats) -> Self::Mask;
    /// `a < b`
    fn less(self, a: Self::Floats, b: Self::Floats) -> Self::Mask;
    /// `a <= b`
    fn less_or_equal(self, a: Self::Floats, b: Self::Floats) -> Self::Mask;
    /// Logical negation.
    fn not(self, mask: Self::Mask) -> Self::Mask;
    /// `mask ? a : b`
    fn select(self, mask: Self::Mask, a: Self::Floats, b: Self::Floats) -> Self::Floats;

    /// The bits of floats.
    fn bits(self, x: Self::Floats) -> Self::Words;
    /// The floats with these bits.
    fn of_bits(self, bits: Self::Words) -> Self::Floats;
    /// The same word everywhere.
    fn splat_word(self, word: u32) -> Self::Words;
    /// The sum of words, which wraps around.
    fn add_words(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// The difference of words, which wraps around.
    fn sub_words(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// Bitwise conjunction.
    fn and(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// Bitwise disjunction.
    fn or(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// Words with their bits moved up.
    fn shift_up(self, words: Self::Words, bits: u32) -> Self::Words;
    /// Words with their bits moved down.
    fn shift_down(self, words: Self::Words, bits: u32) -> Self::Words;

    /// `x` limited to `low..=high`, or NaN.
    #[inline(always)]
    fn clamp(self, x: Self::Floats, low: f32, high: f32) -> Self::Floats {
        let (low, high) = (self.splat(low), self.splat(high));
        let x = self.select(self.less(x, low), low, x);
        self.select(self.less(high, x), high, x)
    }

    /// `y`, not negative, with the sign of `x`.
    #[inline(always)]
    fn signed(self, y: Self::Floats, x: Self::Floats) -> Self::Floats {
        let sign = self.and(self.bits(x), self.splat_word(1 << 31));
        self.of_bits(self.or(self.bits(y), sign))
    }

    /// A polynomial with these coefficients, the constant one first.
    #[inline(always)]
    fn polynomial<const N: usize>(self, x: Self::Floats, coefficients: [f32; N]) -> Self::Floats {
        let mut sum = self.splat(coefficients[N - 1]);
        for n in (0..N - 1).rev() {
            sum = self.mul_add(sum, x, self.splat(coefficients[n]));
        }
        sum
    }
}
