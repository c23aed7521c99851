//! `rerun`: start the command of another process again, with the same options.

use std::path::PathBuf;

use clap::Args;
use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Notify, Record, StartRequest};

use crate::commands::run::environment::Environment;
use crate::commands::run::{self, Shown};
use crate::console::Console;
use crate::failure::Failure;
use crate::session::Session;

/// Label of the new process, with the id of the process that it repeats.
const RERUN_OF: &str = "rerun-of";
/// Maximum number of labels of a process. One that has as many is repeated without [`RERUN_OF`].
const MAX_LABELS: usize = 32;

/// Start the command of a process again, with the same options, as a new process
///
/// Repeats the command or program, shell, directory, name, labels, owner, limits, standard input, terminal, streams,
/// readiness, ports, restart policy, sandbox and notifications. Values of environment variables are not stored, so the new
/// process gets the environment of this shell, as with `pinfold run`. The address of a webhook is not shown, so it is
/// repeated only with --webhook.
///
/// Output, Ctrl-C and exit code are those of `pinfold run`. The process to repeat may still be running: then both run,
/// and a name that both have is ambiguous. The label `rerun-of` of the new process has the id of the repeated one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold rerun tests\n  pinfold rerun -d k3v9 --env DEBUG=1\n  \
                        pinfold rerun web --lease PORT      with another free port\n  \
                        pinfold ps --label rerun-of=k3v9x2  what repeats a process")]
pub(crate) struct RerunArgs {
    /// Process to repeat: id, unique prefix of an id, or name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Run in the background: print the id and return; if it has a readiness check, return when it is ready
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// Attach this terminal to it, as `pinfold attach` does; only if it was started with a terminal
    #[arg(short, long, conflicts_with_all = ["detach", "timeout"])]
    pub(crate) interactive: bool,
    /// Working directory [default: that of the repeated process]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Set an environment variable (`KEY=` sets it to the empty string); may be repeated
    #[arg(long = "env", short = 'e', value_name = "KEY=VALUE", value_parser = run::parse_pair)]
    pub(crate) env: Vec<(String, String)>,
    /// Unset an environment variable; may be repeated
    #[arg(long, value_name = "KEY")]
    pub(crate) unset: Vec<String>,
    /// Another name [default: that of the repeated process]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Another owner [default: that of the repeated process]
    #[arg(long)]
    pub(crate) owner: Option<String>,
    /// Another port instead of the reserved one: any free one (PORT), or a number (PORT=3000); may be repeated
    #[arg(long, value_name = "VAR[=N]")]
    pub(crate) lease: Vec<String>,
    /// POST each notification to this http or https URL
    #[arg(long, value_name = "URL")]
    pub(crate) webhook: Option<String>,
    /// Wait at most this long (up to 1h), then leave it running and exit with 124
    #[arg(long, value_name = "DURATION", conflicts_with = "detach")]
    pub(crate) timeout: Option<String>,
}

/// Reads the record, and starts and shows the new process.
pub(crate) async fn run(session: &Session, args: &RerunArgs, console: &mut Console) -> Result<u8, Failure> {
    let record = session.ask(async |client| client.show(&args.id).await).await?;
    let (id, webhook) = (record.id.clone(), lost_webhook(&record, args));
    let mut request = request(record, args)?;
    if args.interactive && request.pty.is_none() {
        return Err(Failure::invalid(format!("{id} was not started with a terminal: leave out --interactive")));
    }
    let mut environment = environment(args, &request, run::passed_variables(session)?.into_iter());
    request.traceparent = environment.take_traceparent();
    let warning = environment.warning();
    request.env = environment.variables;
    for text in warning.iter().chain(&webhook).filter(|_| !console.json) {
        console.note(text);
    }
    console.hint(&format!("repeats {id} in {}", request.cwd.as_deref().unwrap_or_default()));
    let shown = match (args.detach, args.interactive) {
        (true, _) => Shown::Detached,
        (false, true) => Shown::Attached,
        (false, false) => Shown::Foreground { timeout: args.timeout.clone() },
    };
    let warnings: Vec<String> = warning.into_iter().chain(webhook).collect();
    let warning = (!warnings.is_empty()).then(|| warnings.join("; "));
    run::start_and_show(session, request, shown, warning, console).await.map_err(name_the_option)
}

/// The start request that repeats the process, without its environment.
fn request(record: Record, args: &RerunArgs) -> Result<StartRequest, Failure> {
    let Some(request) = record.request else {
        return Err(Failure::internal(format!(
            "the daemon does not say how {} was started: it is older than this command. Run `pinfold daemon stop`, which \
             stops no process, and try again",
            record.id
        )));
    };
    let mut request = *request;
    if let Some(cwd) = args.cwd.as_deref() {
        request.cwd = Some(run::directory(Some(cwd))?);
    }
    request.name = args.name.clone().or(request.name);
    request.owner = args.owner.clone().or(request.owner);
    request.ports.extend(args.lease.iter().map(|text| run::lease_of(text)));
    if let Some(webhook) = &args.webhook {
        request.notify.get_or_insert_with(Notify::default).webhook = Some(webhook.clone());
    }
    if request.labels.len() < MAX_LABELS || request.labels.contains_key(RERUN_OF) {
        request.labels.insert(RERUN_OF.to_owned(), record.id);
    }
    request.inherit_env = Some(false);
    request.idempotency_key = run::fresh_key();
    Ok(request)
}

/// The environment of this command with the changes of `--env` and `--unset`, and PWD for the directory.
fn environment(
    args: &RerunArgs,
    request: &StartRequest,
    variables: impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)>,
) -> Environment {
    let mut environment = Environment::read(variables);
    if let Some(cwd) = &request.cwd {
        environment.set("PWD", cwd);
    }
    args.env.iter().for_each(|(name, value)| environment.set(name, value));
    args.unset.iter().for_each(|name| environment.unset(name));
    environment
}

/// A warning that the webhook is not repeated.
fn lost_webhook(record: &Record, args: &RerunArgs) -> Option<String> {
    let host = record.notify.as_ref()?.webhook.as_ref().filter(|_| args.webhook.is_none())?;
    Some(format!(
        "the webhook to {host} is not repeated, because its full address is not shown: give it with --webhook"
    ))
}

/// Adds to an error which option helps.
fn name_the_option(mut failure: Failure) -> Failure {
    if failure.error.code == ErrorCode::BadCwd {
        let error = &mut failure.error.message;
        *error = format!("the directory of the repeated process cannot be used: {error}: create it, or use --cwd DIR");
    }
    failure
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use pinfold_api::types::Port;

    use super::*;
    use crate::args::{Args, Command};
    use crate::render::sample;

    fn args(line: &str) -> RerunArgs {
        let args = Args::try_parse_from(["pinfold", "rerun"].into_iter().chain(line.split(' ')));
        let Command::Rerun(args) = args.expect("parses").command else { panic!("not rerun") };
        args
    }

    fn repeated(line: &str, labels: usize) -> StartRequest {
        let labels = (0..labels).map(|number| (format!("l{number}"), "x".to_owned())).collect();
        let ports = [("PORT".to_owned(), Port::Number(3000))].into();
        let recorded =
            StartRequest { name: Some("web".into()), cwd: Some("/srv".into()), labels, ports, ..Default::default() };
        request(Record { request: Some(Box::new(recorded)), ..sample::record() }, &args(line)).expect("a request")
    }

    #[test]
    fn options_replace_what_was_recorded() {
        let same = repeated("k3", 0);
        assert_eq!(
            (same.name.as_deref(), same.cwd.as_deref(), same.inherit_env),
            (Some("web"), Some("/srv"), Some(false))
        );
        assert_eq!((same.labels[RERUN_OF].as_str(), &same.ports["PORT"]), ("k3v9x2", &Port::Number(3000)));
        let other = repeated("k3 --name n --cwd /x --lease PORT", 0);
        assert_eq!((other.name.as_deref(), other.cwd.as_deref()), (Some("n"), Some("/x")));
        assert_eq!(other.ports["PORT"], Port::from("lease"));
    }

    #[test]
    fn a_process_with_as_many_labels_as_allowed_can_be_repeated() {
        assert_eq!(repeated("k3", MAX_LABELS).labels.len(), MAX_LABELS);
        assert_eq!(repeated("k3", MAX_LABELS - 1).labels.len(), MAX_LABELS);
    }

    #[test]
    fn a_daemon_that_does_not_know_the_request_is_named() {
        let error = request(sample::record(), &args("k3")).expect_err("refused").error.message;
        assert!(error.contains("pinfold daemon stop"), "{error}");
    }
}
