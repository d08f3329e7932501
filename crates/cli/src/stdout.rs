//! Detects whether standard output was open when the process started.
//!
//! The standard library replaces closed streams by `/dev/null` before `main`, after which all writes are lost without an
//! error.

use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

/// False if the process started with a closed standard output.
pub fn is_open() -> bool {
    !CLOSED.load(Ordering::Relaxed)
}

#[cfg(unix)]
#[allow(unsafe_code)]
mod before_main {
    use super::{CLOSED, Ordering};

    // SAFETY: the loader calls the function in this section once, with arguments that `look` does not read. The function
    // needs no initialized standard library.
    #[used]
    #[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
    #[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
    static LOOK: extern "C" fn() = look;

    extern "C" fn look() {
        // SAFETY: reading the flags of any descriptor is sound.
        let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
        CLOSED.store(flags == -1, Ordering::Relaxed);
    }
}
