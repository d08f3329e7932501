//! Memory that a kernel caches between runs.

use super::error::CpuError;
use super::integers::Factor;
use super::machine::Pool;
use super::product::PackedRhs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

/// Host memory in bytes that kernels keep between runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptBytes {
    /// Repacked weights for matmuls.
    pub packed: u64,
    /// Idle registers.
    pub scratch: u64,
}

/// The identity of a tensor's content.
pub(super) type ContentId = Arc<()>;

/// Cached data of a known size.
pub(super) trait Footprint {
    fn bytes(&self) -> u64;
}

/// Caches of one kernel, shared by all its runs.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Register pools of the programs that have run.
    registers: Mutex<Vec<Pool>>,
    pub panels: Shelf<PackedRhs>,
    pub columns: Shelf<dyn Factor>,
}

/// A cache of values derived from tensor contents.
#[derive(Debug)]
pub(super) struct Shelf<T: ?Sized>(Mutex<Vec<Packed<T>>>);

impl<T: ?Sized> Default for Shelf<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// A value derived from tensor contents. It is valid while all of them exist.
#[derive(Debug)]
struct Packed<T: ?Sized> {
    contents: Vec<Weak<()>>,
    place: Place<T>,
}

/// A cache entry. It is locked while the value is created, so that concurrent callers create it only once.
type Place<T> = Arc<Mutex<Option<Arc<T>>>>;

impl<T: ?Sized + Footprint> Packed<T> {
    fn is_alive(&self) -> bool {
        self.contents.iter().all(|content| content.strong_count() > 0)
    }

    fn is_of(&self, contents: &[&ContentId]) -> bool {
        let pairs = self.contents.iter().zip(contents);
        self.contents.len() == contents.len()
            && pairs.into_iter().all(|(own, other)| own.as_ptr() == Arc::as_ptr(other))
    }

    fn bytes(&self) -> u64 {
        match self.place.try_lock() {
            Ok(value) => value.as_ref().map_or(0, |value| value.bytes()),
            Err(TryLockError::Poisoned(value)) => value.into_inner().as_ref().map_or(0, |value| value.bytes()),
            Err(TryLockError::WouldBlock) => 0,
        }
    }
}

impl<T: ?Sized + Footprint> Shelf<T> {
    /// The value for `contents`. If it is missing, `pack` creates it.
    pub(super) fn get(
        &self,
        contents: &[&ContentId],
        pack: impl FnOnce() -> Result<Arc<T>, CpuError>,
    ) -> Result<Arc<T>, CpuError> {
        let place = self.place(contents);
        let mut value = lock(&place);
        if let Some(known) = &*value {
            return Ok(known.clone());
        }
        let made = pack()?;
        *value = Some(made.clone());
        Ok(made)
    }

    fn place(&self, contents: &[&ContentId]) -> Place<T> {
        let mut packed = lock(&self.0);
        packed.retain(Packed::is_alive);
        if let Some(known) = packed.iter().find(|known| known.is_of(contents)) {
            return known.place.clone();
        }
        let contents = contents.iter().map(|content| Arc::downgrade(content)).collect();
        let place = Place::default();
        packed.push(Packed { contents, place: place.clone() });
        place
    }

    fn bytes(&self) -> u64 {
        lock(&self.0).iter().map(Packed::bytes).sum()
    }
}

impl Kept {
    /// Adds the register pool of a program, unless it is known.
    pub(super) fn note(&self, pool: &Pool) {
        let mut known = lock(&self.registers);
        if !known.iter().any(|other| other.is(pool)) {
            known.push(pool.clone());
        }
    }

    /// The cached memory.
    pub(super) fn bytes(&self) -> KeptBytes {
        KeptBytes {
            packed: self.panels.bytes() + self.columns.bytes(),
            scratch: lock(&self.registers).iter().map(Pool::bytes).sum(),
        }
    }

    /// Frees unused memory.
    pub(super) fn trim(&self) {
        lock(&self.panels.0).clear();
        lock(&self.columns.0).clear();
        lock(&self.registers).iter().for_each(Pool::trim);
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
