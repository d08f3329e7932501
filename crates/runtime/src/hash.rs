use twox_hash::XxHash3_128;

/// 128-bit XXH3: the same in every process, on every machine and with every compiler. It detects equal content and is
/// not cryptographic.
///
/// ```
/// assert_eq!(rewire_runtime::hash(b""), 0x99aa_06d3_0147_98d8_6001_c324_468d_497f);
/// ```
pub fn hash(bytes: &[u8]) -> u128 {
    XxHash3_128::oneshot(bytes)
}

/// [`hash`] of several parts.
#[cfg(feature = "files")]
pub(crate) fn hash_all(parts: &[&[u8]]) -> u128 {
    let mut hasher = XxHash3_128::new();
    for part in parts {
        hasher.write(&(part.len() as u64).to_le_bytes());
        hasher.write(part);
    }
    hasher.finish_128()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_stay_what_they_are() {
        assert_eq!(format!("{:032x}", hash(b"")), "99aa06d3014798d86001c324468d497f");
        assert_ne!(hash_all(&[b"ab", b"c"]), hash_all(&[b"a", b"bc"]));
    }
}
