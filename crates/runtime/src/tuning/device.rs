use super::{Bucket, KernelTunings, identity, symbols};
use crate::Gpu;
use crate::model::EMITTER;
use rewire_graph::Symbol;
use rewire_graph_rewrite::device::{Target, Tuning};
use rewire_graph_rewrite::plan::Computation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Limit of the sizes with tunings per kernel, for tunings shipped with a model.
const MOST_SIZES: usize = 1024;

/// By kernel [`identity`].
pub(crate) type Tunings = BTreeMap<String, KernelTunings>;

/// The dependencies of tunings besides kernels and sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Device {
    pub name: String,
    pub backend: String,
    pub driver: String,
    pub target: Target,
    /// The hash of the emitter's source.
    pub emitter: String,
}

impl Device {
    pub fn new(gpu: &Gpu) -> Self {
        let info = gpu.info();
        Self {
            name: info.name.clone(),
            backend: info.backend.to_string(),
            driver: format!("{} {}", info.driver, info.driver_info),
            target: gpu.target().clone(),
            emitter: EMITTER.to_owned(),
        }
    }
}

/// Tunings measured on a device, to be shipped with a model. They are validated like any data: invalid tunings are
/// ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceTunings {
    pub(crate) device: Device,
    pub(crate) kernels: Tunings,
}

impl DeviceTunings {
    /// An empty set of tunings for an open device.
    pub fn new(gpu: &Gpu) -> Self {
        Self { device: Device::new(gpu), kernels: Tunings::new() }
    }

    /// Adds a tuning of a kernel of a loaded [`Model::plan`](crate::Model::plan), for all sizes that round up to the
    /// same powers of two as `size`.
    pub fn insert(&mut self, computation: &Computation, size: impl Fn(Symbol) -> Option<i64>, tuning: Tuning) {
        if let Some(kernel) = identity(computation) {
            let bucket = Bucket::new(&symbols(computation), size);
            self.kernels.entry(kernel).or_default().insert(bucket, tuning);
        }
    }

    /// The name of the device.
    pub fn device(&self) -> &str {
        &self.device.name
    }

    /// The number of tunings, over all kernels and sizes.
    pub fn count(&self) -> usize {
        self.kernels.values().map(|kernel| kernel.sizes.len()).sum()
    }

    /// True if they were measured on such a device, with any driver, and kernels of this version.
    pub fn are_of(&self, gpu: &Gpu) -> bool {
        let own = Device::new(gpu);
        self.device == Device { driver: self.device.driver.clone(), ..own }
    }

    /// The sizes and tunings of a kernel of a loaded [`Model::plan`](crate::Model::plan).
    pub fn of(&self, computation: &Computation) -> Vec<(String, Tuning)> {
        let known = identity(computation).and_then(|identity| self.kernels.get(&identity));
        let entry = |(bucket, tuning): (&Bucket, &Tuning)| (bucket.to_string(), *tuning);
        known.map_or_else(Vec::new, |known| known.sizes.iter().map(entry).collect())
    }

    /// Checks the limits on tunings shipped with a model.
    ///
    /// # Errors
    /// The limit that is exceeded.
    pub fn check(&self) -> Result<(), String> {
        match self.kernels.values().map(|kernel| kernel.sizes.len()).find(|sizes| *sizes > MOST_SIZES) {
            Some(sizes) => Err(format!("have tunings of a kernel for {sizes} sizes: expected {MOST_SIZES} at most")),
            None => Ok(()),
        }
    }
}
