// Functions that emitted expressions call. A kernel contains those that it uses.

// The float with these bits. Infinities and NaN may not be constants.
fn float_of_bits(bits: u32) -> f32 {
    return bitcast<f32>(bits);
}

// By the bits: compilers may take it for granted that no float is NaN.
fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn is_nan4(x: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
}

// Whether the sum of integers within bounds, low and high, may wrap around.
fn add_wraps(a: vec2<i32>, b: vec2<i32>) -> bool {
    let sum = a + b;
    return any(((a ^ sum) & (b ^ sum)) < vec2<i32>(0));
}

fn sub_wraps(a: vec2<i32>, b: vec2<i32>) -> bool {
    let difference = a - b.yx;
    return any(((a ^ b.yx) & (a ^ difference)) < vec2<i32>(0));
}

// Products of floats tell whether integers stay below 2^31: they err by less than what is left out.
fn mul_wraps(a: vec2<i32>, b: vec2<i32>) -> bool {
    return any(abs(vec4<f32>(a.xxyy) * vec4<f32>(b.xyxy)) > vec4<f32>(2147480000.0f));
}

// The bits of two f16 values as those are stored: what packing makes of floats beyond f16 is undefined.
fn packed_f16(x: vec2<f32>) -> u32 {
    let bits = bitcast<vec2<u32>>(x);
    let size = bits & vec2<u32>(0x7fffffffu);
    let sign = (bits >> vec2<u32>(16u)) & vec2<u32>(0x8000u);
    let beyond = sign | select(vec2<u32>(0x7c00u), vec2<u32>(0x7e00u), size > vec2<u32>(0x7f800000u));
    let packed = pack2x16float(clamp(x, vec2<f32>(-65504.0f), vec2<f32>(65504.0f)));
    // From 65520 on, half way to what would be the next half, infinity is the nearest.
    let nearest = select(vec2<u32>(packed & 0xffffu, packed >> 16u), beyond, size >= vec2<u32>(0x477ff000u));
    return nearest.x | (nearest.y << 16u);
}

// Two floats whose upper halves a word holds.
fn unpack_bfloats(word: u32) -> vec2<f32> {
    return bitcast<vec2<f32>>(vec2<u32>(word << 16u, word & 0xffff0000u));
}

// The upper halves of two floats: the nearest, ties to even.
fn packed_bfloats(x: vec2<f32>) -> u32 {
    let bits = bitcast<vec2<u32>>(x);
    let rounded = bits + vec2<u32>(0x7fffu) + ((bits >> vec2<u32>(16u)) & vec2<u32>(1u));
    let is_number = (bits & vec2<u32>(0x7fffffffu)) <= vec2<u32>(0x7f800000u);
    let nearest = select(bits | vec2<u32>(0x400000u), rounded, is_number) >> vec2<u32>(16u);
    return nearest.x | (nearest.y << 16u);
}

// Rounded toward zero, within the range of the result; 0 for NaN.
fn i32_from_f32(x: f32) -> i32 {
    return select(select(i32(x), 0x7fffffff, x >= 2147483648.0f), 0, is_nan(x));
}

fn i32_from_f324(x: vec4<f32>) -> vec4<i32> {
    let whole = select(vec4<i32>(x), vec4<i32>(0x7fffffff), x >= vec4<f32>(2147483648.0f));
    return select(whole, vec4<i32>(0), is_nan4(x));
}

fn i64_from_i32(a: i32) -> vec2<u32> {
    return vec2<u32>(bitcast<u32>(a), bitcast<u32>(a >> 31u));
}

fn i64_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn i64_sub(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}

fn i64_neg(a: vec2<u32>) -> vec2<u32> {
    return i64_sub(vec2<u32>(0u, 0u), a);
}

fn i64_is_negative(a: vec2<u32>) -> bool {
    return (a.y & 0x80000000u) != 0u;
}

fn i64_abs(a: vec2<u32>) -> vec2<u32> {
    return select(a, i64_neg(a), i64_is_negative(a));
}

fn i64_lt(a: vec2<u32>, b: vec2<u32>) -> bool {
    return bitcast<i32>(a.y) < bitcast<i32>(b.y) || (a.y == b.y && a.x < b.x);
}

fn u64_lt(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.y < b.y || (a.y == b.y && a.x < b.x);
}

// The whole product of two words: low, high.
fn u32_mul_wide(a: u32, b: u32) -> vec2<u32> {
    let a0 = a & 0xffffu;
    let a1 = a >> 16u;
    let b0 = b & 0xffffu;
    let b1 = b >> 16u;
    let low = a0 * b0;
    let middle = a1 * b0 + (low >> 16u);
    let carry = a0 * b1 + (middle & 0xffffu);
    return vec2<u32>(a * b, a1 * b1 + (middle >> 16u) + (carry >> 16u));
}

fn i64_mul(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = u32_mul_wide(a.x, b.x);
    return vec2<u32>(low.x, low.y + a.x * b.y + a.y * b.x);
}

// Quotient of unsigned numbers; the divisor is not 0.
fn u64_div(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    if (b.y == 0u && b.x < 0x10000u) {
        // Four digits of 16 bits: no step exceeds a word.
        let d = b.x;
        let q3 = (a.y >> 16u) / d;
        let r3 = (a.y >> 16u) - q3 * d;
        let n2 = (r3 << 16u) | (a.y & 0xffffu);
        let q2 = n2 / d;
        let r2 = n2 - q2 * d;
        let n1 = (r2 << 16u) | (a.x >> 16u);
        let q1 = n1 / d;
        let r1 = n1 - q1 * d;
        let n0 = (r1 << 16u) | (a.x & 0xffffu);
        return vec2<u32>((q1 << 16u) | (n0 / d), (q3 << 16u) | q2);
    }
    var quotient = vec2<u32>(0u, 0u);
    if (b.y == 0u && b.x < 0x1000000u) {
        // Eight digits of 8 bits.
        var left = 0u;
        for (var shift = 32u; shift > 0u; shift -= 8u) {
            let n = (left << 8u) | ((a.y >> (shift - 8u)) & 0xffu);
            quotient.y = (quotient.y << 8u) | (n / b.x);
            left = n % b.x;
        }
        for (var shift = 32u; shift > 0u; shift -= 8u) {
            let n = (left << 8u) | ((a.x >> (shift - 8u)) & 0xffu);
            quotient.x = (quotient.x << 8u) | (n / b.x);
            left = n % b.x;
        }
        return quotient;
    }
    var rest = vec2<u32>(0u, 0u);
    for (var bit = 0u; bit < 64u; bit++) {
        let position = 63u - bit;
        let word = select(a.x, a.y, position >= 32u);
        let carry = rest.y >> 31u;
        rest = vec2<u32>((rest.x << 1u) | ((word >> (position & 31u)) & 1u), (rest.y << 1u) | (rest.x >> 31u));
        if (carry != 0u || !u64_lt(rest, b)) {
            rest = i64_sub(rest, b);
            let digit = 1u << (position & 31u);
            quotient = quotient | select(vec2<u32>(digit, 0u), vec2<u32>(0u, digit), position >= 32u);
        }
    }
    return quotient;
}

fn i64_floor_div(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    if ((b.x | b.y) == 0u) {
        return vec2<u32>(0u, 0u);
    }
    let magnitude = u64_div(i64_abs(a), i64_abs(b));
    if (i64_is_negative(a) == i64_is_negative(b)) {
        return magnitude;
    }
    let exact = i64_mul(magnitude, i64_abs(b));
    let quotient = i64_neg(magnitude);
    return select(i64_sub(quotient, vec2<u32>(1u, 0u)), quotient, all(exact == i64_abs(a)));
}

fn i64_floor_mod(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let rest = i64_sub(a, i64_mul(b, i64_floor_div(a, b)));
    return select(rest, vec2<u32>(0u, 0u), (b.x | b.y) == 0u);
}

// Rounded to nearest, ties to even.
fn i64_to_f32(a: vec2<u32>) -> f32 {
    let m = i64_abs(a);
    var magnitude = f32(m.x);
    if (m.y != 0u || m.x >= 0x1000000u) {
        let top = select(firstLeadingBit(m.x), firstLeadingBit(m.y) + 32u, m.y != 0u);
        let shift = top - 23u;
        var digits = 0u;
        var rest = vec2<u32>(0u, 0u);
        if (shift >= 32u) {
            let high = shift - 32u;
            digits = m.y >> high;
            rest = vec2<u32>(m.x, m.y - (digits << high));
        } else {
            digits = (m.x >> shift) | select(0u, m.y << (32u - shift), m.y != 0u);
            rest = vec2<u32>(m.x & ((1u << shift) - 1u), 0u);
        }
        let place = shift - 1u;
        let half = select(vec2<u32>(1u << place, 0u), vec2<u32>(0u, 1u << (place & 31u)), place >= 32u);
        if (u64_lt(half, rest) || (all(half == rest) && (digits & 1u) == 1u)) {
            digits = digits + 1u;
        }
        magnitude = f32(digits) * bitcast<f32>((shift + 127u) << 23u);
    }
    return select(magnitude, -magnitude, i64_is_negative(a));
}

// Rounded toward zero, within the range of the result; 0 for NaN.
fn i64_from_f32(x: f32) -> vec2<u32> {
    if (is_nan(x)) {
        return vec2<u32>(0u, 0u);
    }
    if (abs(x) >= 9.2233720e18f) {
        return select(vec2<u32>(0xffffffffu, 0x7fffffffu), vec2<u32>(0u, 0x80000000u), x < 0.0f);
    }
    let a = floor(abs(x));
    let high = floor(a * 2.3283064e-10f);
    let magnitude = vec2<u32>(u32(a - high * 4294967296.0f), u32(high));
    return select(magnitude, i64_neg(magnitude), x < 0.0f);
}

// Philox4x32-10 with counter (counter, 0, 0, 0).
fn philox(seed: vec2<u32>, counter: u32) -> vec4<u32> {
    var word = vec4<u32>(counter, 0u, 0u, 0u);
    var key = seed;
    for (var round = 0; round < 10; round++) {
        let p = u32_mul_wide(0xD2511F53u, word.x);
        let q = u32_mul_wide(0xCD9E8D57u, word.z);
        word = vec4<u32>(q.y ^ word.y ^ key.x, q.x, p.y ^ word.w ^ key.y, p.x);
        key = key + vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
    }
    return word;
}

fn uniform_random(seed: vec2<u32>, index: i32) -> f32 {
    let at = bitcast<u32>(index);
    var words = philox(seed, at >> 2u);
    return f32(words[at & 3u] >> 8u) * 5.9604645e-8f;
}

// Of four neighbouring elements, the first a multiple of four.
fn uniform_random4(seed: vec2<u32>, index: i32) -> vec4<f32> {
    return vec4<f32>(philox(seed, bitcast<u32>(index) >> 2u) >> vec4<u32>(8u)) * 5.9604645e-8f;
}

// Bits whose order as integers is that of the floats; its own inverse on bits.
fn ordered_bits(x: f32) -> i32 {
    let bits = bitcast<i32>(x);
    return bits ^ ((bits >> 31u) & 0x7fffffff);
}

fn from_ordered_bits(bits: i32) -> f32 {
    return bitcast<f32>(bits ^ ((bits >> 31u) & 0x7fffffff));
}
