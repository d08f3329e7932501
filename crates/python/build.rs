//! Lets the linker of a Mac leave what Python brings undefined.

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
