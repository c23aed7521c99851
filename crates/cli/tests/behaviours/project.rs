//! Project files: `pinfold up` and `pinfold down`.

use std::path::{Path, PathBuf};

use pinfold_api::types::{ListQuery, Record, Status};
use pinfold_testkit::{Cli, Pinfold, until};
use serde_json::Value;

use crate::PINFOLD;

/// A server on the port in $PORT.
const SERVER: &str = "exec perl -MIO::Socket::INET -e 'my $socket = IO::Socket::INET->new(Listen => 5, ReuseAddr => 1, \
                      LocalAddr => \"127.0.0.1\", LocalPort => $ENV{PORT}) or die; sleep 300'";

/// A daemon, and a directory with a project file.
struct Project {
    pinfold: Pinfold,
    directory: PathBuf,
}

impl Project {
    fn new(file: &str, text: &str) -> Self {
        let pinfold = Pinfold::start(PINFOLD);
        let directory = pinfold.home().join("shop");
        std::fs::create_dir(&directory).expect("a directory");
        let project = Self { pinfold, directory };
        project.write(file, text);
        project
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.directory.join(file), text).expect("the file is written");
    }

    fn cli(&self, words: &[&str]) -> Cli {
        self.cli_in(&self.directory, words)
    }

    fn cli_in(&self, directory: &Path, words: &[&str]) -> Cli {
        let mut command = self.pinfold.command(words);
        Cli::from(command.current_dir(directory).output().expect("pinfold can be executed"))
    }

    /// `up --json`, and what it printed.
    fn up(&self, words: &[&str]) -> (Option<i32>, Value) {
        let cli = self.cli(&[&["up", "--json"], words].concat());
        (cli.code, serde_json::from_str(&cli.stdout).unwrap_or_else(|_| panic!("{}{}", cli.stdout, cli.stderr)))
    }

    fn all(&self) -> Vec<Record> {
        self.pinfold.list(&ListQuery::default()).processes
    }

    fn live(&self) -> Vec<String> {
        let is_live = |record: &Record| matches!(record.status, Status::Running | Status::Starting);
        let mut names: Vec<_> = self.all().into_iter().filter(is_live).filter_map(|record| record.name).collect();
        names.sort();
        names
    }
}

/// One process of a summary.
fn process<'a>(summary: &'a Value, name: &str) -> &'a Value {
    let processes = summary["processes"].as_array().expect("a list of processes");
    processes.iter().find(|process| process["name"] == name).unwrap_or_else(|| panic!("no {name} in {summary}"))
}

fn state(summary: &Value, name: &str) -> String {
    format!("{} {}", process(summary, name)["action"], process(summary, name)["state"]).replace('"', "")
}

#[test]
fn up_starts_in_the_order_of_dependencies_and_down_stops_in_the_reverse() {
    let project = Project::new(
        "pinfold.toml",
        &format!(
            "[processes.web]\ncommand = 'cat order; sleep 300'\ndepends_on = {{ init = 'finished', db = 'ready' }}\n\
             [processes.init]\ncommand = 'echo $PORT >> order'\ndepends_on = ['db']\nenv = {{ PORT = 'init' }}\n\
             [processes.db]\ncommand = '''echo db > order; {SERVER}'''\nports = {{ PORT = 'lease' }}\nready = {{ port = 'PORT' }}\n"
        ),
    );
    let (code, summary) = project.up(&[]);
    assert_eq!(code, Some(0), "{summary}");
    assert_eq!(state(&summary, "db"), "started ready");
    assert_eq!(state(&summary, "init"), "started finished");
    assert_eq!(state(&summary, "web"), "started started");
    assert!(process(&summary, "db")["ports"]["PORT"].is_u64(), "{summary}");
    let web = process(&summary, "web")["id"].as_str().expect("an id").to_owned();
    until("web has read what the others wrote", || project.pinfold.text(&web) == "db\ninit\n");
    let owner = summary["owner"].as_str().expect("an owner").to_owned();
    assert!(project.all().iter().all(|record| record.owner == owner), "one owner for the project");

    let down = project.cli(&["down"]);
    assert_eq!(down.code, Some(0), "{}{}", down.stdout, down.stderr);
    assert_eq!(project.live(), [""; 0]);
    let ended = |name: &str| {
        let record = project.all().into_iter().find(|record| record.name.as_deref() == Some(name)).expect("its record");
        record.finished_at.expect("it has ended")
    };
    assert!(ended("web") <= ended("db"), "the dependent was stopped first");
    assert!(project.cli(&["down"]).stderr.contains("nothing to stop"));
}

#[test]
fn a_second_up_changes_only_what_changed() {
    let file = |web: &str, extra: &str| {
        format!(
            "[processes.web]\ncommand = 'echo {web}; sleep 300'\n[processes.worker]\ncommand = 'sleep 300'\n\
             [processes.task]\ncommand = 'true'\n[processes.after]\ncommand = 'sleep 300'\ndepends_on = {{ task = 'finished' }}\n{extra}"
        )
    };
    let project = Project::new("pinfold.toml", &file("one", "[processes.old]\ncommand = 'sleep 300'\n"));
    let (code, first) = project.up(&[]);
    assert_eq!(code, Some(0), "{first}");
    let before = project.all().len();
    let (_, again) = project.up(&[]);
    assert_eq!(project.all().len(), before, "nothing was started");
    assert_eq!(
        ["web", "worker", "task", "old"].map(|name| state(&again, name)),
        ["kept started", "kept started", "kept finished", "kept started"]
    );

    project.write("pinfold.toml", &file("two", ""));
    let (code, changed) = project.up(&[]);
    assert_eq!(code, Some(0), "{changed}");
    assert_eq!(state(&changed, "web"), "replaced started");
    assert_eq!(process(&changed, "worker")["id"], process(&first, "worker")["id"]);
    assert_eq!(changed["removed"], serde_json::json!(["old"]), "what is no longer in the file is stopped");
    assert_eq!(project.live(), ["after", "web", "worker"]);

    let (_, forced) = project.up(&["--force", "task"]);
    assert_eq!(state(&forced, "task"), "started finished");
    assert_eq!(forced["processes"].as_array().map(Vec::len), Some(1), "task depends on nothing");
}

#[test]
fn a_failed_dependency_skips_its_dependents_and_up_exits_with_1() {
    let project = Project::new(
        "pinfold.toml",
        "[processes.bad]\ncommand = 'echo broken; exit 3'\n[processes.needs]\ncommand = 'sleep 300'\ndepends_on = { bad = 'finished' }\n\
         [processes.slow]\ncommand = 'sleep 300'\nready = { output = 'never', timeout = '1s' }\n\
         [processes.other]\ncommand = 'sleep 300'\n[processes.missing]\nargv = ['/no/such/program']\n",
    );
    let (code, summary) = project.up(&[]);
    assert_eq!(code, Some(1), "{summary}");
    assert_eq!(state(&summary, "bad"), "started failed");
    assert_eq!(state(&summary, "needs"), "none skipped");
    assert_eq!(state(&summary, "slow"), "started failed");
    assert_eq!(state(&summary, "missing"), "none failed");
    assert_eq!(state(&summary, "other"), "started started", "what depends on nothing is started");
    let text = |name: &str| process(&summary, name)["text"].as_str().unwrap_or_default().to_owned();
    assert!(text("bad").contains("exit 3") && text("bad").contains("pinfold logs"), "{summary}");
    assert!(text("needs").contains("`bad`"), "{summary}");
    assert!(text("slow").contains("not ready in time"), "{summary}");
    assert!(text("missing").contains("/no/such/program"), "{summary}");
    // Readiness is final, so a process that was not ready in time is replaced.
    let (_, again) = project.up(&["slow"]);
    assert_eq!(state(&again, "slow"), "replaced failed");
}

#[test]
fn a_procfile_is_a_project_with_its_env_file_and_is_found_from_below() {
    let project = Project::new("Procfile", "web: echo web $GREETING; sleep 300\n# comment\nworker: sleep 300\n");
    project.write(".env", "GREETING='hello there'\n");
    let below = project.directory.join("deep/down");
    std::fs::create_dir_all(&below).expect("directories");
    let up = project.cli_in(&below, &["up"]);
    assert_eq!(up.code, Some(0), "{}{}", up.stdout, up.stderr);
    assert!(up.stdout.contains("web: started (") && up.stdout.contains("worker: started ("), "{}", up.stdout);
    let web = project.all().into_iter().find(|record| record.name.as_deref() == Some("web")).expect("web");
    assert_eq!(web.cwd, project.directory.to_str().expect("a path"));
    until("it said so", || project.pinfold.text(&web.id) == "web hello there\n");
    assert!(project.cli_in(&below, &["up"]).stdout.contains("web: unchanged"));
    project.write(".env", "GREETING=bye\n");
    assert!(project.cli(&["up", "web"]).stdout.contains("web: replaced"), "the environment file counts");
    assert_eq!(project.cli(&["down", "worker"]).code, Some(0));
    assert_eq!(project.live(), ["web"]);
}

#[test]
fn bad_project_files_are_errors_with_line_and_column_and_start_nothing() {
    let project = Project::new("pinfold.toml", "");
    let web = "[processes.web]\ncommand = 'sleep 300'\n";
    for (text, at, words) in [
        (String::new(), "pinfold.toml: ", "no processes"),
        (format!("{web}depends_on = ['db']\n"), "pinfold.toml:3:15: ", "`db`, which is not in this file"),
        (format!("{web}depends_on = ['web']\n"), "pinfold.toml:1:12: ", "cycle: web → web"),
        (format!("{web}comand = 'x'\n"), "pinfold.toml:3:1: ", "unknown field `comand`"),
        (format!("{web}env_file = 'none.env'\n"), "none.env: ", "cannot be read"),
        (format!("{web}= 3\n"), "pinfold.toml:3:1: ", ""),
        (
            format!("[processes.first]\ncommand = 'sleep 300'\n{web}depends_on = ['first']\ngrace = '5 parsecs'\n"),
            "pinfold.toml:6:1: ",
            "`5 parsecs` is not a duration",
        ),
    ] {
        project.write("pinfold.toml", &text);
        let up = project.cli(&["up"]);
        assert_eq!((up.code, up.stdout.as_str()), (Some(2), ""), "{text}");
        assert!(up.stderr.contains(at) && up.stderr.contains(words), "{text}: {}", up.stderr);
    }
    std::fs::write(project.directory.join("pinfold.toml"), b"a = '\xff'").expect("bytes");
    assert!(project.cli(&["up"]).stderr.contains("pinfold.toml:1:6: not UTF-8"));
    assert_eq!(project.cli(&["up", "--file", "other.toml"]).code, Some(2));
    let nowhere = project.cli_in(Path::new("/"), &["up"]);
    assert!(nowhere.code == Some(2) && nowhere.stderr.contains("no pinfold.toml or Procfile"), "{}", nowhere.stderr);
    project.write("pinfold.toml", web);
    let unknown = project.cli(&["up", "wbe"]);
    assert!(unknown.code == Some(2) && unknown.stderr.contains("it has: web"), "{}", unknown.stderr);
    assert_eq!(project.all().len(), 0);
}

#[test]
fn down_works_with_a_broken_file_and_stops_the_whole_trees() {
    let project = Project::new("pinfold.toml", "[processes.web]\ncommand = 'setsid sleep 300 & sleep 300'\n");
    let (_, summary) = project.up(&[]);
    let id = process(&summary, "web")["id"].as_str().expect("an id").to_owned();
    project.pinfold.until_tree(&id, 3);
    project.write("pinfold.toml", "[processes");
    let down = project.cli(&["down"]);
    assert_eq!(down.code, Some(0), "{}{}", down.stdout, down.stderr);
    assert!(down.stderr.contains("pinfold.toml:1:11: "), "{}", down.stderr);
    assert_eq!(project.pinfold.tree(&id), [0; 0]);
}

#[test]
fn two_ups_at_once_start_each_process_once() {
    let project =
        Project::new("pinfold.toml", "[processes.web]\ncommand = 'sleep 300'\n[processes.db]\ncommand = 'sleep 300'\n");
    let mut both: Vec<_> = (0..4)
        .map(|_| {
            project.pinfold.command(&["up"]).current_dir(&project.directory).stdout(std::process::Stdio::null()).spawn()
        })
        .map(|child| child.expect("pinfold can be executed"))
        .collect();
    assert!(both.iter_mut().all(|child| child.wait().is_ok_and(|status| status.success())));
    assert_eq!(project.live(), ["db", "web"]);
}

#[test]
fn a_killed_daemon_changes_nothing_about_a_project() {
    let project = Project::new(
        "pinfold.toml",
        "[processes.web]\ncommand = 'sleep 300'\n[processes.task]\ncommand = 'true'\n\
                                                [processes.last]\ncommand = 'sleep 300'\ndepends_on = { task = 'finished' }\n",
    );
    let (_, first) = project.up(&[]);
    project.pinfold.crash_and_restart();
    let (code, again) = project.up(&[]);
    assert_eq!(code, Some(0), "{again}");
    for name in ["web", "task", "last"] {
        assert_eq!(process(&again, name)["id"], process(&first, name)["id"], "{again}");
        assert_eq!(process(&again, name)["action"], "kept");
    }
}

#[test]
fn another_file_in_the_same_directory_is_another_project() {
    let project = Project::new("pinfold.toml", "[processes.web]\ncommand = 'sleep 300'\n");
    project.write("two.toml", "[processes.other]\ncommand = 'sleep 300'\n");
    assert_eq!(project.cli(&["up"]).code, Some(0));
    let two = project.cli(&["up", "--file", "two.toml"]);
    assert_eq!(two.code, Some(0), "{}", two.stderr);
    assert_eq!(project.live(), ["other", "web"], "neither file knows of the other's processes");
    assert_eq!(project.cli(&["down", "--file", "two.toml"]).code, Some(0));
    assert_eq!(project.live(), ["web"]);
}
