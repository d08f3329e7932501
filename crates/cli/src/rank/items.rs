use crate::args::Rank;
use crate::demo;
use crate::log::say;
use crate::requests::LARGEST;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Titles of items.
#[derive(Debug, Default)]
pub struct Titles(HashMap<i64, String>);

impl Titles {
    /// Reads `items.csv` next to the data file, or in or next to the model folder; the built-in titles for the built-in
    /// model. A file that cannot be read causes a warning, and no titles.
    pub(super) fn find(options: &Rank, item: &str) -> Self {
        let beside = |path: &PathBuf| path.parent().map(|folder| folder.join("items.csv"));
        let data = options.data.as_ref().and_then(beside);
        let model = options.model.as_ref();
        let found = [data, model.map(|path| path.join("items.csv")), model.and_then(beside)]
            .into_iter()
            .flatten()
            .find(|path| path.is_file());
        let titles = match (&found, model) {
            (Some(path), _) => Self::read(path, item),
            (None, None) => Self::parse(demo::ITEMS, item),
            (None, Some(_)) => Ok(Self::default()),
        };
        titles.unwrap_or_else(|reason| {
            let name = found.map(|path| path.display().to_string()).unwrap_or_default();
            say(format_args!("warning: {name}: {reason}; continuing without titles"));
            Self::default()
        })
    }

    fn read(path: &Path, item: &str) -> Result<Self, String> {
        let length = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
        if length > LARGEST {
            return Err(format!("the file has {length} bytes, more than {LARGEST}"));
        }
        Self::parse(&std::fs::read(path).map_err(|error| error.to_string())?, item)
    }

    /// Parses CSV with a header: ids are in the column `item`, or the first, titles in `title`.
    ///
    /// # Errors
    /// A message: the bytes are not CSV, or have no column `title`.
    pub fn parse(text: &[u8], item: &str) -> Result<Self, String> {
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text);
        let header = reader.byte_headers().map_err(|error| error.to_string())?;
        let position = |name: &str| header.iter().position(|field| field.trim_ascii() == name.as_bytes());
        let ids = position(item).unwrap_or(0);
        let titles = position("title").ok_or("there is no column `title`")?;
        let mut found = HashMap::new();
        for record in reader.byte_records() {
            let record = record.map_err(|error| error.to_string())?;
            let text = |at: usize| record.get(at).map(|field| String::from_utf8_lossy(field.trim_ascii()));
            if let (Some(Ok(id)), Some(title)) = (text(ids).map(|id| id.parse()), text(titles)) {
                found.insert(id, title.into_owned());
            }
        }
        Ok(Self(found))
    }

    /// The title of an item.
    pub fn get(&self, item: i64) -> Option<&str> {
        self.0.get(&item).map(String::as_str)
    }

    /// True if no item has a title.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Titles;

    #[test]
    fn quoted_fields_and_bad_rows() {
        let text = b"title,item_id\n\"A, \"\"B\"\"\",3\nshort\nx,not a number\n\xff,4\n";
        let titles = Titles::parse(text, "item_id").unwrap();
        assert_eq!(titles.get(3), Some("A, \"B\""));
        assert_eq!(titles.get(4), Some("\u{fffd}"));
        assert_eq!(titles.get(5), None);
        assert!(Titles::parse(b"a,b\n1,2\n", "item_id").is_err());
        assert!(Titles::parse(b"", "item_id").is_err());
    }
}
