//! Whether standard output was open when the process began.
//!
//! The standard library opens `/dev/null` in the place of streams that are closed, before `main`: from then on all that is
//! written is lost without an error.

use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

/// False where the process began with a standard output that was closed.
pub fn is_open() -> bool {
    !CLOSED.load(Ordering::Relaxed)
}

#[cfg(unix)]
#[allow(unsafe_code)]
mod before_main {
    use super::{CLOSED, Ordering};

    // SAFETY: the loader calls what this section points to, once, with arguments that `look` does not read. It calls
    // nothing that needs the standard library to be set up.
    #[used]
    #[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
    #[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
    static LOOK: extern "C" fn() = look;

    extern "C" fn look() {
        // SAFETY: asking for the flags of a descriptor is sound whatever it is.
        let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
        CLOSED.store(flags == -1, Ordering::Relaxed);
    }
}
