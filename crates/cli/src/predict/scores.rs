//! Scores of candidates as rows of a table.

use super::frame::{Data, Frame};
use crate::requests::{Cell, Value};
use rewire::rank::{Ranked, User};

/// The columns before those that are carried along: `user`, `item`, `score` and the logits of tasks.
pub fn names(tasks: &[String]) -> Vec<String> {
    let logits = tasks.iter().map(|task| format!("logit_{task}"));
    ["user", "item", "score"].map(str::to_owned).into_iter().chain(logits).collect()
}

/// A row a candidate, in the order of the requests.
pub fn frame(ranked: Vec<Ranked>, tasks: usize, carried: Vec<Vec<Cell>>) -> Frame {
    let counts: Vec<usize> = ranked.iter().map(|ranked| ranked.candidates.len()).collect();
    let rows = counts.iter().sum();
    let (mut users, mut items) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    let (mut scores, mut logits) = (Vec::with_capacity(rows), vec![Vec::with_capacity(rows); tasks]);
    for Ranked { user, mut candidates, .. } in ranked {
        candidates.sort_by_key(|candidate| candidate.position);
        for candidate in candidates {
            users.push(value_of(&user));
            items.push(candidate.item);
            scores.push(candidate.score);
            logits.iter_mut().zip(candidate.logits).for_each(|(column, logit)| column.push(logit));
        }
    }
    let mut columns = vec![Data::Values(users), Data::Integers(items), Data::Doubles(scores)];
    columns.extend(logits.into_iter().map(Data::Floats));
    columns.extend(carried.into_iter().map(|cells| Data::Values(by_candidate(cells, &counts))));
    Frame { rows, columns }
}

/// The value of every candidate.
fn by_candidate(cells: Vec<Cell>, counts: &[usize]) -> Vec<Value> {
    let mut values = Vec::new();
    for (cell, &count) in cells.into_iter().zip(counts) {
        match cell {
            Cell::One(value) => values.extend(std::iter::repeat_n(value, count)),
            Cell::Each(each) => values.extend(each),
        }
    }
    values
}

fn value_of(user: &User) -> Value {
    match user {
        User::Name(name) => Value::Text(name.clone()),
        User::Number(number) => Value::Integer(*number),
    }
}
