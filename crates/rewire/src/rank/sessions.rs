//! A pool of a model's sessions.

use rewire_runtime::{Model, Report, Session};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Idle sessions: eventually as many as there were concurrent callers.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<Vec<Session>>);

impl Sessions {
    /// The most recently used session, or a new one. Until it is returned, it keeps the current parameters of the
    /// model.
    pub fn lend(&self, model: &Model) -> Session {
        let idle = self.lock().pop();
        let mut session = idle.unwrap_or_else(|| model.session());
        session.hold();
        session
    }

    /// Returns a session to the pool.
    pub fn give(&self, mut session: Session) {
        session.release();
        self.lock().push(session);
    }

    /// Updates idle sessions to the current parameters of the model, which frees earlier ones.
    pub fn follow(&self) {
        self.lock().iter_mut().for_each(|session| {
            session.hold();
            session.release();
        });
    }

    /// Drops all sessions and their memory.
    pub fn trim(&self) {
        self.lock().clear();
    }

    /// Describes where a model runs, with the memory of its idle sessions.
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
