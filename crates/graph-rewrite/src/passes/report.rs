use crate::rules::{Application, NearMiss};
use std::fmt;

/// The report of a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassReport {
    /// The pass.
    pub pass: String,
    /// The rewrites, in order.
    pub applications: Vec<Application>,
    /// Rewrites that almost applied; recorded by pipelines that explain.
    pub near_misses: Vec<NearMiss>,
    /// Nodes before and after.
    pub nodes: (usize, usize),
    /// Predicted [`traffic`](crate::cost::traffic) in bytes before and after; recorded by pipelines that explain.
    pub bytes: Option<(u64, u64)>,
    /// More details.
    pub detail: String,
}

/// The reports of all passes, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// One per pass.
    pub passes: Vec<PassReport>,
}

impl fmt::Display for PassReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pass, applications, nodes, bytes, detail, .. } = self;
        let count = applications.len();
        write!(f, "{pass}: {count} rewrites, {} -> {} nodes", nodes.0, nodes.1)?;
        if let Some((before, after)) = bytes {
            write!(f, ", {before} -> {after} bytes")?;
        }
        if detail.is_empty() { Ok(()) } else { write!(f, ", {detail}") }
    }
}

/// One line per pass, with its rewrites and near misses indented below.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for pass in &self.passes {
            writeln!(f, "{pass}")?;
            for application in &pass.applications {
                writeln!(f, "  {application}")?;
            }
            for near_miss in &pass.near_misses {
                writeln!(f, "  {near_miss}")?;
            }
        }
        Ok(())
    }
}
