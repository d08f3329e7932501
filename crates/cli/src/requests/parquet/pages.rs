//! Pages of a file, rejected before they use more memory than a row may.

use super::MOST_VALUES;
use super::decompress::{check as check_bytes, decompress};
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file with reads limited to its size.
#[derive(Clone)]
pub struct Content {
    file: Arc<File>,
    length: u64,
}

impl Content {
    pub fn new(file: File) -> std::io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self { file: Arc::new(file), length })
    }

    fn check(&self, start: u64, length: usize) -> Result<()> {
        match start.checked_add(length as u64) {
            Some(end) if end <= self.length => Ok(()),
            _ => Err(ParquetError::EOF(format!("{length} bytes at {start} are requested, of {}", self.length))),
        }
    }
}

impl Length for Content {
    fn len(&self) -> u64 {
        self.length
    }
}

/// A file from an offset on, whose end is an error: otherwise the decoder of headers would skip missing bytes as often as
/// the header demands.
pub struct Rest(BufReader<File>);

impl Read for Rest {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(buffer)? {
            0 if !buffer.is_empty() => Err(std::io::Error::new(ErrorKind::UnexpectedEof, "the file ends early")),
            count => Ok(count),
        }
    }
}

impl ChunkReader for Content {
    type T = Rest;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        self.check(start, 0)?;
        self.file.get_read(start).map(Rest)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<bytes::Bytes> {
        self.check(start, length)?;
        self.file.get_bytes(start, length)
    }
}

/// The pages of a column, limited to the size of a row.
pub struct Pages {
    /// The stored pages.
    pages: Box<dyn PageReader>,
    compression: Compression,
    taken: Arc<AtomicU64>,
}

impl Pages {
    /// Stored pages with their compression. `taken` counts the values of pages; the reader of a row resets it.
    pub fn new(pages: Box<dyn PageReader>, compression: Compression, taken: Arc<AtomicU64>) -> Self {
        Self { pages, compression, taken }
    }

    /// The pages of a column of a row group, with `taken` as in [`Pages::new`].
    pub fn of_column(
        content: &Content,
        group: &RowGroupMetaData,
        position: usize,
        taken: Arc<AtomicU64>,
    ) -> Result<Self> {
        let column = group.column(position);
        // The reader would allocate the memory that a page claims.
        let stored = column.clone().into_builder().set_compression(Compression::UNCOMPRESSED).build()?;
        let rows = usize::try_from(group.num_rows())?;
        let pages = SerializedPageReader::new(Arc::new(content.clone()), &stored, rows, None)?;
        Ok(Self::new(Box::new(pages), column.compression(), taken))
    }

    fn charge(&self, values: u64) -> Result<()> {
        let taken = self.taken.fetch_add(values, Ordering::Relaxed).saturating_add(values);
        if taken > MOST_VALUES {
            return Err(ParquetError::General(format!("a list or page has more than {MOST_VALUES} entries")));
        }
        Ok(())
    }
}

/// Checks the sizes that decoders allocate without checking the data.
fn check(page: &Page) -> Result<()> {
    let (bytes, values) = (page.buffer().len() as u64, u64::from(page.num_values()));
    check_bytes(bytes)?;
    if page.is_dictionary_page() && values > bytes {
        return Err(ParquetError::General(format!("a dictionary has {values} entries in {bytes} bytes")));
    }
    match page.encoding() {
        encoding @ (Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY) => {
            Err(ParquetError::General(format!("text is written as {encoding}: expected PLAIN or a dictionary")))
        }
        _ => Ok(()),
    }
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        if let Some(PageMetadata { num_levels: Some(levels), .. }) = self.peek_next_page()? {
            self.charge(levels as u64)?;
        }
        let Some(stored) = self.pages.get_next_page()? else { return Ok(None) };
        let page = decompress(stored, self.compression)?;
        check(&page)?;
        Ok(Some(page))
    }

    /// The next page that is not empty: a column reader treats an empty data page as the end of the column.
    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        loop {
            match self.pages.peek_next_page()? {
                Some(PageMetadata { num_levels: Some(0), is_dict: false, .. }) => self.pages.skip_next_page()?,
                found => return Ok(found),
            }
        }
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.pages.at_record_boundary()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_file_is_an_error() {
        let path = std::env::temp_dir().join(format!("rewire-{}-rest", std::process::id()));
        std::fs::write(&path, b"12345").unwrap();
        let mut rest = File::open(&path).and_then(Content::new).unwrap().get_read(2).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut bytes = [0; 8];
        assert_eq!(rest.read(&mut bytes).unwrap(), 3);
        assert_eq!(&bytes[..3], b"345");
        assert_eq!(rest.read(&mut bytes).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert_eq!(rest.read(&mut []).unwrap(), 0);
    }
}
