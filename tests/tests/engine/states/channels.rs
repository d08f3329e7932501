//! A ranker of several channels on every kernel, whole and in two parts.

#[path = "../../../../crates/hstu/tests/pipeline/fixture.rs"]
mod fixture;

use fixture::{Tensors, cached, of_parts, of_users, stale, ultra, weights, whole};
use rewire_runtime::{Kernel, Session};
use rewire_tests::backend::{oracle, run, session};
use rewire_tests::compare::{Results, Tolerance, differences};

const USERS: [usize; 3] = [0, 1, 2];
/// Candidates of the users.
const CANDIDATES: [usize; 3] = [2, 3, 1];

fn predicted(session: &mut Session, inputs: &Tensors) -> Results {
    run(session, inputs).unwrap()
}

/// Fails unless every user's rows of `all` have the bits of a run with only that user.
fn is_the_same_alone(all: &Results, kernel: Kernel, mut alone: impl FnMut(usize) -> Results) {
    let mut first = 0;
    for user in USERS {
        let own = alone(user);
        for (name, tensor) in all {
            let width: usize = tensor.shape()[1..].iter().product();
            let rows = &tensor.to_f32()[first * width..(first + CANDIDATES[user]) * width];
            assert_eq!(own[name].to_f32(), rows, "{kernel} {name} of user {user}");
        }
        first += CANDIDATES[user];
    }
}

#[test]
fn predictions_do_not_depend_on_who_shares_the_batch() {
    let graph = whole(&ultra());
    let weights = weights(&graph);
    let expected = oracle(&graph, &of_users(&USERS), &weights).unwrap();
    for kernel in [Kernel::Cpu, Kernel::Wgpu] {
        let Some(mut session) = session(&graph, &weights, kernel).unwrap() else { continue };
        let actual = predicted(&mut session, &of_users(&USERS));
        let found = differences(&expected, &actual, Tolerance::SINGLE);
        assert!(found.is_empty(), "{kernel}: {found:?}");
        is_the_same_alone(&actual, kernel, |user| predicted(&mut session, &of_users(&[user])));
    }
}

#[test]
fn candidates_read_the_kept_histories_of_every_channel() {
    let message = ultra();
    let (graph, parts) = (whole(&message), cached(&message));
    let weights = weights(&graph);
    let expected = oracle(&graph, &of_users(&USERS), &weights).unwrap();
    for kernel in [Kernel::Cpu, Kernel::Wgpu] {
        let Some(mut session) = session(&parts, &weights, kernel).unwrap() else { continue };
        for (name, tensor) in stale(&parts) {
            session.set_state(&name, tensor).unwrap();
        }
        let _ = predicted(&mut session, &of_parts(&[2], &[]));
        let _ = predicted(&mut session, &of_parts(&[0, 1], &[]));
        let actual = predicted(&mut session, &of_parts(&[], &USERS));
        let found = differences(&expected, &actual, Tolerance::SINGLE);
        assert!(found.is_empty(), "{kernel}: {found:?}");
        is_the_same_alone(&actual, kernel, |user| predicted(&mut session, &of_parts(&[], &[user])));
    }
}
