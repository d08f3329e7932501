//! Builds without the feature `readers`.
#![cfg(not(feature = "readers"))]

use rewire_import::{ImportError, is_model, read};
use std::path::Path;

#[test]
fn a_file_is_refused_with_the_missing_feature() {
    for name in ["model.pt2", "folder/model.ONNX"] {
        let path = Path::new(name);
        assert!(is_model(path));
        let error = read(path).unwrap_err();
        assert!(matches!(&error, ImportError::NoReader { path } if path == name));
        assert_eq!(
            error.to_string(),
            format!("{name}: this build has no importers: build it with the cargo feature `import`")
        );
    }
    assert!(matches!(read(Path::new("model.bin")), Err(ImportError::Format { .. })));
}
