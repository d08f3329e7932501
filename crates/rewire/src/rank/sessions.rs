//! Sessions of a model that are lent to one caller after the other.

use rewire_runtime::{Model, Report, Session};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Sessions that nobody uses: in time, as many as there were callers at once.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<Vec<Session>>);

impl Sessions {
    /// The session that was used last, or a new one.
    pub fn lend(&self, model: &Model) -> Session {
        let idle = self.lock().pop();
        idle.unwrap_or_else(|| model.session())
    }

    /// Takes a session back.
    pub fn give(&self, session: Session) {
        self.lock().push(session);
    }

    /// Lets go of all sessions and their memory.
    pub fn trim(&self) {
        self.lock().clear();
    }

    /// What a model runs on, with the memory of its idle sessions.
    pub fn report(&self, model: &Model) -> Report {
        let shared = model.report();
        self.lock().iter().map(Session::report).fold(shared.clone(), |all, own| Report {
            device_bytes: all.device_bytes + own.device_bytes.saturating_sub(shared.device_bytes),
            host_bytes: all.host_bytes + own.host_bytes.saturating_sub(shared.host_bytes),
            ..all
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
