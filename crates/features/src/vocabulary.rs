//! Table sizes that are only defined by vocabulary files.

use crate::feature::MAX_ROWS;
use crate::{Features, Problems};
use serde_json::Value;
use std::collections::BTreeMap;

/// Keys that define the number of table rows and take precedence over `vocab_file`.
const SIZES: [&str; 6] = ["zch", "dynamicemb", "hash_bucket_size", "num_buckets", "vocab_list", "vocab_dict"];

/// JSON pointers of the features of an `EasyRecConfig` whose number of table rows only `vocab_file` defines.
pub fn vocabulary_files(config: &Value) -> Vec<String> {
    let mut found = vec![];
    search(config.get("feature_configs").unwrap_or(&Value::Null), "/feature_configs", &mut found);
    found
}

fn search(value: &Value, pointer: &str, found: &mut Vec<String>) {
    let is_named = value.get("vocab_file").and_then(Value::as_str).is_some_and(|file| !file.is_empty());
    if is_named && SIZES.iter().all(|key| value.get(key).is_none()) {
        found.push(pointer.to_owned());
    }
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(key, value)| search(value, &format!("{pointer}/{key}"), found))
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, value)| search(value, &format!("{pointer}/{index}"), found));
        }
        _ => {}
    }
}

/// Sets `num_buckets` of the features of [`vocabulary_files`] to the number of rows of their tables in a checkpoint. `tensors` are
/// names without the leading `model.`, and shapes. Encoded columns hold row numbers, so the files themselves are not needed.
///
/// # Errors
/// As [`Features::parse`].
pub fn size_vocabularies<'n>(
    config: &mut Value,
    tensors: impl Iterator<Item = (&'n str, &'n [usize])>,
) -> Result<(), Problems> {
    let pointers = vocabulary_files(config);
    let set = |config: &mut Value, pointer: &str, rows: usize| {
        let message = config.pointer_mut(pointer).and_then(Value::as_object_mut);
        message.into_iter().for_each(|message| drop(message.insert("num_buckets".to_owned(), rows.into())));
    };
    let mut any = config.clone();
    pointers.iter().for_each(|pointer| set(&mut any, pointer, MAX_ROWS));
    let features = Features::parse(&any, 0)?;
    let mut rows_of: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, shape) in tensors {
        let feature = features.feature_of_table(name).map(|(feature, _)| feature);
        if let (Some(feature), Some(rows)) = (feature, shape.first()) {
            rows_of.insert(&feature.table, *rows);
        }
    }
    for feature in features.features.values().filter(|feature| pointers.contains(&feature.pointer)) {
        rows_of.get(feature.table.as_str()).into_iter().for_each(|rows| set(config, &feature.pointer, *rows));
    }
    Ok(())
}
