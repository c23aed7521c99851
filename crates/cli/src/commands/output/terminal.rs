//! `screen` and `resize`: the terminal of a process started with `run --pty`.

use clap::Args;
use pinfold_api::types::{ResizeRequest, Screen as Shown};

use crate::console::Console;
use crate::failure::Failure;
use crate::session::Session;

/// Show the terminal screen of a process started with `run --pty`
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold screen editor")]
pub(crate) struct ScreenArgs {
    /// Process: id, unique prefix of an id, or name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

/// Resize the terminal of a process started with `run --pty`
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold resize editor 40x120")]
pub(crate) struct ResizeArgs {
    /// Process: id, unique prefix of an id, or name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Rows and columns
    #[arg(value_name = "ROWSxCOLS", value_parser = parse_size)]
    pub(crate) size: (u16, u16),
}

pub(crate) async fn show(session: &Session, args: &ScreenArgs, console: &mut Console) -> Result<u8, Failure> {
    let shown = session.ask(async |client| client.screen(&args.id).await).await?;
    print(&shown, console)
}

pub(crate) async fn resize(session: &Session, args: &ResizeArgs, console: &mut Console) -> Result<u8, Failure> {
    let (rows, cols) = args.size;
    let request = ResizeRequest { rows, cols };
    let shown = session.ask(async |client| client.resize(&args.id, &request).await).await?;
    if console.json { print(&shown, console) } else { Ok(0) }
}

fn print(shown: &Shown, console: &mut Console) -> Result<u8, Failure> {
    if console.json {
        console.document(shown)?;
    } else {
        shown.lines.iter().try_for_each(|line| console.text(&format!("{line}\n")))?;
        let waits = if shown.waiting_for_input == Some(true) { ", waiting for input" } else { "" };
        let title = if shown.title.is_empty() { String::new() } else { format!(", {}", shown.title) };
        let (size, cursor) = (shown.size, shown.cursor);
        console.hint(&format!(
            "{}x{}, cursor at row {} column {}{title}{waits}",
            size.rows, size.cols, cursor.row, cursor.col
        ));
    }
    Ok(0)
}

/// `24x80`.
pub(crate) fn parse_size(text: &str) -> Result<(u16, u16), String> {
    let parsed =
        text.split_once(['x', 'X', ',']).and_then(|(rows, cols)| Some((rows.parse().ok()?, cols.parse().ok()?)));
    parsed.ok_or_else(|| format!("`{text}` is not a size: write ROWSxCOLS, such as 24x80"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_rows_and_columns() {
        assert_eq!(parse_size("24x80"), Ok((24, 80)));
        for bad in ["", "24", "x", "24x", "ax80", "24x80x1", "70000x1"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
