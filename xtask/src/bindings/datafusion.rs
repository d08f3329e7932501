//! Tests the example of an SQL function, which is not a member of the workspace.

use crate::shell::{cargo, run};

pub(super) fn test() -> Result<(), String> {
    let manifest = "examples/datafusion/Cargo.toml";
    run(cargo(&["test", "--manifest-path", manifest, "--target-dir", "target/datafusion"]))
}
