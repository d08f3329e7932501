//! Tests the SQL function example, which is not a workspace member.

use crate::shell::{cargo, run};

pub(super) fn test() -> Result<(), String> {
    let manifest = "examples/datafusion/Cargo.toml";
    run(cargo(&["test", "--manifest-path", manifest, "--target-dir", "target/datafusion"]))
}
