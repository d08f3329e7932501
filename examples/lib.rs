//! Complete programs: each file of this folder is one, and `gallery.rs` runs all of them.
