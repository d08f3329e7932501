//! Vocabularies that the configuration has in files.

use crate::import::{check, golden, predicted};
use crate::program::{Folder, run};

#[test]
fn tables_of_vocabularies_in_files_have_the_rows_of_the_checkpoint() {
    let (folder, name) = (Folder::new(), "dlrm_criteo");
    let text = std::fs::read_to_string(golden(name).join("pipeline.config")).unwrap();
    let mut count = 0;
    let lines = text.lines().map(|line| match line.trim_start().starts_with("hash_bucket_size:") {
        true => {
            count += 1;
            format!("vocab_file: 'words_{count}.txt'")
        }
        false => line.to_owned(),
    });
    let config = folder.write("pipeline.config", lines.collect::<Vec<_>>().join("\n"));
    assert!(count > 2);
    let checkpoint = golden(name).join("model.safetensors").display().to_string();
    let model = folder.0.join("model");
    let run = run(&["import", &config, "--checkpoint", &checkpoint, "--out", model.to_str().unwrap()]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    check(name, &predicted(&model, name, &folder.0.join("out.jsonl"), &["--kernel", "cpu"]));
}
