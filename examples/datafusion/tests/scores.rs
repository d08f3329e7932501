//! A query returns the scores of the library bit for bit, for any division into batches.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Float64Type;
use datafusion::prelude::{JsonReadOptions, SessionConfig, SessionContext};
use rewire::Kernel;
use rewire::rank::{RankOptions, Ranker, User};
use rewire_datafusion::{call, score};
use std::collections::HashMap;
use std::path::Path;

/// Without optimization, planning needs more stack than the thread of a test has.
const STACK: usize = 64 << 20;

#[test]
fn a_query_gives_the_scores_of_the_library() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let compared = move || runtime.block_on(compare()).map_err(|error| error.to_string());
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(compared)?;
    Ok(thread.join().map_err(|_| "the comparison panics")??)
}

async fn compare() -> Result<(), Box<dyn std::error::Error>> {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/cli/tests/packages");
    let (model, users) = (packages.join("format-1.rewire"), packages.join("users.jsonl"));
    let ranker = Ranker::load(&model, &RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() })?;
    let mut batch = ranker.batch();
    std::fs::read_to_string(&users)?.lines().try_for_each(|line| batch.push_json(line.as_bytes()).map(|_| ()))?;
    let mut expected = HashMap::new();
    for ranked in ranker.rank_batch(&batch)? {
        let mut scores = vec![f64::NAN; ranked.candidates.len()];
        ranked.candidates.iter().for_each(|candidate| scores[candidate.position] = candidate.score);
        let User::Name(name) = &ranked.user else { return Err("a user without a name".into()) };
        expected.insert(name.to_string(), scores);
    }
    assert!(expected.len() > 1);
    for size in [1, 8192] {
        let context = SessionContext::new_with_config(SessionConfig::new().with_batch_size(size));
        let query = format!(r#"SELECT "user", {} AS scores FROM users"#, call(ranker.schema()));
        context.register_udf(score(ranker.clone()));
        let options = JsonReadOptions::default().file_extension(".jsonl");
        context.register_json("users", users.to_string_lossy(), options).await?;
        let mut found = HashMap::new();
        for rows in context.sql(&query).await?.collect().await? {
            let names =
                datafusion::arrow::compute::cast(rows.column(0), &datafusion::arrow::datatypes::DataType::Utf8)?;
            for (name, scores) in names.as_string::<i32>().iter().zip(rows.column(1).as_list::<i32>().iter()) {
                let scores = scores.ok_or("a row without scores")?;
                found.insert(name.ok_or("no name")?.to_owned(), scores.as_primitive::<Float64Type>().values().to_vec());
            }
        }
        assert_eq!(found, expected);
    }
    let context = SessionContext::new();
    context.register_udf(score(ranker.clone()));
    assert!(context.sql("SELECT score(1)").await.is_err());
    Ok(())
}
