//! `dashboard`: open the web dashboard in the browser, or print its address.

use std::process::{Command, Stdio};

use clap::Args;
use pinfold_api::types::{DashboardAnswer, DashboardRequest};

use crate::console::Console;
use crate::failure::Failure;
use crate::render::quantity::render_count;
use crate::session::Session;

/// Open the web dashboard in your browser
///
/// The daemon opens a loopback port for it and closes it when no browser is signed in. The address signs in the first browser that
/// opens it, and no other.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pinfold dashboard\n  pinfold dashboard --print           over SSH: forward the port, open the address here\n  \
                        pinfold dashboard --read-only       look, and change nothing"
)]
pub(crate) struct DashboardArgs {
    /// Print the address, and open no browser
    #[arg(long, conflicts_with = "close")]
    pub(crate) print: bool,
    /// The browser may look, and change nothing
    #[arg(long, conflicts_with = "close")]
    pub(crate) read_only: bool,
    /// Listen on this loopback port [default: any free one]
    #[arg(long, value_name = "PORT", env = "PINFOLD_DASHBOARD_PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// Sign every browser out and close the port
    #[arg(long)]
    pub(crate) close: bool,
}

/// Asks for an address and opens it.
pub(crate) async fn run(session: &Session, args: &DashboardArgs, console: &mut Console) -> Result<u8, Failure> {
    if args.close {
        let closed = session.ask(async |client| client.close_dashboard().await).await?;
        match console.json {
            true => console.document(&closed)?,
            false => console
                .text(&format!("closed; signed out {}\n", render_count(closed.signed_out, "browser", "browsers")))?,
        }
        return Ok(0);
    }
    let request = DashboardRequest { read_only: args.read_only, port: args.port };
    let answer = session.ask(async |client| client.open_dashboard(&request).await).await?;
    if console.json {
        console.document(&answer)?;
        return Ok(0);
    }
    let opened = match args.print {
        true => None,
        false => open(&answer.url),
    };
    console.text(&render(&answer, args.print, opened))?;
    Ok(0)
}

/// Programs that open an address in the user's browser, and their arguments before it.
const OPENERS: &[(&str, &[&str])] =
    &[("xdg-open", &[]), ("gio", &["open"]), ("wslview", &[]), ("sensible-browser", &[])];

/// Opens the address in a browser and says with which program; `None` where there is none, or no display to show it on.
fn open(url: &str) -> Option<String> {
    let chosen = std::env::var("BROWSER").ok().filter(|browser| !browser.is_empty());
    if let Some(browser) = &chosen {
        return start(browser, &[], url).then(|| browser.clone());
    }
    let has_display =
        ["DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"].iter().any(|name| std::env::var_os(name).is_some());
    if !has_display {
        return None;
    }
    OPENERS.iter().find(|(program, words)| start(program, words, url)).map(|(program, _)| (*program).to_owned())
}

/// The browser may stay with us as long as it runs, so its end is not awaited.
fn start(program: &str, words: &[&str], url: &str) -> bool {
    let mut command = Command::new(program);
    command.args(words).arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().is_ok()
}

fn render(answer: &DashboardAnswer, print: bool, opened: Option<String>) -> String {
    let seconds = answer.expires_in_ms / 1000;
    match (print, opened) {
        (true, _) => format!("{}\n", answer.url),
        (false, Some(program)) => {
            format!("opened with {program}; if no browser shows it, open this within {seconds} s:\n{}\n", answer.url)
        }
        (false, None) => format!("no browser was found here: open this in one within {seconds} s:\n{}\n", answer.url),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    #[test]
    fn arguments_are_taken_and_closing_stands_alone() {
        let args =
            Args::try_parse_from(["pinfold", "dashboard", "--print", "--read-only", "--port", "7374"]).expect("parses");
        let Command::Dashboard(args) = args.command else { panic!("not dashboard") };
        assert!(args.print && args.read_only && args.port == Some(7374));
        assert!(Args::try_parse_from(["pinfold", "dashboard", "--close", "--print"]).is_err());
        assert!(Args::try_parse_from(["pinfold", "dashboard", "--port", "0"]).is_err());
    }

    #[test]
    fn printing_gives_the_address_alone_and_a_missing_browser_says_so() {
        let answer = DashboardAnswer { url: "http://x/#k=1".into(), expires_in_ms: 120_000, port: 1, read_only: false };
        assert_eq!(render(&answer, true, None), "http://x/#k=1\n");
        assert!(render(&answer, false, None).contains("no browser was found here: open this in one within 120 s"));
        assert!(render(&answer, false, Some("xdg-open".into())).starts_with("opened with xdg-open"));
    }
}
