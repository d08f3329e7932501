//! The models that answer several requests in one run. Their results do not depend on the other requests, bit for bit.

use super::error::Fault;
use super::queue::Batched;
use super::rows::{Kind, TableRows};
use rewire::predict::{Column, Lists, Predicted, Predictor};
use rewire::program::{Program, Results, TypedTensor};
use rewire::rank::{Batch, Embedder, RankError, Ranked, Ranker, Vectors};
use std::collections::BTreeMap;

impl Batched for Ranker {
    type Job = Batch;
    type Answer = Vec<Ranked>;

    fn rows(&self, job: &Batch) -> usize {
        job.len()
    }

    fn run(&mut self, jobs: Vec<Batch>) -> Vec<Result<Vec<Ranked>, Fault>> {
        let (all, sizes) = together(&jobs, self.batch());
        let ranked = self.rank_batch(&all).map(|ranked| {
            let mut ranked = ranked.into_iter();
            sizes.iter().map(|size| ranked.by_ref().take(*size).collect()).collect()
        });
        shared(ranked, jobs.len())
    }
}

impl Batched for Embedder {
    type Job = Batch;
    type Answer = Vectors;

    fn rows(&self, job: &Batch) -> usize {
        job.len()
    }

    fn run(&mut self, jobs: Vec<Batch>) -> Vec<Result<Vectors, Fault>> {
        let (all, sizes) = together(&jobs, self.batch());
        shared(self.embed(&all).map(|vectors| divided(&vectors, &sizes)), jobs.len())
    }
}

/// The requests of all jobs, and their number by job.
fn together(jobs: &[Batch], empty: Batch) -> (Batch, Vec<usize>) {
    let sizes = jobs.iter().map(Batch::len).collect();
    if let [one] = jobs {
        return (one.clone(), sizes);
    }
    let mut all = empty;
    jobs.iter().for_each(|job| (0..job.len()).for_each(|request| all.append(job, request)));
    (all, sizes)
}

/// The vectors of consecutive requests.
fn divided(all: &Vectors, sizes: &[usize]) -> Vec<Vectors> {
    let (mut request, mut vector) = (0, 0);
    let part = |size: &usize| {
        let requests = request..request + size;
        let of: Vec<_> = all.of.iter().skip(vector).take_while(|(request, _)| *request < requests.end).collect();
        let values = all.values.iter().skip(vector * all.width).take(of.len() * all.width).copied().collect();
        let part = Vectors {
            width: all.width,
            values,
            of: of.iter().map(|(request, item)| (request - requests.start, *item)).collect(),
            dropped_events: all.dropped_events.iter().skip(requests.start).take(*size).copied().collect(),
        };
        (request, vector) = (requests.end, vector + of.len());
        part
    };
    sizes.iter().map(part).collect()
}

/// The results of a run by job, or its error for all of them.
fn shared<T>(results: Result<Vec<T>, RankError>, jobs: usize) -> Vec<Result<T, Fault>> {
    match results {
        Ok(results) => results.into_iter().map(Ok).collect(),
        Err(error) => {
            let fault = Fault::from(error);
            (0..jobs).map(|_| Err(fault.clone())).collect()
        }
    }
}

impl Batched for Predictor {
    type Job = TableRows;
    type Answer = Predicted;

    fn rows(&self, job: &TableRows) -> usize {
        job.count
    }

    /// Only rows of equal column types run together, since the cells of a column take one common type.
    fn run(&mut self, jobs: Vec<TableRows>) -> Vec<Result<Predicted, Fault>> {
        let mut groups: Vec<(&Vec<Kind>, Vec<usize>)> = vec![];
        for (place, job) in jobs.iter().enumerate() {
            match groups.iter_mut().find(|(known, _)| **known == job.kinds) {
                Some((_, places)) => places.push(place),
                None => groups.push((&job.kinds, vec![place])),
            }
        }
        let mut results: Vec<Option<Result<Predicted, Fault>>> = jobs.iter().map(|_| None).collect();
        for (_, places) in groups {
            let group: Vec<&TableRows> = places.iter().filter_map(|place| jobs.get(*place)).collect();
            for (place, result) in places.iter().zip(predicted(self, &group)) {
                if let Some(slot) = results.get_mut(*place) {
                    *slot = Some(result);
                }
            }
        }
        results.into_iter().flatten().collect()
    }
}

/// The predictions of all jobs; if one has an invalid row, each job runs alone.
fn predicted(predictor: &Predictor, jobs: &[&TableRows]) -> Vec<Result<Predicted, Fault>> {
    match predicted_together(predictor, jobs) {
        Err(RankError::Columns(_)) if jobs.len() > 1 => {
            jobs.iter().flat_map(|job| predicted(predictor, std::slice::from_ref(job))).collect()
        }
        all => {
            let sizes: Vec<usize> = jobs.iter().map(|job| job.count).collect();
            shared(all.map(|all| parts(&all, &sizes)), jobs.len())
        }
    }
}

fn predicted_together(predictor: &Predictor, jobs: &[&TableRows]) -> Result<Predicted, RankError> {
    let column = |(place, name): (usize, &String)| {
        let cells = jobs.iter().filter_map(|job| job.columns.get(place)).flatten().cloned().collect();
        // Rows were checked when they were parsed.
        Column::of_cells(cells).ok().map(|column| (name.clone(), column))
    };
    let columns: Vec<_> = predictor.columns().iter().enumerate().filter_map(column).collect();
    let columns: Vec<_> = columns.iter().map(|(name, column)| (name.as_str(), column.clone())).collect();
    predictor.predict(jobs.iter().map(|job| job.count).sum(), &columns)
}

/// The predictions of consecutive rows.
fn parts(all: &Predicted, sizes: &[usize]) -> Vec<Predicted> {
    let (mut row, mut entry) = (0, 0);
    let part = |size: &usize| {
        let counts: Vec<usize> = all.counts.iter().skip(row).take(*size).copied().collect();
        let entries = entry..entry + counts.iter().sum::<usize>();
        let column = |lists: &Lists| {
            let (mut ends, mut values) = (vec![], vec![]);
            for entry in entries.clone() {
                values.extend_from_slice(lists.row(entry));
                ends.push(values.len());
            }
            Lists { ends, values }
        };
        let columns = all.columns.iter().map(column).collect();
        (row, entry) = (row + size, entries.end);
        Predicted { counts, columns }
    };
    sizes.iter().map(part).collect()
}

impl Batched for Program {
    type Job = BTreeMap<String, TypedTensor>;
    type Answer = Results;

    /// Tensors of several requests have no common axis: each request runs alone.
    fn rows(&self, _: &Self::Job) -> usize {
        usize::MAX
    }

    fn run(&mut self, jobs: Vec<Self::Job>) -> Vec<Result<Results, Fault>> {
        let one = |tensors| {
            self.reset()?;
            Ok(Self::run(self, tensors)?)
        };
        jobs.into_iter().map(one).collect()
    }
}
