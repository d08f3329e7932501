use rewire::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ranker = Ranker::load("model.rewire".as_ref(), &RankOptions::default())?;
    // Actions are bits: 1 clicked, 2 liked. Watch times are seconds, timestamps seconds since 1970.
    let request = Request::new("u1").contextual("age_bucket", 3).contextual("country", 7);
    let request = request.history("item_id", [41, 7]).history("genre", [5, 15]).history("action", [1, 3]);
    let request = request.history("watchtime", [1500, 5400]).history("timestamp", [1738300000, 1738310000]);
    let request = request.candidates("item_id", [12, 5, 99]).candidates("genre", [6, 4, 1]);
    let request = request.candidates("timestamp", [1738400000; 3]);
    for candidate in &ranker.rank(&[request])?[0].candidates {
        println!("{} {:.3}", candidate.item, candidate.score);
    }
    Ok(())
}
