use twox_hash::XxHash3_128;

/// The reserved id that no map admits. The reference uses it for free rows.
pub const UNKNOWN: i64 = i64::MAX;

/// The id of a string: the lowest 63 bits of XXH3-128 with seed 0, of its UTF-8 bytes.
pub fn hash(text: &str) -> i64 {
    (XxHash3_128::oneshot(text.as_bytes()) & (UNKNOWN as u128)) as i64
}

/// A number in `0..1` for an id and a step.
pub(crate) fn unit(id: i64, step: u64) -> f64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&id.to_le_bytes());
    bytes[8..].copy_from_slice(&step.to_le_bytes());
    let word = XxHash3_128::oneshot(&bytes) as u64;
    (word >> 11) as f64 / (1u64 << 53) as f64
}
