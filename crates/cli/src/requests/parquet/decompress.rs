//! Content of pages, decompressed to no more than a page may have.

use super::super::LARGEST;
use parquet::basic::Compression;
use parquet::column::page::Page;
use parquet::errors::{ParquetError, Result};
use std::io::Read;

/// A page with its content as it was before compression. What a page says of its size is not trusted.
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
        Compression::ZSTD(_) => {
            let content = ruzstd::decoding::StreamingDecoder::new(compressed).map_err(damaged)?;
            content.take(LARGEST + 1).read_to_end(whole).map_err(damaged)?;
            check(whole.len() as u64)
        }
        _ => Err(ParquetError::NYI("the compression is not supported: expected snappy, zstd or none".to_owned())),
    }
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
