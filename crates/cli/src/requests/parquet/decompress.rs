//! Decompresses pages, up to a maximum size.

use super::super::LARGEST;
use parquet::basic::Compression;
use parquet::column::page::Page;
use parquet::errors::{ParquetError, Result};
use std::io::Read;

/// A page with its decompressed content. The size in its header is not trusted.
pub fn decompress(mut page: Page, compression: Compression) -> Result<Page> {
    if compression == Compression::UNCOMPRESSED {
        return Ok(page);
    }
    let (content, levels) = match &mut page {
        Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => (buf, 0),
        Page::DataPageV2 { is_compressed: false, .. } => return Ok(page),
        // Levels are not compressed.
        Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
            (buf, *def_levels_byte_len as usize + *rep_levels_byte_len as usize)
        }
    };
    let Some((levels, compressed)) = content.split_at_checked(levels) else {
        return Err(ParquetError::EOF(format!("a page of {} bytes has {levels} bytes of levels", content.len())));
    };
    let mut whole = levels.to_vec();
    if !compressed.is_empty() {
        expand(compression, compressed, &mut whole)?;
    }
    *content = whole.into();
    Ok(page)
}

fn expand(compression: Compression, compressed: &[u8], whole: &mut Vec<u8>) -> Result<()> {
    match compression {
        Compression::SNAPPY => {
            let (start, bytes) = (whole.len(), snap::raw::decompress_len(compressed).map_err(damaged)?);
            check(start as u64 + bytes as u64)?;
            whole.resize(start + bytes, 0);
            snap::raw::Decoder::new().decompress(compressed, &mut whole[start..]).map_err(damaged)?;
            Ok(())
        }
        Compression::ZSTD(_) => read(ruzstd::decoding::StreamingDecoder::new(compressed).map_err(damaged)?, whole),
        Compression::GZIP(_) => read(flate2::read::MultiGzDecoder::new(compressed), whole),
        Compression::BROTLI(_) => read(brotli_decompressor::Decompressor::new(compressed, 1 << 12), whole),
        Compression::LZ4_RAW => block(compressed, whole),
        Compression::LZ4 => blocks(compressed, whole),
        _ => {
            let expected = "expected snappy, gzip, brotli, lz4, zstd or none";
            Err(ParquetError::NYI(format!("the compression is not supported: {expected}")))
        }
    }
}

fn read(content: impl Read, whole: &mut Vec<u8>) -> Result<()> {
    content.take(LARGEST + 1).read_to_end(whole).map_err(damaged)?;
    check(whole.len() as u64)
}

/// Appends a block of LZ4. The block does not store the length of its content; a byte expands to at most 255.
fn block(compressed: &[u8], whole: &mut Vec<u8>) -> Result<()> {
    let start = whole.len();
    let most = (compressed.len() as u64).saturating_mul(255).min(LARGEST + 1);
    let mut room = (compressed.len() as u64).saturating_mul(4).min(most);
    loop {
        whole.resize(start + room as usize, 0);
        match lz4_flex::block::decompress_into(compressed, whole.get_mut(start..).unwrap_or_default()) {
            Ok(length) => {
                whole.truncate(start + length);
                return check(whole.len() as u64);
            }
            Err(lz4_flex::block::DecompressError::OutputTooSmall { .. }) if room < most => room = (room * 4).min(most),
            Err(error) => return Err(damaged(error)),
        }
    }
}

/// Appends LZ4 blocks in Hadoop's framing, each preceded by its decompressed and compressed lengths; bytes without this framing are one
/// block.
fn blocks(compressed: &[u8], whole: &mut Vec<u8>) -> Result<()> {
    let start = whole.len();
    let mut rest = compressed;
    while let Some((length, bytes, next)) = framed(rest) {
        let from = whole.len();
        check(from as u64 + length as u64)?;
        if block(bytes, whole).is_err() || whole.len() - from != length {
            break;
        }
        rest = next;
    }
    if rest.is_empty() {
        return Ok(());
    }
    whole.truncate(start);
    block(compressed, whole)
}

/// The decompressed length of a block, its bytes, and the remaining bytes.
fn framed(bytes: &[u8]) -> Option<(usize, &[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (count, rest) = rest.split_first_chunk()?;
    let (block, rest) = rest.split_at_checked(u32::from_be_bytes(*count) as usize)?;
    Some((u32::from_be_bytes(*length) as usize, block, rest))
}

/// Checks the bytes of a page.
pub fn check(bytes: u64) -> Result<()> {
    match bytes > LARGEST {
        true => Err(ParquetError::General(format!("a page has more than {LARGEST} bytes"))),
        false => Ok(()),
    }
}

fn damaged(error: impl std::error::Error) -> ParquetError {
    ParquetError::General(format!("a page is damaged: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Text with repetitions.
    fn content() -> Vec<u8> {
        "rewire ".repeat(3000).into_bytes()
    }

    /// [`content`] in brotli of quality 11.
    const BROTLI: [u8; 23] =
        [27, 7, 82, 248, 141, 148, 169, 227, 91, 202, 129, 220, 85, 89, 90, 220, 22, 9, 220, 77, 2, 224, 4];

    fn expanded(compression: Compression, bytes: &[u8]) -> Result<Vec<u8>> {
        let mut whole = b"levels".to_vec();
        expand(compression, bytes, &mut whole)?;
        assert_eq!(&whole[..6], b"levels");
        Ok(whole.split_off(6))
    }

    #[test]
    fn every_compression_gives_what_was_compressed() {
        let content = content();
        let mut gzip = flate2::write::GzEncoder::new(vec![], flate2::Compression::default());
        gzip.write_all(&content).unwrap();
        let lz4 = lz4_flex::block::compress(&content);
        let frame = |content: &[u8]| {
            let block = lz4_flex::block::compress(content);
            [&(content.len() as u32).to_be_bytes()[..], &(block.len() as u32).to_be_bytes(), &block].concat()
        };
        let framed = [frame(&content[..5000]), frame(&content[5000..])].concat();
        let cases = [
            (Compression::GZIP(Default::default()), gzip.finish().unwrap()),
            (Compression::BROTLI(Default::default()), BROTLI.to_vec()),
            (Compression::LZ4_RAW, lz4.clone()),
            (Compression::LZ4, lz4),
            (Compression::LZ4, framed),
        ];
        for (compression, bytes) in cases {
            assert!(expanded(compression, &bytes).unwrap() == content, "{compression}");
            for cut in [0, 1, 9, bytes.len() / 2] {
                let read = expanded(compression, &bytes[..cut]);
                assert!(read.is_err() || read.unwrap() != content, "{compression} {cut}");
            }
        }
    }
}
