//! No display is looked for where there is none.

/// Tells Mesa's layer that puts the GPU of the display first to stay out where no display server can be reached. It asks for
/// one whenever adapters are listed, and the client library of Wayland then says on stderr that there is none.
///
/// To be called while the process has one thread.
#[allow(unsafe_code)]
pub fn skip_where_there_is_none() {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if cfg!(target_os = "linux") && !["XDG_RUNTIME_DIR", "DISPLAY", "MESA_VK_DEVICE_SELECT"].into_iter().any(is_set) {
        // SAFETY: no other thread reads or writes the environment, since the caller's is the only one.
        unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
    }
}
