use crate::args::{Common, Verify};
use crate::caches;
use crate::error::CliError;
use crate::log::say;
use crate::output::Output;
use rewire_verify::{CaseReport, Status, Verifier, VerifyOptions, cases};

pub fn run(options: &Verify, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let mut files = Vec::new();
    for path in &options.paths {
        // Unreadable paths get a separate line, like invalid files.
        let found = cases(path).unwrap_or_else(|_| vec![path.clone()]);
        if found.is_empty() {
            return Err(CliError::NoCases { path: path.clone() });
        }
        files.extend(found);
    }
    let with = VerifyOptions {
        kernel: common.kernel,
        kernel_rules: common.kernel_for.clone(),
        adapter: common.adapter.clone(),
        matrices: common.matrices,
        save: options.save.clone(),
        backward: options.backward,
        tuning: options.tuning,
        pipelines: caches::pipelines(),
    };
    let verifier = Verifier::new(with)?;
    let (mut failed, mut all) = (0, 0);
    for file in &files {
        let reports = if options.variants { verifier.verify_tunings(file) } else { vec![verifier.verify(file)] };
        for report in reports {
            (failed, all) = (failed + usize::from(report.status != Status::Ok), all + 1);
            if common.json {
                output.json(&report)?
            } else {
                output.line(line(&report))?
            }
            if report.status != Status::Ok {
                let CaseReport { op, case, status, .. } = &report;
                say(format_args!("not ok: {op}/{case}: {status}: {}", reason(&report)));
            }
        }
        output.flush()?;
    }
    if failed > 0 {
        return Err(CliError::NotOk { failed, cases: all });
    }
    if !common.json {
        let cases = if all == 1 { "case is" } else { "cases are" };
        output.line(format_args!("all {all} {cases} ok"))?;
    }
    Ok(())
}

/// Why a case failed.
fn reason(report: &CaseReport) -> String {
    let error = report.max_rel_err.filter(|error| *error > report.tolerance);
    let error = error.map(|error| format!("the error {error:.1e} is above {:.0e}", report.tolerance));
    error.into_iter().chain(report.message.clone()).collect::<Vec<_>>().join("; ")
}

fn line(report: &CaseReport) -> String {
    let mut line = format!("{:<11} {}/{}", report.status.to_string(), report.op, report.case);
    if let Some(error) = report.max_rel_err {
        line += &format!(
            "  {error:.1e} of {:.0e}, {} GPU and {} CPU steps",
            report.tolerance, report.gpu_steps, report.cpu_steps
        );
    }
    if let Some(variant) = report.variant.as_ref().filter(|variant| !variant.is_empty()) {
        line += &format!("  {variant}");
    }
    if let Some(message) = &report.message {
        line += &format!("  {message}");
    }
    line
}
