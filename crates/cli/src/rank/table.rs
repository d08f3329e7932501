use super::items::Titles;
use super::report::Summary;
use crate::output::Output;
use crate::table::table;
use rewire::rank::Ranked;
use std::fmt::Display;
use std::io;

const WIDEST: usize = 48;

/// Prints a user's best candidates in readable form.
pub fn print(ranked: &Ranked, top: usize, tasks: &[String], titles: &Titles, output: &mut Output) -> io::Result<()> {
    let shown = &ranked.candidates[..top.min(ranked.candidates.len())];
    output.line(format_args!("{}  {}", visible(&ranked.user), count(ranked.candidates.len() as u64, "candidate")))?;
    let tasks: Vec<String> = tasks.iter().map(visible).collect();
    let mut header = vec!["#", "item"];
    header.extend((!titles.is_empty()).then_some("title"));
    header.push("score");
    header.extend(tasks.iter().map(String::as_str));
    let rows = shown.iter().enumerate().map(|(rank, candidate)| {
        let mut row = vec![(rank + 1).to_string(), candidate.item.to_string()];
        row.extend((!titles.is_empty()).then(|| visible(titles.get(candidate.item).unwrap_or("-"))));
        row.push(format!("{:.4}", candidate.score));
        row.extend(candidate.logits.iter().map(|logit| format!("{logit:.4}")));
        row
    });
    if !shown.is_empty() {
        let left: &[usize] = if titles.is_empty() { &[] } else { &[2] };
        output.line(table(&header, rows, left))?;
    }
    output.line("")
}

/// Prints the summary of a run.
pub fn print_summary(summary: &Summary, output: &mut Output) -> io::Result<()> {
    output.line(format_args!(
        "{}, {} ranked in {:.2} s on {}, the first scores after {:.2} s",
        count(summary.users, "user"),
        count(summary.candidates, "candidate"),
        summary.seconds,
        summary.adapter,
        summary.first_scores_seconds
    ))?;
    for (task, auc) in &summary.auc {
        match auc {
            Some(auc) => output.line(format_args!("AUC {}  {auc:.4}", visible(task)))?,
            None => output.line(format_args!("AUC {}  undefined: all labels are equal", visible(task)))?,
        }
    }
    Ok(())
}

/// A number and the thing counted.
pub fn count(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// Text from a file, cut to fit and without control characters.
fn visible(text: impl Display) -> String {
    let mut shown: String = text.to_string().chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if let Some((end, _)) = shown.char_indices().nth(WIDEST) {
        shown.truncate(end);
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(visible("a\u{1b}[31m\n"), "a\u{fffd}[31m\u{fffd}");
        assert_eq!(visible("x".repeat(100)).chars().count(), WIDEST + 1);
    }
}
