//! Tunings that a ranker measures between calls.

use super::{config, load, plain, requests};
use rewire::rank::RankOptions;
use rewire::runtime::Refining;
use rewire::{Gpu, Kernel};

#[test]
fn ranks_stay_while_a_ranker_refines() {
    let Ok(gpu) = Gpu::open(None) else { return eprintln!("skipped: there is no adapter") };
    let usual = RankOptions { kernel: Kernel::Wgpu, gpu: Some(gpu), ..RankOptions::default() };
    let options = RankOptions { refining: Refining::Always, ..usual.clone() };
    let [usual, refined] = [usual, options].map(|options| load(&config(&plain()), &options));
    let of = |ranker: &rewire::rank::Ranker| ranker.model().options().refining;
    assert_eq!((of(&usual), of(&refined)), (Refining::Unknown, Refining::Always));
    let requests = requests(&usual);
    let expected = usual.rank(&requests).unwrap();
    for _ in 0..6 {
        assert_eq!(refined.rank(&requests).unwrap(), expected);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}
