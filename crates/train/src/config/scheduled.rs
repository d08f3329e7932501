use super::ConfigError;
use crate::{Optimizer, Schedule};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// The configuration of an optimizer.
pub trait Configured {
    /// The base learning rate of a schedule.
    fn lr(&self) -> f64;

    /// Creates the optimizer.
    ///
    /// # Errors
    /// [`ConfigError`] names the key that is out of bounds, or the unsupported optimizer.
    fn build(&self) -> Result<Optimizer, ConfigError>;
}

/// An optimizer and its learning rate schedule: an object with one key `.._optimizer`, and optionally a key
/// `.._learning_rate`. The default is a constant rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheduled<C> {
    /// The optimizer's configuration.
    pub optimizer: C,
    /// Its learning rate.
    pub schedule: Schedule,
}

impl<C: Configured> Scheduled<C> {
    /// The learning rate of a step of an epoch, both counted from 0. A rate of 0 stays 0 with any schedule.
    pub fn rate(&self, step: u64, epoch: u64) -> f64 {
        let base = self.optimizer.lr();
        match base == 0.0 {
            true => base,
            false => self.schedule.rate(base, if self.schedule.is_by_epoch() { epoch } else { step }),
        }
    }

    /// Creates the optimizer.
    ///
    /// # Errors
    /// As [`Configured::build`].
    pub fn build(&self) -> Result<Optimizer, ConfigError> {
        self.optimizer.build()
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.build()?;
        self.schedule.check()
    }
}

impl<'de, C: Deserialize<'de>> Deserialize<'de> for Scheduled<C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Keys(PhantomData))
    }
}

struct Keys<C>(PhantomData<C>);

impl<'de, C: Deserialize<'de>> Visitor<'de> for Keys<C> {
    type Value = Scheduled<C>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with an optimizer and a learning rate")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut optimizer, mut schedule) = (None, None);
        while let Some(key) = map.next_key::<String>()? {
            let is_rate = key.ends_with("_learning_rate");
            let is_known = if is_rate { schedule.is_some() } else { optimizer.is_some() };
            if is_known {
                let kind = if is_rate { "learning rate" } else { "optimizer" };
                return Err(A::Error::custom(format!("expected one {kind}, got `{key}` as well")));
            }
            let entry = MapAccessDeserializer::new(Entry { key: Some(key), map: &mut map });
            if is_rate {
                schedule = Some(Schedule::deserialize(entry)?);
            } else {
                optimizer = Some(C::deserialize(entry)?);
            }
        }
        let optimizer = optimizer.ok_or_else(|| A::Error::custom("expected an optimizer, got none"))?;
        Ok(Scheduled { optimizer, schedule: schedule.unwrap_or_default() })
    }
}

/// One entry of a map, with its key.
struct Entry<'m, A> {
    key: Option<String>,
    map: &'m mut A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Entry<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        self.key.take().map(|key| seed.deserialize(key.into_deserializer())).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}
