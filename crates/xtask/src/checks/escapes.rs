//! `cargo xtask escapes`: tries every way to escape a stop in every environment and prints a table; with `--markdown` also to
//! docs/reliability.md.
//!
//! Owns the table. The escapes, the environments and the verdicts are in testkit, which also tests them.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pinfold_testkit::environments::Environment;
use pinfold_testkit::escapes::{Result as Came, WAYS, Way, attempt};

use crate::cargo_build::{Profile, build};
use crate::document_section::Section;

const DOCUMENT: &str = "docs/reliability.md";
const SECTION: Section =
    Section { begin: "<!-- escapes: written by `cargo xtask escapes --markdown` -->", end: "<!-- escapes: end -->" };

/// Options of the command.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Also write the table to docs/reliability.md
    #[arg(long)]
    markdown: bool,
    /// Only escapes whose name contains this text
    #[arg(long, value_name = "TEXT", conflicts_with = "markdown")]
    only: Option<String>,
}

/// An environment and the result of each escape in it, or why it is not available here.
type Column = (Environment, Result<Vec<Came>, String>);

/// Tries everything and prints the table. Fails if a process escaped that the kernel allows to be stopped.
pub fn run(root: &Path, options: &Options) -> anyhow::Result<ExitCode> {
    let [pinfold] = build(root, Profile::Dev, ["pinfold"])?;
    let pinfold = pinfold.to_str().context("the path of the build is not text")?;
    let chosen = |way: &&Way| options.only.as_ref().is_none_or(|text| way.name.contains(text.as_str()));
    let ways: Vec<&Way> = WAYS.iter().filter(chosen).collect();
    let columns: Vec<Column> = Environment::ALL.map(|ground| (ground, try_all(ground, &ways, pinfold))).into();
    let table = render(&ways, &columns);
    println!("{table}");
    if options.markdown {
        SECTION.write(&root.join(DOCUMENT), &format!("{}\n", table.trim_end()))?;
    }
    let wrong = columns.iter().flat_map(|(ground, came)| {
        let came = came.iter().flatten().zip(&ways);
        came.filter(|(came, way)| !came.is_right(way, *ground))
    });
    Ok(if wrong.count() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn try_all(ground: Environment, ways: &[&Way], pinfold: &str) -> Result<Vec<Came>, String> {
    let grounded = ground.try_start(pinfold)?;
    let tried = ways.iter().map(|way| {
        let came = attempt(way, &grounded);
        eprintln!("escapes: {ground}: {}: {}", way.name, cell(&came));
        came
    });
    Ok(tried.collect())
}

fn cell(came: &Came) -> String {
    match came {
        Came::Ended { out } => format!("0 of {out}"),
        Came::Named { left } => format!("**{}, named**", left.len()),
        Came::Escaped { left } => format!("**{}**", left.len()),
        Came::Skipped => "–".to_owned(),
    }
}

fn render(ways: &[&Way], columns: &[Column]) -> String {
    let heads: Vec<String> = columns.iter().map(|(ground, _)| ground.to_string()).collect();
    let mut table = format!("| way out | {} |\n|---{}|\n", heads.join(" | "), "|---".repeat(heads.len()));
    for (row, way) in ways.iter().enumerate() {
        let cells = columns.iter().map(|(_, came)| came.as_ref().map_or("–".to_owned(), |came| cell(&came[row])));
        let _ = writeln!(table, "| {} | {} |", way.name, cells.collect::<Vec<_>>().join(" | "));
    }
    table += "\nSurvivors of the processes that had escaped, after the stop was answered; –: cannot be tried there.\n";
    for (ground, came) in columns {
        match came {
            Err(reason) => table += &format!("- *{ground}* was not tried: {reason}.\n"),
            Ok(came) => came.iter().zip(ways).filter(|(came, _)| came.is_left()).for_each(|(_, way)| {
                let reason = (way.freed)(*ground).unwrap_or("a bug");
                table += &format!("- *{}* ({ground}): {reason}.\n", way.name);
            }),
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_marks_is_replaced() {
        let Section { begin, end } = SECTION;
        let text = format!("above\n{begin}\nold\n{end}\nbelow\n");
        let new = SECTION.put(&text, "| new |\n").expect("marks");
        assert_eq!(new, format!("above\n{begin}\n| new |\n{end}\nbelow\n"));
        assert_eq!(SECTION.put("no marks", "x"), None);
    }
}
