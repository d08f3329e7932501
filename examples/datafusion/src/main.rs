//! Scores the users of a JSON Lines file with a query: `cargo run -- model.rewire users.jsonl`.

use datafusion::prelude::{JsonReadOptions, SessionContext};
use rewire::rank::{RankOptions, Ranker};
use rewire_datafusion::{call, score};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(model), Some(users)) = (arguments.next(), arguments.next()) else {
        return Err("expected a model and a file of users".into());
    };
    let ranker = Ranker::load(model.as_ref(), &RankOptions::default())?;
    let query = format!(r#"SELECT "user", {} AS scores FROM users ORDER BY "user""#, call(ranker.schema()));
    let context = SessionContext::new();
    context.register_udf(score(ranker));
    context.register_json("users", &users, JsonReadOptions::default().file_extension(".jsonl")).await?;
    context.sql(&query).await?.show().await?;
    Ok(())
}
