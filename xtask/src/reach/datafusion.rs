//! The example of a function in SQL, which is no member of the workspace.

use crate::shell::{cargo, run};

pub(super) fn test() -> Result<(), String> {
    let manifest = "examples/datafusion/Cargo.toml";
    run(cargo(&["test", "--manifest-path", manifest, "--target-dir", "target/datafusion"]))
}
