//! Embedding tables on the host, and their lookups.

use crate::{Gpu, HostMemory};
use rewire_graph::Arrange;
use rewire_graph_rewrite::plan::{Buffer, BufferId, Plan, Source};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The placement of a model's embedding tables, which are the parameters in [`Plan::tables`].
///
/// A table on the host is read in place, for instance from its mapped file: CPU threads look up the rows for a run's
/// ids and pass them to the kernels in their storage type. Results are identical to the bit.
///
/// ```
/// use rewire_runtime::Tables;
/// assert_eq!("host".parse(), Ok(Tables::Host));
/// assert_eq!(Tables::default().to_string(), "auto");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tables {
    /// On the device with the other parameters if the memory suffices; otherwise the largest tables are on the host.
    #[default]
    Auto,
    /// On the device with the other parameters.
    Device,
    /// All on the host.
    Host,
}

/// The string is not the name of a [`Tables`].
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("tables: expected auto, device or host, got `{0}`")]
pub struct ParseTablesError(pub String);

impl fmt::Display for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Device => "device",
            Self::Host => "host",
        })
    }
}

impl FromStr for Tables {
    type Err = ParseTablesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "device" => Ok(Self::Device),
            "host" => Ok(Self::Host),
            _ => Err(ParseTablesError(text.to_owned())),
        }
    }
}

/// Smaller tables are assumed to fit everywhere.
const SMALL: u64 = 64 << 20;

/// The memory available for parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Limit in bytes of all parameters.
    pub bytes: u64,
    /// Limit of the largest parameter, in bytes and elements.
    pub largest: (u64, u64),
}

impl Room {
    /// The memory for parameters on a device, where a quarter is reserved for runs, or on the host. `limit` overrides
    /// it.
    pub fn of(gpu: Option<&Gpu>, limit: Option<u64>) -> Self {
        let (found, largest) = match gpu {
            Some(gpu) => {
                let largest = (gpu.limits().max_buffer_size, i32::MAX as u64);
                (gpu.memory_bytes().map(|bytes| bytes / 4 * 3), largest)
            }
            None => (Some(HostMemory::now().left()), (u64::MAX, u64::MAX)),
        };
        Self { bytes: limit.or(found).unwrap_or(u64::MAX), largest }
    }
}

/// True if a plan has tables that may be too large for some device.
pub(super) fn may_exceed(plan: &Plan, limit: Option<u64>) -> bool {
    let tables = plan.tables();
    !tables.is_empty() && (limit.is_some() || sum(tables.iter().filter_map(|id| plan.buffer(*id))) > SMALL)
}

/// The tables that have to stay on the host so that all other parameters fit: the largest ones.
pub(super) fn exceeding(plan: &Plan, room: Room) -> Vec<BufferId> {
    let is_parameter = |buffer: &&Buffer| matches!(buffer.source, Source::Parameter(_));
    let mut all = sum(plan.buffers.iter().filter(is_parameter));
    let mut tables: Vec<_> = plan.tables().into_iter().map(|id| (plan.buffer(id).map_or((0, 0), size), id)).collect();
    tables.arrange_by(|a, b| b.cmp(a));
    tables.retain(|&((bytes, elements), _)| {
        let stays = bytes > room.largest.0 || elements > room.largest.1 || all > room.bytes;
        all -= if stays { bytes } else { 0 };
        stays
    });
    tables.into_iter().map(|(_, id)| id).collect()
}

fn sum<'a>(buffers: impl Iterator<Item = &'a Buffer>) -> u64 {
    buffers.map(|buffer| size(buffer).0).fold(0, u64::saturating_add)
}

/// Bytes and elements of a parameter in kernel memory.
fn size(buffer: &Buffer) -> (u64, u64) {
    let (format, shape) = (buffer.dtype.format(), buffer.shape.iter().map(|dim| dim.as_const()));
    let elements = shape.collect::<Option<Vec<usize>>>().and_then(|shape| format.elements(&shape)).unwrap_or(0) as u64;
    (format.bytes(elements), elements)
}
