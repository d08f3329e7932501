//! The same model on several devices.

use crate::args;
use crate::error::CliError;
use rewire::rank::{RankOptions, Spread};
use rewire::runtime::Report;
use rewire::{DeviceInfo, DeviceKind, Kernel, ThreadPool, devices};
use std::panic::resume_unwind;
use std::thread::Builder;

/// The options of a model on each device, at least one.
pub struct Devices {
    first: RankOptions,
    others: Vec<RankOptions>,
}

impl Devices {
    /// The requested devices, or the one in the options.
    pub fn new(asked: &args::Devices, with: RankOptions) -> Result<Self, CliError> {
        let with = RankOptions { threads: Some(ThreadPool::current()), ..with };
        let Some(asked) = &asked.devices else { return Ok(Self { first: with, others: vec![] }) };
        if let (Kernel::Cpu, _) | (_, Some(_)) = (with.kernel, &with.adapter) {
            return Err(CliError::DevicesTwice);
        }
        let found = devices();
        let taken = match asked {
            args::Asked::All => all(&found, with.kernel),
            args::Asked::Numbers(numbers) => numbers.clone(),
        };
        let on = |number: usize| {
            let adapter = Some(format!("#{number}"));
            RankOptions { kernel: Kernel::Wgpu, adapter, ..with.clone() }
        };
        let mut taken = taken.into_iter().map(on);
        match taken.next() {
            Some(first) => Ok(Self { first, others: taken.collect() }),
            None => Ok(Self { first: with, others: vec![] }),
        }
    }

    pub fn first(&self) -> &RankOptions {
        &self.first
    }

    pub fn count(&self) -> usize {
        1 + self.others.len()
    }

    /// Loads a model on every device, in parallel as far as the system allows threads.
    pub fn load<T: Send, E: Send>(&self, load: impl Fn(&RankOptions) -> Result<T, E> + Sync) -> Result<Spread<T>, E> {
        std::thread::scope(|scope| {
            let load = &load;
            let start = |with| (with, Builder::new().spawn_scoped(scope, move || load(with)));
            let others: Vec<_> = self.others.iter().map(start).collect();
            let first = load(&self.first)?;
            let others = others.into_iter().map(|(with, thread)| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(_) => load(with),
            });
            Ok(Spread::new(first, others.collect::<Result<Vec<T>, E>>()?))
        })
    }
}

/// The hardware GPUs, each once for all its drivers; software adapters if there are no others and a GPU is required.
fn all(found: &[DeviceInfo], kernel: Kernel) -> Vec<usize> {
    let of = |software: bool| {
        let kinds = found.iter().filter(move |device| (device.kind == DeviceKind::Software) == software);
        let mut seen = vec![];
        let once = kinds.filter(move |device| match &device.pci {
            Some(pci) if seen.contains(&pci) => false,
            Some(pci) => {
                seen.push(pci);
                true
            }
            None => true,
        });
        once.filter_map(|device| device.index).collect::<Vec<_>>()
    };
    let hardware = of(false);
    if hardware.is_empty() && kernel == Kernel::Wgpu { of(true) } else { hardware }
}

/// Describes where the members run: the kernel of the first, the names of all adapters and all memory.
pub fn report<T>(spread: &Spread<T>, of: impl Fn(&T) -> Report) -> Report {
    let others = spread.members().iter().skip(1).map(&of);
    others.fold(of(spread.first()), |mut all, report| {
        if let (Some(names), Some(name)) = (&mut all.adapter, report.adapter)
            && !names.split("; ").any(|other| other == name)
        {
            *names = format!("{names}; {name}");
        }
        all.device_bytes += report.device_bytes;
        all.host_bytes += report.host_bytes;
        all.packed_bytes += report.packed_bytes;
        all.scratch_bytes += report.scratch_bytes;
        all
    })
}
