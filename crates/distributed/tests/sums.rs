//! Collective operations of ranks within a process.

use proptest::prelude::*;
use rewire_distributed::{
    Buffers, Bytes, CollectiveError, Collectives, Local, all_gather_of, all_to_all_of, in_process,
};
use std::thread;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(20);

/// The results of all ranks, in rank order.
fn of_ranks<T: Send>(count: usize, timeout: Duration, run: impl Fn(Local) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let ranks = in_process(count, timeout).into_iter();
        let threads: Vec<_> = ranks.map(|rank| scope.spawn(|| run(rank))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause)))
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn sums_are_those_in_rank_order_to_the_bit(
        values in (1usize..6, 0usize..23).prop_flat_map(|(ranks, count)| {
            prop::collection::vec(prop::collection::vec(-1e6f32..1e6, count), ranks)
        })
    ) {
        let plain = values.iter().cloned().reduce(|sum, next| sum.iter().zip(next).map(|(a, b)| a + b).collect());
        let sums = of_ranks(values.len(), TIMEOUT, |rank| {
            let mut own = values[rank.rank()].clone();
            // Ranks arrive in ascending order.
            thread::sleep(Duration::from_micros(50 * rank.rank() as u64));
            rank.all_reduce(&mut own).map(|()| own)
        });
        for sum in sums {
            prop_assert_eq!(Some(sum.unwrap()), plain.clone());
        }
    }

    #[test]
    fn parts_arrive_at_their_rank(lengths in prop::collection::vec(0usize..9, 16)) {
        let part = |from: usize, to: usize| vec![(from * 10 + to) as u32; lengths[from * 4 + to]];
        let all = of_ranks(4, TIMEOUT, |rank| {
            let parts: Vec<Vec<u32>> = (0..4).map(|to| part(rank.rank(), to)).collect();
            let received = all_to_all_of(&rank, &parts)?;
            Ok::<_, CollectiveError>((received, all_gather_of(&rank, &parts[0])?))
        });
        for (to, received) in all.into_iter().enumerate() {
            let (received, gathered) = received.unwrap();
            prop_assert_eq!(received, (0..4).map(|from| part(from, to)).collect::<Vec<_>>());
            prop_assert_eq!(gathered, (0..4).map(|from| part(from, 0)).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_broadcast_has_the_content_of_its_root() {
    let all = of_ranks(3, TIMEOUT, |rank| {
        let content = rank.broadcast(1, vec![rank.rank() as u8; rank.rank() + 1].into())?;
        rank.barrier().map(|()| content)
    });
    assert_eq!(all, vec![Ok(Bytes::from(vec![1, 1])); 3]);
    let usage = of_ranks(2, TIMEOUT, |rank| rank.broadcast(2, Bytes::new())).remove(0).unwrap_err();
    assert!(usage.to_string().contains("2 ranks"), "{usage}");
}

#[test]
fn the_error_names_a_rank_that_ended() {
    let all = of_ranks(4, TIMEOUT, |rank| {
        rank.barrier()?;
        if rank.rank() == 2 { Ok(()) } else { rank.all_reduce(&mut [1.0; 8]) }
    });
    for rank in [0, 1, 3] {
        assert_eq!(all[rank], Err(CollectiveError::Lost { rank: 2 }));
    }
}

#[test]
fn the_error_names_a_rank_that_hangs() {
    let waited = Duration::from_millis(200);
    let since = Instant::now();
    let all = of_ranks(3, waited, |rank| match rank.rank() {
        1 => {
            thread::sleep(waited * 3);
            Ok(())
        }
        _ => rank.barrier(),
    });
    assert_eq!([&all[0], &all[2]], [&Err(CollectiveError::Timeout { rank: 1, waited }); 2]);
    assert!(since.elapsed() < waited * 10);
}

#[test]
fn sums_are_slices_in_memory_that_is_reused() {
    let all = of_ranks(2, TIMEOUT, |rank| {
        let buffers = Buffers::default();
        let values: Vec<f32> = (0..40).map(|n| (n + rank.rank()) as f32).collect();
        let mut places = vec![];
        for _ in 0..3 {
            let slices = rank.sum(buffers.copied(bytemuck::cast_slice(&values)), &buffers)?;
            let sums: Vec<f32> =
                slices.iter().flat_map(|slice| bytemuck::pod_collect_to_vec::<u8, f32>(slice)).collect();
            assert_eq!(sums, (0..40).map(|n| (2 * n + 1) as f32).collect::<Vec<_>>());
            places.push((slices.len(), slices[rank.rank()].as_ptr() as usize));
            // The other rank may still read this one's slice.
            rank.barrier()?;
            drop(slices);
            rank.barrier()?;
        }
        Ok::<_, CollectiveError>(places)
    });
    for places in all {
        let places = places.unwrap();
        assert!(places.iter().all(|(slices, _)| *slices == 2));
        assert_eq!(places[1], places[2], "new memory for the same message");
    }
}

#[test]
fn other_sizes_are_an_error() {
    let all = of_ranks(2, TIMEOUT, |rank| rank.all_reduce(&mut vec![0.0; 4 + 4 * rank.rank()]));
    let error = all[0].clone().unwrap_err();
    assert!(matches!(error, CollectiveError::Length { rank: 1, .. }), "{error}");
}
