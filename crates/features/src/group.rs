//! Groups of features as tensors.

use crate::{DenseEmbedding, Feature, FeatureValues, Features, GroupConfig, GroupType, Origin, Pooling, Problem};
use rewire_graph::{DType, Dim, Ragged, Scope, Tensor};
use serde_json::Value;

/// The value of a group.
#[derive(Clone, Debug)]
pub enum Group {
    /// A DEEP or WIDE group, or a SEQUENCE group without sequence features.
    Dense {
        /// One part per feature, in order.
        parts: Vec<Part>,
        /// The sequences of its `sequence_groups` by name.
        sequences: Vec<(String, SequenceSteps)>,
        /// The encoders of the sequences, as JSON with their position in the configuration.
        encoders: Vec<(String, Value)>,
    },
    /// A SEQUENCE group.
    Sequence(SequenceSteps),
    /// A JAGGED_SEQUENCE group.
    Jagged {
        /// One row per step, `[steps, W]`.
        values: Tensor,
        /// Number of steps of every row of the batch.
        rows: Ragged,
    },
}

/// The columns of a feature.
#[derive(Clone, Debug)]
pub struct Part {
    /// The feature.
    pub name: String,
    /// `[B, W]`
    pub values: Tensor,
}

/// A query and the steps of a sequence.
#[derive(Clone, Debug)]
pub struct SequenceSteps {
    /// Features of the query, which are not sequences: one part each.
    pub query: Vec<Part>,
    /// One row per step, `[steps, W]`: the columns of all sequence features, concatenated.
    pub steps: Tensor,
    /// Number of steps of every row of the batch, defined by the first sequence feature.
    pub rows: Ragged,
}

impl SequenceSteps {
    /// The query `[B, Q]`; `None` if all features of the group are sequences.
    pub fn query(&self, scope: &Scope) -> Option<Tensor> {
        let parts: Vec<&Tensor> = self.query.iter().map(|part| &part.values).collect();
        (!parts.is_empty()).then(|| scope.concat(&parts, 1))
    }
}

impl Feature {
    /// The name of the feature's table in a group: with `_wide` and the group's suffix.
    pub(crate) fn table_in(&self, is_wide: bool, suffix: Option<&str>) -> String {
        let wide = if is_wide { "_wide" } else { "" };
        let suffix = suffix.filter(|suffix| !suffix.is_empty()).map_or(String::new(), |suffix| format!("_{suffix}"));
        format!("{}{wide}{suffix}", self.table)
    }
}

impl Features {
    /// The first feature that uses the table of a parameter, and whether it belongs to a WIDE group; `None` for parameters that are not
    /// tables.
    pub fn feature_of_table(&self, parameter: &str) -> Option<(&Feature, bool)> {
        let (is_unpooled, rest) = match parameter.split_once(".embedding_bags.") {
            Some((_, rest)) => (false, rest),
            None => (true, parameter.split_once("ec_dict.")?.1.split_once(".embeddings.")?.1),
        };
        let table = rest.strip_suffix(".weight")?;
        self.groups.iter().find_map(|group| {
            let is_wide = group.group_type == GroupType::Wide;
            let own_unpooled = matches!(group.group_type, GroupType::Sequence | GroupType::JaggedSequence);
            let suffix = group.embedding_name_suffix.as_deref();
            let find = |names: &[String], suffix: Option<&str>| {
                let mut features = names.iter().filter_map(|name| self.features.get(name));
                features.find(|feature| feature.is_sparse() && feature.table_in(is_wide, suffix) == table)
            };
            let nested = group.sequence_groups.iter().filter(|_| is_unpooled);
            let mut nested = nested
                .filter_map(|inner| find(&inner.feature_names, inner.embedding_name_suffix.as_deref().or(suffix)));
            let own = if own_unpooled == is_unpooled { find(&group.feature_names, suffix) } else { None };
            own.or_else(|| nested.next()).map(|feature| (feature, is_wide))
        })
    }
}

/// The tables of a group during tracing.
struct Tables<'a> {
    features: &'a Features,
    scope: &'a Scope,
    /// The prefix of input names.
    prefix: &'a str,
    batch: Dim,
    suffix: Option<&'a str>,
    is_wide: bool,
    unpooled: bool,
}

impl Features {
    /// Traces a group in the module of an embedding group, `embedding_group` for most models.
    ///
    /// # Errors
    /// [`Problem`] if the group does not exist, or a JAGGED_SEQUENCE group has no sequence.
    pub fn trace(&self, scope: &Scope, name: &str) -> Result<Group, Problem> {
        self.trace_of(scope, "", name)
    }

    /// [`Features::trace`] for a separate batch: its input names start with `prefix`.
    ///
    /// # Errors
    /// As [`Features::trace`].
    pub fn trace_of(&self, scope: &Scope, prefix: &str, name: &str) -> Result<Group, Problem> {
        let at = (scope, prefix);
        let position = self.groups.iter().position(|group| group.group_name == name);
        let missing = || Problem::new("/model_config/feature_groups", format!("there is no group `{name}`"));
        let position = position.ok_or_else(missing)?;
        let group = self.groups.get(position).ok_or_else(missing)?;
        let pointer = format!("/model_config/feature_groups/{position}");
        match group.group_type {
            GroupType::Deep | GroupType::Wide => self.dense(at, group, &pointer),
            GroupType::Sequence => {
                let tables = Tables::unpooled(self, at, group, None);
                let mut features = group.feature_names.iter().filter_map(|name| self.features.get(name));
                // A group without sequences only has a query, which reads unpooled tables.
                match features.any(|feature| feature.sequence.is_some()) {
                    true => Ok(Group::Sequence(tables.sequence(&group.feature_names, &pointer)?)),
                    false => {
                        let parts = tables.parts(group.feature_names.iter());
                        Ok(Group::Dense { parts, sequences: vec![], encoders: vec![] })
                    }
                }
            }
            GroupType::JaggedSequence => {
                let tables = Tables::unpooled(self, at, group, None);
                let SequenceSteps { steps, rows, .. } = tables.sequence(&group.feature_names, &pointer)?;
                Ok(Group::Jagged { values: steps, rows })
            }
        }
    }

    fn dense(&self, at: (&Scope, &str), group: &GroupConfig, pointer: &str) -> Result<Group, Problem> {
        let mut sequences = vec![];
        for (index, inner) in group.sequence_groups.iter().enumerate() {
            let name = inner.group_name.as_ref().unwrap_or(&group.group_name).clone();
            let pointer = format!("{pointer}/sequence_groups/{index}");
            let own = Tables::unpooled(self, at, group, inner.embedding_name_suffix.as_deref());
            sequences.push((name, own.sequence(&inner.feature_names, &pointer)?));
        }
        let encoders = group.sequence_encoders.iter().enumerate();
        let encoders = encoders.map(|(n, encoder)| (format!("{pointer}/sequence_encoders/{n}"), encoder.clone()));
        let pooled = Tables { unpooled: false, ..Tables::unpooled(self, at, group, None) };
        let parts = pooled.parts(group.feature_names.iter());
        Ok(Group::Dense { parts, sequences, encoders: encoders.collect() })
    }
}

impl<'a> Tables<'a> {
    /// The unpooled tables of a group. A missing suffix defaults to the group's.
    fn unpooled(
        features: &'a Features,
        (scope, prefix): (&'a Scope, &'a str),
        group: &'a GroupConfig,
        suffix: Option<&'a str>,
    ) -> Self {
        Self {
            features,
            scope,
            prefix,
            batch: scope.size(&format!("{prefix}batch")),
            suffix: suffix.or(group.embedding_name_suffix.as_deref()),
            is_wide: group.group_type == GroupType::Wide,
            unpooled: true,
        }
    }

    fn parts(&self, names: impl Iterator<Item = &'a String>) -> Vec<Part> {
        let features = names.filter_map(|name| self.features.features.get(name));
        features
            .filter(|feature| feature.sequence.is_none())
            .map(|feature| Part { name: feature.name.clone(), values: self.one(feature) })
            .collect()
    }

    fn input(&self, feature: &Feature, part: &str) -> String {
        format!("{}{}", self.prefix, feature.input(part))
    }

    /// Names of the module and of its data group that hold the feature's table.
    fn modules(&self, feature: &Feature) -> (&'static str, &'static str) {
        let group = if self.features.sampled.contains(&feature.name) { "__NEG__" } else { "__BASE__" };
        (if self.unpooled { "seq_emb_impls" } else { "emb_impls" }, group)
    }

    fn table(&self, feature: &Feature, rows: usize) -> Tensor {
        let dim = if self.is_wide { self.features.wide_dim } else { feature.dim };
        let (collections, data) = self.modules(feature);
        let table = feature.table_in(self.is_wide, self.suffix);
        let is_managed = feature.growing.as_ref().is_some_and(|growing| growing.origin == Origin::Managed);
        let (managed, inner) = if is_managed { ("mc_", "_embedding_module.") } else { ("", "") };
        let name = match self.unpooled {
            true => format!("{collections}.{data}.{managed}ec_dict.{dim}.{inner}embeddings.{table}.weight"),
            false => format!("{collections}.{data}.{managed}ebc.{inner}embedding_bags.{table}.weight"),
        };
        match feature.dtype {
            DType::F16 => self.scope.parameter(&name, DType::F16, [rows, dim]),
            _ => self.scope.weight(&name, [rows, dim]),
        }
    }

    /// A feature that is not a sequence, as `[B, W]`.
    fn one(&self, feature: &Feature) -> Tensor {
        let scope = self.scope;
        match &feature.values {
            FeatureValues::Floats { embedding, .. } => {
                let shape = [self.batch.clone(), feature.value_dim.into()];
                let values = scope.input(&self.input(feature, "values"), DType::F32, shape);
                embedding.map_or_else(|| values.clone(), |embedding| self.embedded(feature, embedding, &values))
            }
            FeatureValues::Ids { rows, .. } => {
                let table = self.table(feature, *rows);
                let bags = scope.lengths(&self.input(feature, "lengths"), &self.batch);
                let ids = scope.input(&self.input(feature, "values"), DType::U32, [bags.total.clone()]);
                if self.unpooled && feature.value_dim == 1 {
                    return first(scope, &table, &ids, &bags);
                }
                let weighted = feature.weighted && !self.unpooled;
                let weights = weighted.then(|| {
                    let weights = scope.input(&self.input(feature, "weights"), DType::F32, [bags.total.clone()]);
                    weights.reshape([bags.total.clone(), 1.into()])
                });
                pooled(&table, &ids, weights.as_ref(), &bags, feature.pooling)
            }
        }
    }

    fn embedded(&self, feature: &Feature, embedding: DenseEmbedding, x: &Tensor) -> Tensor {
        let (name, width) = (&feature.name, feature.value_dim);
        let (key, dim) = match embedding {
            DenseEmbedding::AutoDis { channels, temperature, keep_prob } => {
                let key = format!("autodis#{}#{channels}#{keep_prob:.6}#{temperature:.6}", feature.dim);
                (key.replace('.', "_"), feature.dim)
            }
            DenseEmbedding::Mlp if width == 1 => (format!("mlp#{}", feature.dim), feature.dim),
            // The spaces are part of TorchEasyRec's parameter names.
            DenseEmbedding::Mlp => {
                (format!("mlp#{}#vdim#{width}#feature_name#            {name}", feature.dim), feature.dim)
            }
        };
        let (collections, data) = self.modules(feature);
        self.scope.module(&format!("{collections}.{data}.dense_ec.dense_embs.{key}"), |scope| match embedding {
            DenseEmbedding::Mlp if width == 1 => x * scope.weight(&format!("proj_w_{name}.weight"), [dim]),
            DenseEmbedding::Mlp => x.matmul(&scope.weight(&format!("proj_w_{name}.weight"), [width, dim])),
            DenseEmbedding::AutoDis { channels, temperature, keep_prob } => {
                let h = x * scope.weight(&format!("proj_w_{name}.weight"), [channels]);
                let h = h.gt(0.0).select(&h, &(&h * 0.01));
                let mixed = h.linear(&scope.weight(&format!("proj_m_{name}.weight"), [channels, channels]), None);
                let scores = (&mixed + &h * keep_prob) / temperature;
                scores.softmax(1).matmul(&scope.weight(&format!("meta_emb_{name}.weight"), [channels, dim]))
            }
        })
    }

    /// The steps of a sequence feature, `[steps, W]`.
    fn steps(&self, feature: &Feature) -> (Tensor, Ragged) {
        let scope = self.scope;
        let lengths = format!("{}{}.lengths", self.prefix, self.features.lengths_of(feature));
        let rows = scope.lengths(&lengths, &self.batch);
        let steps = match &feature.values {
            FeatureValues::Floats { embedding, .. } => {
                let shape = [rows.total.clone(), feature.value_dim.into()];
                let values = scope.input(&self.input(feature, "values"), DType::F32, shape);
                embedding.map_or_else(|| values.clone(), |embedding| self.embedded(feature, embedding, &values))
            }
            FeatureValues::Ids { rows: count, .. } => {
                let table = self.table(feature, *count);
                if feature.value_dim == 1 {
                    let ids = scope.input(&self.input(feature, "values"), DType::U32, [rows.total.clone()]);
                    table.gather(&ids).cast(DType::F32)
                } else {
                    let keys = scope.lengths(&self.input(feature, "key_lengths"), &rows.total);
                    let ids = scope.input(&self.input(feature, "values"), DType::U32, [keys.total.clone()]);
                    pooled(&table, &ids, None, &keys, feature.pooling)
                }
            }
        };
        (steps, rows)
    }

    fn sequence(&self, names: &'a [String], pointer: &str) -> Result<SequenceSteps, Problem> {
        let query = self.parts(names.iter());
        let features = names.iter().filter_map(|name| self.features.features.get(name));
        let mut sequences = features.filter(|feature| feature.sequence.is_some()).map(|feature| self.steps(feature));
        let (first, rows) =
            sequences.next().ok_or_else(|| Problem::new(pointer, "needs at least one feature that is a sequence"))?;
        let mut steps = vec![first];
        steps.extend(sequences.map(|(values, own)| aligned(self.scope, &values, &own, &rows)));
        let steps = self.scope.concat(&steps.iter().collect::<Vec<_>>(), 1);
        Ok(SequenceSteps { query, steps, rows })
    }
}

/// Pools the table's rows per bag, `[bags, D]`.
fn pooled(table: &Tensor, ids: &Tensor, weights: Option<&Tensor>, bags: &Ragged, pooling: Pooling) -> Tensor {
    let rows = table.gather(ids).cast(DType::F32);
    let rows = weights.map_or_else(|| rows.clone(), |weights| &rows * weights);
    match pooling {
        Pooling::Sum => rows.jagged_sum(bags),
        Pooling::Mean => rows.jagged_mean(bags),
    }
}

/// The embedding of the first id of every bag, `[bags, D]`; zeros for an empty bag.
fn first(scope: &Scope, table: &Tensor, ids: &Tensor, bags: &Ragged) -> Tensor {
    let one = scope.host_fill(bags.batch.clone(), &scope.host_size(1));
    let kept = Ragged::from_lengths(&bags.lengths.minimum(&one));
    pooled(table, &ids.jagged_head(bags, &kept), None, &kept, Pooling::Sum)
}

/// Truncates the rows of every sample to the steps of `rows`, or pads them with zeros.
fn aligned(scope: &Scope, values: &Tensor, own: &Ragged, rows: &Ragged) -> Tensor {
    if own.lengths.value() == rows.lengths.value() {
        return values.clone();
    }
    let kept = Ragged::from_lengths(&own.lengths.minimum(&rows.lengths));
    let missing = Ragged::from_lengths(&(&rows.lengths - &kept.lengths));
    let zeros = scope.scalar(DType::F32, 0.0).broadcast([missing.total.clone(), values.width().into()]);
    let (steps, both) = values.jagged_head(own, &kept).jagged_concat(&kept, &zeros, &missing);
    // Both totals are equal, although the shape program computes them separately.
    debug_assert_eq!(both.total, rows.total);
    steps
}
