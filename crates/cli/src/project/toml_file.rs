//! `pinfold.toml`: its tables, and errors with line and column.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use pinfold_api::input::{Size, Span};
use pinfold_api::types::{Notify, Port, Pty, Ready, Restart, SandboxRequest, StartRequest, Stdin, Strays, Streams};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::file::read_env;
use super::{Condition, Definition, Dependency, ProjectError, Variables, line_and_column};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// For every process.
    #[serde(default)]
    env: Variables,
    #[serde(default)]
    env_file: EnvFiles,
    #[serde(default)]
    processes: BTreeMap<Spanned<String>, Table>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    command: Option<String>,
    argv: Option<Vec<String>>,
    shell: Option<String>,
    cwd: Option<String>,
    #[serde(default)]
    env: Variables,
    #[serde(default)]
    env_file: EnvFiles,
    #[serde(default)]
    depends_on: DependsOn,
    ready: Option<Ready>,
    restart: Option<Restart>,
    #[serde(default)]
    ports: BTreeMap<String, Port>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    intent: Option<String>,
    notify: Option<Notify>,
    streams: Option<Streams>,
    stdin: Option<Stdin>,
    pty: Option<Pty>,
    strays: Option<Strays>,
    stop_signal: Option<String>,
    grace: Option<Span>,
    time_limit: Option<Span>,
    idle_limit: Option<Span>,
    sandbox: Option<SandboxRequest>,
    memory_limit: Option<Size>,
    pids_limit: Option<u32>,
    cpus: Option<f64>,
    cpu_time_limit: Option<Span>,
    output_limit: Option<Size>,
}

/// One file, or several, each overriding those before it.
#[derive(Debug, Default, Deserialize)]
#[serde(untagged, expecting = "expected for `env_file`: a file name, or a list of them")]
enum EnvFiles {
    #[default]
    None,
    One(String),
    Many(Vec<String>),
}

impl EnvFiles {
    fn names(&self) -> &[String] {
        match self {
            EnvFiles::None => &[],
            EnvFiles::One(name) => std::slice::from_ref(name),
            EnvFiles::Many(names) => names,
        }
    }
}

/// `["db"]`, or `{ db = "ready" }`.
#[derive(Debug, Default)]
struct DependsOn(Vec<(Spanned<String>, Option<Spanned<String>>)>);

impl<'de> Deserialize<'de> for DependsOn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = DependsOn;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of names such as [\"db\"], or a table such as { db = \"ready\" }")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<DependsOn, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = names.next_element()? {
                    entries.push((name, None));
                }
                Ok(DependsOn(entries))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<DependsOn, A::Error> {
                let mut entries = Vec::new();
                while let Some((name, condition)) = pairs.next_entry()? {
                    entries.push((name, Some(condition)));
                }
                Ok(DependsOn(entries))
            }
        }

        deserializer.deserialize_any(Entries)
    }
}

/// The processes of the file. Their directories are still as written.
pub(super) fn parse(path: &Path, text: &str, directory: &Path) -> Result<Vec<Definition>, ProjectError> {
    let fail = |offset: Option<usize>, message: String| ProjectError {
        path: path.to_owned(),
        at: offset.map(|offset| line_and_column(text, offset)),
        message,
    };
    let file: File =
        toml::from_str(text).map_err(|error| fail(error.span().map(|span| span.start), error.message().to_owned()))?;
    if file.processes.is_empty() {
        let message = "it has no processes: write a table such as [processes.web] with `command = \"npm run dev\"`";
        return Err(fail(None, message.into()));
    }
    let names: Vec<&str> = file.processes.keys().map(|name| name.get_ref().as_str()).collect();
    let shared = variables(directory, &file.env_file, &file.env)?;
    let mut processes = Vec::new();
    for (name, table) in &file.processes {
        let mut depends_on = Vec::new();
        for (on, condition) in &table.depends_on.0 {
            let at = |message| fail(Some(on.span().start), message);
            let position = names.iter().position(|name| name == on.get_ref()).ok_or_else(|| {
                at(format!("`{}` depends on `{}`, which is not in this file", name.get_ref(), on.get_ref()))
            })?;
            let needed = &file.processes[on.get_ref().as_str()];
            let until = match condition {
                None if needed.ready.is_some() => Condition::Ready,
                None => Condition::Started,
                Some(word) => Condition::parse(word.get_ref()).ok_or_else(|| {
                    let message = format!("`{}` is not a condition: use started, ready or finished", word.get_ref());
                    fail(Some(word.span().start), message)
                })?,
            };
            if until == Condition::Ready && needed.ready.is_none() {
                return Err(at(format!("`{}` has no `ready`, so it can never be ready: add one to it", on.get_ref())));
            }
            if until == Condition::Finished && needed.restart.is_some() {
                let message = format!("`{}` has a `restart` policy, so nothing can wait for its end", on.get_ref());
                return Err(at(message));
            }
            depends_on.push(Dependency { on: position, until });
        }
        let start = name.span().start;
        if table.command.is_some() == table.argv.is_some() {
            let message = match table.command {
                Some(_) => {
                    format!("`{}` has both `command` and `argv`: it needs either `command` or `argv`", name.get_ref())
                }
                None => format!("`{}` needs either `command` or `argv`", name.get_ref()),
            };
            return Err(fail(Some(start), message));
        }
        let mut env = shared.clone();
        env.extend(variables(directory, &table.env_file, &table.env)?);
        let request = request(name.get_ref(), table, env);
        if let Err(message) = check(&request) {
            let field = field_with_error(text, name.get_ref(), &message);
            return Err(fail(field.or(Some(start)), format!("`{}`: {message}", name.get_ref())));
        }
        processes.push(Definition { name: name.get_ref().clone(), depends_on, request });
    }
    Ok(processes)
}

/// Where the table of a process begins.
pub(super) fn position_of(text: &str, name: &str) -> Option<(usize, usize)> {
    #[derive(Deserialize)]
    struct Names {
        processes: BTreeMap<Spanned<String>, toml::Value>,
    }
    let names: Names = toml::from_str(text).ok()?;
    let (name, _) = names.processes.get_key_value(name)?;
    Some(line_and_column(text, name.span().start))
}

/// Checks the values that the daemon would refuse, before anything is started.
fn check(request: &StartRequest) -> Result<(), String> {
    // Still relative to the file.
    let request = StartRequest { cwd: None, ..request.clone() };
    pinfold_daemon::check_start(request).map_err(|error| error.message)
}

/// Where the field is that leads to this error by itself; `None` if it takes several fields.
fn field_with_error(text: &str, process: &str, message: &str) -> Option<usize> {
    #[derive(Deserialize)]
    struct Fields {
        processes: BTreeMap<String, BTreeMap<Spanned<String>, toml::Value>>,
    }
    let fields = toml::from_str::<Fields>(text).ok()?.processes.remove(process)?;
    let fails = |(field, value): &(Spanned<String>, toml::Value)| {
        let alone = toml::Table::from_iter([
            ("command".to_owned(), toml::Value::from("true")),
            (field.get_ref().clone(), value.clone()),
        ]);
        let table = Table::deserialize(toml::Value::Table(alone));
        table
            .is_ok_and(|table| check(&request(process, &table, table.env.clone())).is_err_and(|error| error == message))
    };
    fields.into_iter().find(fails).map(|(field, _)| field.span().start)
}

fn variables(directory: &Path, files: &EnvFiles, own: &Variables) -> Result<Variables, ProjectError> {
    let mut variables = Variables::new();
    for name in files.names() {
        variables.extend(read_env(&directory.join(name))?);
    }
    variables.extend(own.clone());
    Ok(variables)
}

fn request(name: &str, table: &Table, env: Variables) -> StartRequest {
    StartRequest {
        command: table.command.clone(),
        argv: table.argv.clone(),
        shell: table.shell.clone(),
        cwd: table.cwd.clone(),
        env: env.into_iter().map(|(name, value)| (name, Some(value))).collect(),
        name: Some(name.to_owned()),
        intent: table.intent.clone(),
        labels: table.labels.clone(),
        streams: table.streams,
        stdin: table.stdin,
        pty: table.pty,
        strays: table.strays,
        stop_signal: table.stop_signal.clone(),
        grace: table.grace.clone(),
        time_limit: table.time_limit.clone(),
        idle_limit: table.idle_limit.clone(),
        sandbox: table.sandbox.clone(),
        memory_limit: table.memory_limit.clone(),
        pids_limit: table.pids_limit,
        cpus: table.cpus,
        cpu_time_limit: table.cpu_time_limit.clone(),
        notify: table.notify.clone(),
        ready: table.ready.clone(),
        restart: table.restart.clone(),
        ports: table.ports.clone(),
        output_limit: table.output_limit.clone(),
        ..StartRequest::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<Definition>, ProjectError> {
        parse(Path::new("pinfold.toml"), text, Path::new("/nowhere"))
    }

    #[test]
    fn a_dependency_waits_for_readiness_where_there_is_any() {
        let processes = parsed(
            "[processes.db]\ncommand = 'db'\nready = { port = 5432 }\n\
             [processes.init]\nargv = ['make', 'init']\ndepends_on = ['db']\n\
             [processes.web]\ncommand = 'web'\ndepends_on = { init = 'finished', db = 'started' }\n",
        )
        .expect("a good file");
        let (db, init, web) = (&processes[0], &processes[1], &processes[2]);
        assert_eq!(db.depends_on, []);
        assert_eq!(init.depends_on, [Dependency { on: 0, until: Condition::Ready }]);
        let finished = Dependency { on: 1, until: Condition::Finished };
        assert_eq!(web.depends_on, [Dependency { on: 0, until: Condition::Started }, finished]);
    }

    #[test]
    fn errors_have_line_and_column() {
        let web = "[processes.web]\ncommand = 'web'\n";
        for (text, at, words) in [
            (format!("{web}depends_on = ['db']\n"), (3, 15), "depends on `db`, which is not in this file"),
            (format!("{web}depends_on = {{ web = 'soon' }}\n"), (3, 22), "`soon` is not a condition"),
            (format!("{web}depends_on = {{ web = 'ready' }}\n"), (3, 16), "has no `ready`"),
            (format!("{web}depends_on = {{ web = 'finished' }}\nrestart = 'always'\n"), (3, 16), "`restart` policy"),
            (format!("{web}comand = 'x'\n"), (3, 1), "unknown field `comand`"),
            (format!("{web}ready = {{ port = [] }}\n"), (3, 18), "expected a port"),
            ("[processes.web]\n".into(), (1, 12), "either `command` or `argv`"),
            (format!("{web}argv = ['web']\n"), (1, 12), "has both `command` and `argv`"),
            (format!("{web}stdin = 'pipe'\ngrace = '5 parsecs'\n"), (4, 1), "`web`: `5 parsecs` is not a duration"),
            (format!("{web}memory_limit = '12xx'\n"), (3, 1), "12xx"),
            (format!("{web}ready = {{ port = 99999999 }}\n"), (3, 1), "99999999 is not a TCP port"),
            (format!("{web}labels = {{ a = 'b' }}\nready = {{ port = 'PORT' }}\n"), (4, 1), "PORT"),
            (format!("{web}restart = 'sometimes'\n"), (3, 1), "restart `sometimes`"),
            (format!("{web}pty = true\nstdin = 'pipe'\n"), (1, 12), "stdin"),
            ("[processes.web\n".into(), (1, 15), ""),
        ] {
            let error = parsed(&text).expect_err(&text);
            assert!(error.message.contains(words), "{text}: {error}");
            assert_eq!(error.at, Some(at), "{text}: {error}");
        }
        assert!(parsed("").expect_err("an empty file").message.contains("no processes"));
    }
}
