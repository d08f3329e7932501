//! Embedding tables that stay on the host: which, and what looks rows up there.

use crate::{Gpu, HostMemory};
use rewire_graph::Arrange;
use rewire_graph_rewrite::plan::{Buffer, BufferId, Plan, Source};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Where the embedding tables of a model lie: the parameters that [`Plan::tables`] lists.
///
/// On the host a table is read where it was given, from the map of its file for instance: a run looks up the rows that its ids name,
/// by the threads of the CPU, and hands them to the kernels as they are stored. Results have the same bits.
///
/// ```
/// use rewire_runtime::Tables;
/// assert_eq!("host".parse(), Ok(Tables::Host));
/// assert_eq!(Tables::default().to_string(), "auto");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tables {
    /// With the other parameters where these have room together, and otherwise the largest tables on the host.
    #[default]
    Auto,
    /// With the other parameters.
    Device,
    /// On the host, all of them.
    Host,
}

/// A text that names no [`Tables`].
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

/// Tables of fewer bytes have room everywhere.
const SMALL: u64 = 64 << 20;

/// The room for parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Bytes of all of them.
    pub bytes: u64,
    /// Bytes and elements of the largest one.
    pub largest: (u64, u64),
}

impl Room {
    /// The room on a device, a quarter of whose memory is for runs, or on the host. `told` goes before.
    pub fn of(gpu: Option<&Gpu>, told: Option<u64>) -> Self {
        let (found, largest) = match gpu {
            Some(gpu) => {
                let largest = (gpu.limits().max_buffer_size, i32::MAX as u64);
                (gpu.memory_bytes().map(|bytes| bytes / 4 * 3), largest)
            }
            None => (Some(HostMemory::now().left()), (u64::MAX, u64::MAX)),
        };
        Self { bytes: told.or(found).unwrap_or(u64::MAX), largest }
    }
}

/// True if a plan has tables that may be too large for some device.
pub(super) fn may_exceed(plan: &Plan, told: Option<u64>) -> bool {
    let tables = plan.tables();
    !tables.is_empty() && (told.is_some() || sum(tables.iter().filter_map(|id| plan.buffer(*id))) > SMALL)
}

/// The tables that have to stay on the host, so that all other parameters have room: the largest ones.
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

/// Bytes and elements of a parameter in the memory of kernels.
fn size(buffer: &Buffer) -> (u64, u64) {
    let (format, shape) = (buffer.dtype.format(), buffer.shape.iter().map(|dim| dim.as_const()));
    let elements = shape.collect::<Option<Vec<usize>>>().and_then(|shape| format.elements(&shape)).unwrap_or(0) as u64;
    (format.bytes(elements), elements)
}
