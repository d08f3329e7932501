use crate::args::{Common, Verify};
use crate::error::CliError;
use crate::output::Output;
use rewire::verify::{CaseReport, Status, Verifier, VerifyOptions, cases};

pub fn run(options: &Verify, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let with = VerifyOptions { kernel: common.kernel, adapter: common.adapter.clone(), save: options.save.clone() };
    let verifier = Verifier::new(with)?;
    let (mut count, mut failed) = (0, 0);
    for path in &options.paths {
        let files = cases(path).map_err(|source| CliError::Path { path: path.clone(), source })?;
        if files.is_empty() {
            return Err(CliError::NoCases { path: path.clone() });
        }
        for file in files {
            let report = verifier.verify(&file);
            count += 1;
            failed += usize::from(report.status != Status::Ok);
            if common.json {
                output.json(&report)?
            } else {
                output.line(line(&report))?
            }
            output.flush()?;
        }
    }
    if failed > 0 {
        return Err(CliError::NotOk { failed, cases: count });
    }
    if !common.json {
        output.line(format_args!("all {count} cases are ok"))?;
    }
    Ok(())
}

fn line(report: &CaseReport) -> String {
    let mut line = format!("{:<11} {}/{}", report.status.to_string(), report.op, report.case);
    if let Some(error) = report.max_rel_err {
        line += &format!(
            "  {error:.1e} of {:.0e}, {} GPU and {} CPU steps",
            report.tolerance, report.gpu_steps, report.cpu_steps
        );
    }
    if let Some(message) = &report.message {
        line += &format!("  {message}");
    }
    line
}
