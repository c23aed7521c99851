//! `cargo xtask escapes`: every way out on every ground, as a table; with `--markdown` also in docs/reliability.md.
//!
//! Owns the table and its place in the document. The ways, the grounds and the judgement are testkit's, and tests too.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pinfold_testkit::escapes::{Result as Came, WAYS, Way, attempt};
use pinfold_testkit::ground::Ground;

use crate::build::{Profile, build};

const DOCUMENT: &str = "docs/reliability.md";
const BEGIN: &str = "<!-- escapes: written by `cargo xtask escapes --markdown` -->";
const END: &str = "<!-- escapes: end -->";

/// How to try.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Also write the table into docs/reliability.md
    #[arg(long)]
    markdown: bool,
    /// Only ways whose name holds this text
    #[arg(long, value_name = "TEXT", conflicts_with = "markdown")]
    only: Option<String>,
}

/// A ground and what came of each way there, or why there is no such ground here.
type Column = (Ground, Result<Vec<Came>, String>);

/// Tries everything, prints the table, and fails if somebody got away whom the kernel does not let go.
pub fn run(root: &Path, options: &Options) -> anyhow::Result<ExitCode> {
    let [pinfold] = build(root, Profile::Dev, ["pinfold"])?;
    let pinfold = pinfold.to_str().context("the path of the build is not text")?;
    let chosen = |way: &&Way| options.only.as_ref().is_none_or(|text| way.name.contains(text.as_str()));
    let ways: Vec<&Way> = WAYS.iter().filter(chosen).collect();
    let columns: Vec<Column> = Ground::ALL.map(|ground| (ground, try_all(ground, &ways, pinfold))).into();
    let table = render(&ways, &columns);
    println!("{table}");
    if options.markdown {
        write_between_marks(&root.join(DOCUMENT), &table)?;
    }
    let wrong = columns.iter().flat_map(|(ground, came)| {
        let came = came.iter().flatten().zip(&ways);
        came.filter(|(came, way)| !came.is_right(way, *ground))
    });
    Ok(if wrong.count() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn try_all(ground: Ground, ways: &[&Way], pinfold: &str) -> Result<Vec<Came>, String> {
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
    table += "\nSurvivors of those that were out, after the stop was answered; –: cannot be tried there.\n";
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

fn write_between_marks(path: &Path, table: &str) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = replace_between_marks(&text, table).with_context(|| format!("{} has no `{BEGIN}`", path.display()))?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn replace_between_marks(text: &str, table: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{}\n{END}{after}", table.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_marks_is_replaced() {
        let text = format!("above\n{BEGIN}\nold\n{END}\nbelow\n");
        let new = replace_between_marks(&text, "| new |\n").expect("marks");
        assert_eq!(new, format!("above\n{BEGIN}\n| new |\n{END}\nbelow\n"));
        assert_eq!(replace_between_marks("no marks", "x"), None);
    }
}
