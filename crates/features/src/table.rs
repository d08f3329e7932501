use crate::encode::Encoded;
use crate::feature::Context;
use crate::message::{one_of, read_feature};
use crate::{
    Column, EncodeError, Feature, FeatureValues, GroupConfig, GroupType, Growing, NegativeRow, Problems, read,
};
use rewire_graph::{HostTensor, Ordered};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The default separator of values in text (`fg_encoded_multival_sep`).
const SEPARATOR: &str = "\u{3}";

/// The default number of columns of WIDE tables (`wide_embedding_dim`).
const WIDE: usize = 4;

/// The features and groups of a pipeline.
#[derive(Clone, Debug)]
pub struct Features {
    /// The features by full name.
    pub features: BTreeMap<String, Feature>,
    /// The groups, in order.
    pub groups: Vec<GroupConfig>,
    /// Columns of the tables of WIDE groups.
    pub wide_dim: usize,
    /// Sampled features, whose tables are separate.
    pub(crate) sampled: BTreeSet<String>,
    /// For each sequence that shares another one's `lengths`, the feature that owns them.
    pub(crate) lengths: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SequenceMessage {
    sequence_name: String,
    #[serde(default, rename = "sequence_length")]
    _length: Value,
    #[serde(default)]
    sequence_delim: Option<String>,
    #[serde(default, rename = "sequence_pk")]
    _key: Value,
    #[serde(default)]
    features: Vec<Value>,
}

impl Features {
    /// Parses the features and groups of an `EasyRecConfig` given as JSON with TorchEasyRec's field names: `feature_configs`, `data_config`
    /// and `model_config.feature_groups`. `wide_dim` is the model's `wide_embedding_dim`; 0 means 4.
    ///
    /// # Errors
    /// Every unknown or unsupported key, groups with missing features, and different tables with the same name.
    pub fn parse(config: &Value, wide_dim: usize) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let data = config.get("data_config");
        let of_data = |key: &str| data.and_then(|data| data.get(key));
        if let Some(mode) = of_data("fg_mode").and_then(Value::as_str).filter(|mode| *mode != "FG_NONE") {
            let reason = format!("must be FG_NONE, with columns encoded by the feature generator, got {mode}");
            problems.push("/data_config/fg_mode", reason);
        }
        let separator = of_data("fg_encoded_multival_sep").and_then(Value::as_str).unwrap_or(SEPARATOR);
        let wide_dim = if wide_dim == 0 { WIDE } else { wide_dim };
        let mut all = Self {
            features: BTreeMap::new(),
            groups: groups(config, &mut problems),
            wide_dim,
            sampled: BTreeSet::new(),
            lengths: BTreeMap::new(),
        };
        let configs = config.get("feature_configs").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for (index, config) in configs.iter().enumerate() {
            all.add(config, &format!("/feature_configs/{index}"), separator, &mut problems);
        }
        all.add_sampled(of_data);
        all.share_lengths();
        all.check(&mut problems);
        problems.none_or(all)
    }

    fn add(&mut self, config: &Value, pointer: &str, separator: &str, problems: &mut Problems) {
        let Some((kind, message)) = one_of(config, pointer, problems) else { return };
        let pointer = format!("{pointer}/{kind}");
        if kind != "sequence_feature" {
            self.add_one(kind, message, &pointer, &Context { separator, grouped: None }, problems);
            return;
        }
        let Some(sequence) = read::<SequenceMessage>(message, &pointer, problems) else { return };
        let delimiter = sequence.sequence_delim.as_deref().unwrap_or(";");
        let context = Context { separator, grouped: Some((&sequence.sequence_name, delimiter)) };
        for (index, config) in sequence.features.iter().enumerate() {
            let pointer = format!("{pointer}/features/{index}");
            if let Some((kind, message)) = one_of(config, &pointer, problems) {
                self.add_one(kind, message, &format!("{pointer}/{kind}"), &context, problems);
            }
        }
    }

    fn add_one(&mut self, kind: &str, value: &Value, pointer: &str, context: &Context<'_>, problems: &mut Problems) {
        let feature = read_feature(value, pointer, problems)
            .and_then(|message| Feature::new(kind, message, pointer, context, problems));
        let Some(feature) = feature else { return };
        if self.features.contains_key(&feature.name) {
            problems.push(pointer, format!("another feature has the name `{}`", feature.name));
        }
        self.features.insert(feature.name.clone(), feature);
    }

    /// Marks the features that a negative sampler provides. They form a separate data group.
    fn add_sampled<'a>(&mut self, of_data: impl Fn(&str) -> Option<&'a Value>) {
        if of_data("force_base_data_group").and_then(Value::as_bool) == Some(true) {
            return;
        }
        let samplers = ["negative_sampler", "negative_sampler_v2", "hard_negative_sampler", "hard_negative_sampler_v2"];
        let attributes = samplers.iter().filter_map(|sampler| of_data(sampler)?.get("attr_fields")?.as_array());
        let names: BTreeSet<&str> = attributes.flatten().filter_map(Value::as_str).ordered_set();
        let scalar = self.features.values().filter(|feature| feature.sequence.is_none());
        self.sampled = scalar.map(|f| f.name.clone()).filter(|name| names.contains(name.as_str())).ordered_set();
    }

    fn share_lengths(&mut self) {
        let jagged = self.groups.iter().filter(|group| group.group_type == GroupType::JaggedSequence);
        for group in jagged {
            let names: Vec<&String> = group.feature_names.iter().filter(|name| self.is_sequence(name)).collect();
            let shared = names.iter().map(|name| self.lengths.get(*name).unwrap_or(name)).min().cloned();
            let Some(shared) = shared else { continue };
            let others: BTreeSet<String> =
                names.iter().map(|name| self.lengths.get(*name).unwrap_or(name).to_string()).ordered_set();
            let named = names.into_iter().cloned().collect::<Vec<_>>();
            for owner in self.lengths.values_mut().filter(|owner| others.contains(*owner)) {
                owner.clone_from(&shared);
            }
            self.lengths.extend(named.into_iter().map(|name| (name, shared.clone())));
        }
    }

    fn is_sequence(&self, name: &str) -> bool {
        self.features.get(name).is_some_and(|feature| feature.sequence.is_some())
    }

    /// The name of the feature that owns the lengths of a sequence.
    pub fn lengths_of<'a>(&'a self, feature: &'a Feature) -> &'a str {
        self.lengths.get(&feature.name).unwrap_or(&feature.name)
    }

    /// Checks that groups have features of allowed types, and that tables with the same name are equal.
    fn check(&self, problems: &mut Problems) {
        self.features.values().for_each(|feature| self.check_growing(feature, problems));
        let mut tables: BTreeMap<(bool, String), (usize, usize, &str)> = BTreeMap::new();
        for (index, group) in self.groups.iter().enumerate() {
            let pointer = format!("/model_config/feature_groups/{index}");
            let suffix = group.embedding_name_suffix.as_deref();
            let unpooled = matches!(group.group_type, GroupType::Sequence | GroupType::JaggedSequence);
            let mut check = |names: &[String], pointer: &str, unpooled: bool, suffix: Option<&str>| {
                for (position, name) in names.iter().enumerate() {
                    let key = format!("{pointer}/feature_names/{position}");
                    let Some(feature) = self.features.get(name) else {
                        problems.push(key, format!("there is no feature `{name}`"));
                        continue;
                    };
                    if feature.sequence.is_some() && !unpooled {
                        problems.push(&key, format!("`{name}` is a sequence: groups of type DEEP and WIDE accept sequences only in `sequence_groups`"));
                    }
                    if group.group_type == GroupType::JaggedSequence && feature.sequence.is_none() {
                        problems.push(
                            key,
                            format!("`{name}` is not a sequence: groups of type JAGGED_SEQUENCE accept only sequences"),
                        );
                    } else if let FeatureValues::Ids { rows, .. } = feature.values {
                        let is_wide = group.group_type == GroupType::Wide;
                        let dim = if is_wide { self.wide_dim } else { feature.dim };
                        if dim == 0 {
                            problems.push(format!("{}/embedding_dim", feature.pointer), "must be at least 1");
                        }
                        let table = feature.table_in(is_wide, suffix);
                        let unpooled_dim = if unpooled { dim } else { 0 };
                        let known = tables.entry((unpooled, format!("{unpooled_dim}.{table}")));
                        let (other_rows, other_dim, other) = *known.or_insert((rows, dim, &feature.name));
                        if (other_rows, other_dim) != (rows, dim) {
                            let reason = format!(
                                "`{name}` and `{other}` share the table `{table}`: expected equal sizes, got {rows} x {dim} and {other_rows} x {other_dim}"
                            );
                            problems.push(&feature.pointer, reason);
                        }
                    }
                }
            };
            check(&group.feature_names, &pointer, unpooled, suffix);
            for (position, inner) in group.sequence_groups.iter().enumerate() {
                let suffix = inner.embedding_name_suffix.as_deref().or(suffix);
                check(&inner.feature_names, &format!("{pointer}/sequence_groups/{position}"), true, suffix);
            }
        }
    }

    /// Checks that features with the same table name use equal growth settings.
    fn check_growing(&self, feature: &Feature, problems: &mut Problems) {
        let mut same = self.features.values().filter(|other| other.is_sparse() && other.table == feature.table);
        let same = same.next().filter(|_| feature.is_sparse());
        if let Some(other) = same.filter(|other| other.growing != feature.growing) {
            let reason = format!(
                "`{}` and `{}` share the table `{}`: expected equal `zch` or `dynamicemb`",
                feature.name, other.name, feature.table
            );
            problems.push(&feature.pointer, reason);
        }
    }

    /// The growing tables by name, each with the features that use it.
    pub fn growing(&self) -> BTreeMap<&str, (&Growing, Vec<&Feature>)> {
        let mut all: BTreeMap<&str, (&Growing, Vec<&Feature>)> = BTreeMap::new();
        for feature in self.features.values() {
            if let Some(growing) = &feature.growing {
                all.entry(&feature.table).or_insert((growing, vec![])).1.push(feature);
            }
        }
        all
    }

    /// The feature whose values the input holds, with any prefix.
    pub fn feature_of_input(&self, input: &str) -> Option<&Feature> {
        let name = input.strip_suffix(".values")?;
        let after = name.match_indices('.').map(|(at, _)| &name[at + 1..]);
        std::iter::once(name).chain(after).find_map(|name| self.features.get(name))
    }

    /// The group of that name.
    pub fn group(&self, name: &str) -> Option<&GroupConfig> {
        self.groups.iter().find(|group| group.group_name == name)
    }

    /// True if a group uses a table of that name with this many rows.
    pub fn has_table(&self, table: &str, rows: usize) -> bool {
        self.groups.iter().any(|group| {
            let suffix = group.embedding_name_suffix.as_deref();
            let nested = group.sequence_groups.iter();
            let nested = nested.map(|inner| (&inner.feature_names, inner.embedding_name_suffix.as_deref().or(suffix)));
            let is_wide = group.group_type == GroupType::Wide;
            [(&group.feature_names, suffix)].into_iter().chain(nested).any(|(names, suffix)| {
                names.iter().filter_map(|name| self.features.get(name)).any(|feature| {
                    let is_of = matches!(feature.values, FeatureValues::Ids { rows: own, .. } if own == rows);
                    is_of && feature.table_in(is_wide, suffix) == table
                })
            })
        })
    }

    /// The name of the input with the number of steps of every row of a sequence group.
    pub fn lengths_input(&self, group: &str) -> Option<String> {
        Some(format!("{}.lengths", self.lengths_of(self.first_sequence(group)?)))
    }

    /// The feature that defines the steps of a sequence group.
    pub fn first_sequence(&self, group: &str) -> Option<&Feature> {
        let names = self.group(group)?.feature_names.iter();
        names.filter_map(|name| self.features.get(name)).find(|feature| feature.sequence.is_some())
    }

    /// Number of non-sequence parts of a group: its features, and the encoders of a DEEP or WIDE group.
    pub fn dense_parts(&self, group: &str) -> usize {
        let Some(group) = self.group(group) else { return 0 };
        let names = group.feature_names.iter();
        let features = names.filter_map(|name| self.features.get(name)).filter(|feature| feature.sequence.is_none());
        let is_dense = matches!(group.group_type, GroupType::Deep | GroupType::Wide);
        features.count() + if is_dense { group.sequence_encoders.len() } else { 0 }
    }

    /// Encodes rows of the named columns as graph inputs. Rows may be in any order.
    ///
    /// # Errors
    /// [`EncodeError`] names the column and the row.
    pub fn encode<'c>(
        &self,
        names: impl IntoIterator<Item = impl AsRef<str>>,
        column: impl Fn(&str) -> Option<&'c Column<'c>>,
        rows: impl Iterator<Item = usize> + Clone,
    ) -> Result<Vec<(String, HostTensor)>, EncodeError> {
        self.encode_each(names, rows.clone(), |feature| encoded(feature, &column, rows.clone()))
    }

    /// [`Features::encode`] with the items of a row of negatives appended: to a sequence as steps of its last row, to other features as
    /// new rows.
    ///
    /// # Errors
    /// As [`Features::encode`], and if two columns of the negatives have different numbers of items.
    pub fn encode_with_negatives<'c>(
        &self,
        names: impl IntoIterator<Item = impl AsRef<str>>,
        column: impl Fn(&str) -> Option<&'c Column<'c>>,
        rows: Range<usize>,
        negatives: NegativeRow<'_, '_>,
    ) -> Result<Vec<(String, HostTensor)>, EncodeError> {
        let mut first: Option<(String, i64)> = None;
        self.encode_each(names, rows.clone(), |feature| {
            let mut own = encoded(feature, &column, rows.clone())?;
            let more = Encoded::negatives(feature, negatives)?;
            let items = more.items(feature);
            let (other, count) = first.get_or_insert_with(|| (feature.name.clone(), items));
            if *count != items {
                let (first, second) = (other.clone(), feature.name.clone());
                return Err(EncodeError::Lengths { first, second, row: negatives.row, lengths: (*count, items) });
            }
            own.append(more, feature);
            Ok(own)
        })
    }

    /// Number of items of a feature in a row of negatives.
    ///
    /// # Errors
    /// As [`Features::encode`].
    pub fn negative_items(&self, name: &str, negatives: NegativeRow<'_, '_>) -> Result<i64, EncodeError> {
        let feature = self.features.get(name).ok_or_else(|| EncodeError::Missing { column: name.to_owned() })?;
        Ok(Encoded::negatives(feature, negatives)?.items(feature))
    }

    /// The first id of a sparse feature in every row, 0 for a row without ids.
    ///
    /// # Errors
    /// As [`Features::encode`], and [`EncodeError::NoIds`].
    pub fn first_ids<'c>(
        &self,
        name: &str,
        column: impl Fn(&str) -> Option<&'c Column<'c>>,
        rows: Range<usize>,
    ) -> Result<Vec<u32>, EncodeError> {
        let feature = self.features.get(name).filter(|feature| matches!(feature.values, FeatureValues::Ids { .. }));
        let feature = feature.ok_or_else(|| EncodeError::NoIds { feature: name.to_owned() })?;
        Ok(encoded(feature, column, rows)?.first_ids(feature))
    }

    /// Number of steps of a sequence, or of ids of other features, in every row.
    ///
    /// # Errors
    /// As [`Features::encode`].
    pub fn steps<'c>(
        &self,
        name: &str,
        column: impl Fn(&str) -> Option<&'c Column<'c>>,
        rows: Range<usize>,
    ) -> Result<Vec<i64>, EncodeError> {
        let feature = self.features.get(name).ok_or_else(|| EncodeError::Missing { column: name.to_owned() })?;
        Ok(encoded(feature, column, rows)?.lengths)
    }

    fn encode_each(
        &self,
        names: impl IntoIterator<Item = impl AsRef<str>>,
        rows: impl Iterator<Item = usize> + Clone,
        mut encoded: impl FnMut(&Feature) -> Result<Encoded, EncodeError>,
    ) -> Result<Vec<(String, HostTensor)>, EncodeError> {
        let mut inputs = vec![];
        let mut shared: BTreeMap<&str, (&str, Vec<i64>)> = BTreeMap::new();
        for name in names {
            let missing = || EncodeError::Missing { column: name.as_ref().to_owned() };
            let feature = self.features.get(name.as_ref()).ok_or_else(missing)?;
            let encoded = encoded(feature)?;
            let lengths = self.lengths_of(feature);
            if self.lengths.contains_key(&feature.name) {
                let own = (feature.name.as_str(), encoded.lengths.clone());
                let (first, known) = shared.entry(lengths).or_insert(own);
                let unequal = known.iter().zip(&encoded.lengths).position(|(known, own)| known != own);
                if let Some((position, row)) = unequal.and_then(|at| Some((at, rows.clone().nth(at)?))) {
                    let at = |lengths: &[i64]| lengths.get(position).copied().unwrap_or_default();
                    return Err(EncodeError::Lengths {
                        first: (*first).to_owned(),
                        second: feature.name.clone(),
                        row,
                        lengths: (at(known), at(&encoded.lengths)),
                    });
                }
            }
            for (name, tensor) in encoded.inputs(feature, lengths)? {
                if inputs.iter().all(|(known, _)| *known != name) {
                    inputs.push((name, tensor));
                }
            }
        }
        Ok(inputs)
    }
}

fn encoded<'c>(
    feature: &Feature,
    column: impl Fn(&str) -> Option<&'c Column<'c>>,
    rows: impl Iterator<Item = usize>,
) -> Result<Encoded, EncodeError> {
    let column = column(&feature.name).ok_or_else(|| EncodeError::Missing { column: feature.name.clone() })?;
    Encoded::new(feature, column, rows)
}

fn groups(config: &Value, problems: &mut Problems) -> Vec<GroupConfig> {
    let pointer = "/model_config/feature_groups";
    let groups = config.pointer(pointer).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let read_one = |(index, group): (usize, &Value)| read(group, &format!("{pointer}/{index}"), problems);
    groups.iter().enumerate().filter_map(read_one).collect()
}
