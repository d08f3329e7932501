//! Memory that a kernel keeps from run to run.

use super::error::CpuError;
use super::machine::Pool;
use super::product::Panels;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

/// Bytes of host memory that kernels keep from run to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptBytes {
    /// Weights that were copied for products.
    pub packed: u64,
    /// Registers that no run uses.
    pub scratch: u64,
}

/// The identity of a tensor's content.
pub(super) type ContentId = Arc<()>;

/// What one kernel keeps, for all its runs.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Of the programs that have run.
    registers: Mutex<Vec<Pool>>,
    packed: Mutex<Vec<Packed>>,
}

/// Panels made of some contents, as long as all of these are there.
#[derive(Debug)]
struct Packed {
    contents: Vec<Weak<()>>,
    /// Held while the panels are made, so that callers at the same time make them once.
    panels: Arc<Mutex<Option<Arc<Panels>>>>,
}

impl Packed {
    fn is_alive(&self) -> bool {
        self.contents.iter().all(|content| content.strong_count() > 0)
    }

    fn is_of(&self, contents: &[&ContentId]) -> bool {
        let pairs = self.contents.iter().zip(contents);
        self.contents.len() == contents.len()
            && pairs.into_iter().all(|(own, other)| own.as_ptr() == Arc::as_ptr(other))
    }

    fn bytes(&self) -> u64 {
        match self.panels.try_lock() {
            Ok(panels) => panels.as_ref().map_or(0, |panels| panels.bytes()),
            Err(TryLockError::Poisoned(panels)) => panels.into_inner().as_ref().map_or(0, |panels| panels.bytes()),
            Err(TryLockError::WouldBlock) => 0,
        }
    }
}

impl Kept {
    /// Takes note of a program that makes registers.
    pub(super) fn note(&self, pool: &Pool) {
        let mut known = lock(&self.registers);
        if !known.iter().any(|other| other.is(pool)) {
            known.push(pool.clone());
        }
    }

    /// The panels of these contents; `pack` makes them where there are none.
    pub(super) fn panels(
        &self,
        contents: &[&ContentId],
        pack: impl FnOnce() -> Result<Panels, CpuError>,
    ) -> Result<Arc<Panels>, CpuError> {
        let place = self.place(contents);
        let mut panels = lock(&place);
        if let Some(known) = &*panels {
            return Ok(known.clone());
        }
        let made = Arc::new(pack()?);
        *panels = Some(made.clone());
        Ok(made)
    }

    fn place(&self, contents: &[&ContentId]) -> Arc<Mutex<Option<Arc<Panels>>>> {
        let mut packed = lock(&self.packed);
        packed.retain(Packed::is_alive);
        if let Some(known) = packed.iter().find(|known| known.is_of(contents)) {
            return known.panels.clone();
        }
        let contents = contents.iter().map(|content| Arc::downgrade(content)).collect();
        let new = Packed { contents, panels: Arc::default() };
        let panels = new.panels.clone();
        packed.push(new);
        panels
    }

    /// What it keeps now.
    pub(super) fn bytes(&self) -> KeptBytes {
        KeptBytes {
            packed: lock(&self.packed).iter().map(Packed::bytes).sum(),
            scratch: lock(&self.registers).iter().map(Pool::bytes).sum(),
        }
    }

    /// Frees what no run uses.
    pub(super) fn trim(&self) {
        lock(&self.packed).clear();
        lock(&self.registers).iter().for_each(Pool::trim);
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
