//! `pinfold connect`: the configuration files of agents, in a home that the test creates.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pinfold_testkit::{Cli, Pinfold, Setup};
use serde_json::Value;

use crate::PINFOLD;
use crate::clients::Running;

const AGENTS: [&str; 6] = ["codex", "claude", "gemini", "opencode", "cursor", "vscode"];

/// The home of a user, and a working directory.
struct Person {
    pinfold: Pinfold,
}

impl Person {
    fn new() -> Self {
        let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
        std::fs::create_dir_all(pinfold.home().join("work")).expect("a directory");
        Self { pinfold }
    }

    /// A file in their home.
    fn file(&self, name: &str) -> PathBuf {
        self.pinfold.home().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let file = self.file(name);
        std::fs::create_dir_all(file.parent().expect("a directory")).expect("directories");
        std::fs::write(file, text).expect("written");
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// `pinfold` without the environment of the test run.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PINFOLD);
        command.args(arguments).env_clear().env("HOME", self.pinfold.home()).env("PATH", "/usr/bin:/bin");
        command.current_dir(self.file("work"));
        command
    }

    fn cli(&self, arguments: &[&str]) -> Cli {
        Cli::from(self.command(arguments).output().expect("pinfold"))
    }

    /// Runs it; it must succeed and print nothing on stderr.
    fn ok(&self, arguments: &[&str]) -> String {
        let cli = self.cli(arguments);
        assert_eq!((cli.code, cli.stderr.as_str()), (Some(0), ""), "{arguments:?}: {cli:?}");
        cli.stdout
    }

    /// Every file in the home, with its content.
    fn everything(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let (mut found, mut pending) = (Vec::new(), vec![self.pinfold.home().to_owned()]);
        while let Some(directory) = pending.pop() {
            for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
                match entry.file_type().expect("a type").is_dir() {
                    true => pending.push(entry.path()),
                    false => found.push((entry.path(), std::fs::read(entry.path()).unwrap_or_default())),
                }
            }
        }
        found.sort();
        found
    }
}

/// The command in an agent's configuration.
fn command_in(agent: &str, text: &str) -> Vec<String> {
    if agent == "codex" {
        let line = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).expect(key).to_owned();
        let args: Vec<String> = serde_json::from_str(&line("args = ")).expect("a list");
        let command: String = serde_json::from_str(&line("command = ")).expect("a string");
        return [vec![command], args].concat();
    }
    let json: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{agent}: {error}: {text}"));
    let section = ["mcpServers", "mcp", "servers"].iter().find_map(|name| json.get(name)).expect("a section");
    let entry = &section["pinfold"];
    let words = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().map(|word| word.as_str().expect("text").to_owned()).collect()
    };
    match entry["command"].as_str() {
        Some(command) => [vec![command.to_owned()], words(&entry["args"])].concat(),
        None => words(&entry["command"]),
    }
}

#[test]
fn every_agent_is_connected_once_and_disconnected_again() {
    for scope in ["user", "project"] {
        let person = Person::new();
        for agent in AGENTS {
            let before = person.everything();
            let said = person.ok(&["connect", agent, "--scope", scope]);
            assert!(said.contains("Restart") && said.contains("--undo") && said.lines().count() == 2, "{said}");
            let after = person.everything();
            let [(file, text)] = &after.iter().filter(|file| !before.contains(file)).collect::<Vec<_>>()[..] else {
                panic!("{agent}: not one file more: {after:?}")
            };
            assert!(said.contains(file.to_str().expect("text")), "{said}");
            let text = String::from_utf8(text.clone()).expect("text");
            assert_eq!(command_in(agent, &text), [PINFOLD, "mcp"], "{agent}");
            let again = person.ok(&["connect", agent, "--scope", scope]);
            assert!(again.contains("already connected"), "{again}");
            assert_eq!(person.everything(), after, "a second time changes nothing");
            person.ok(&["connect", agent, "--scope", scope, "--undo"]);
            assert_eq!(person.everything(), before, "{agent}: something is left");
            assert!(person.ok(&["connect", agent, "--scope", scope, "--undo"]).contains("not connected"));
        }
        assert!(!person.file(".local").exists(), "a daemon was started for nothing");
    }
}

#[test]
fn existing_configuration_is_kept_and_restored_byte_for_byte() {
    let person = Person::new();
    for (agent, file, text) in [
        ("codex", ".codex/config.toml", "# mine\nmodel = \"o\" # why\n\n[mcp_servers.a]\ncommand = \"x\"\n# off = 1\n"),
        ("claude", ".claude.json", "{\n  \"numStartups\": 3,\n  \"mcpServers\": {},\n  \"tips\": [1, 2]\n}"),
        ("gemini", ".gemini/settings.json", "{\n\t// dark\n\t\"theme\": \"x\"\n}\n"),
        ("opencode", ".config/opencode/opencode.json", "{\n    \"mcp\": {\n        \"a\": {}, // theirs\n    },\n}\n"),
        ("cursor", ".cursor/mcp.json", "{\"mcpServers\":{\"a\":{\"command\":\"x\"}}}"),
        ("vscode", ".config/Code/User/mcp.json", "{\r\n  /* none */\r\n  \"inputs\": []\r\n}\r\n"),
    ] {
        person.write(file, text);
        std::fs::set_permissions(person.file(file), PermissionsExt::from_mode(0o640)).expect("a mode");
        person.ok(&["connect", agent]);
        let with = person.read(file);
        assert!(with.contains(PINFOLD), "{agent}: {with}");
        // Everything is still there, in the same order.
        let mut left = text.chars().filter(|c| !c.is_whitespace()).peekable();
        with.chars().for_each(|c| {
            left.next_if_eq(&c);
        });
        assert_eq!(left.next(), None, "{agent}: {with}");
        person.ok(&["connect", agent, "--undo"]);
        assert_eq!(person.read(file), text, "{agent}");
        let mode = std::fs::metadata(person.file(file)).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o640, "{agent}");
    }
}

#[test]
fn a_broken_or_foreign_configuration_is_left_alone_and_named() {
    let person = Person::new();
    for (agent, file, text, said) in [
        ("codex", ".codex/config.toml", "a = 1\nb = = 2\n", ":2: "),
        ("claude", ".claude.json", "{\n  \"a\": 1,\n}\n", ":3: "),
        ("gemini", ".gemini/settings.json", "{\n  \"mcpServers\": []\n}\n", "`mcpServers` is not an object"),
        ("cursor", ".cursor/mcp.json", "{\n\"mcpServers\": {\n\"pinfold\": {\"command\": \"npx\"}}}", "--name"),
        ("vscode", ".config/Code/User/mcp.json", "{\n\n  \"servers\": {", "the end of the file"),
    ] {
        person.write(file, text);
        let before = person.everything();
        for arguments in [&["connect", agent][..], &["connect", agent, "--undo"]] {
            let cli = person.cli(arguments);
            let is_undone = agent == "gemini" && arguments.contains(&"--undo");
            assert_eq!(cli.code, Some(if is_undone { 0 } else { 2 }), "{arguments:?}: {cli:?}");
            let names = cli.stderr.contains(person.file(file).to_str().expect("text"));
            assert!(is_undone || (names && cli.stderr.contains(said)), "{arguments:?}: {}", cli.stderr);
        }
        assert_eq!(person.everything(), before, "{agent}");
    }
    assert!(person.ok(&["connect", "cursor", "--name", "pen"]).contains("--name pen --undo"));
    let refused = person.cli(&["connect", "cursor", "--hooks"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("--hooks"), "{refused:?}");
}

#[test]
fn links_are_followed_and_kept() {
    let person = Person::new();
    person.write("dotfiles/codex.toml", "model = \"x\"\n");
    std::fs::create_dir(person.file(".codex")).expect("a directory");
    let link = person.file(".codex/config.toml");
    std::os::unix::fs::symlink("../dotfiles/codex.toml", &link).expect("a link");
    person.ok(&["connect", "codex"]);
    assert!(person.read("dotfiles/codex.toml").contains(PINFOLD));
    person.ok(&["connect", "codex", "--undo"]);
    assert_eq!(std::fs::read_link(&link).expect("a link"), Path::new("../dotfiles/codex.toml"));
    assert_eq!(person.read("dotfiles/codex.toml"), "model = \"x\"\n");
}

#[test]
fn print_shows_and_writes_nothing() {
    let person = Person::new();
    let before = person.everything();
    for agent in AGENTS {
        let cli = person.cli(&["connect", agent, "--print"]);
        assert_eq!(command_in(agent, &cli.stdout), [PINFOLD, "mcp"], "{agent}: {cli:?}");
        assert!(cli.code == Some(0) && cli.stderr.contains(person.pinfold.home().to_str().expect("text")), "{cli:?}");
    }
    let line = person.ok(&["--json", "connect", "claude", "--print", "--hooks"]);
    let done: Vec<Value> = line.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((done[0]["what"].as_str(), done[1]["what"].as_str()), (Some("server"), Some("hooks")));
    assert!(done[1]["file"].as_str().is_some_and(|file| file.ends_with("/.claude/settings.json")), "{done:?}");
    assert_eq!(person.everything(), before);
}

#[test]
fn the_given_home_is_written_into_the_configuration() {
    let person = Person::new();
    person.ok(&["connect", "cursor", "--home", "elsewhere"]);
    let home = person.file("work/elsewhere");
    let home = home.to_str().expect("text");
    assert_eq!(command_in("cursor", &person.read(".cursor/mcp.json")), [PINFOLD, "--home", home, "mcp"]);
    let output = person.command(&["connect", "cursor"]).env("PINFOLD_HOME", "/other").output().expect("pinfold");
    assert!(String::from_utf8_lossy(&output.stdout).contains("updated server"));
    assert_eq!(command_in("cursor", &person.read(".cursor/mcp.json")), [PINFOLD, "--home", "/other", "mcp"]);
    // Agents may not pass the variable on, so it is written into the configuration.
    let output = person.command(&["connect", "codex"]).env("XDG_STATE_HOME", "/state").output().expect("pinfold");
    assert!(output.status.success());
    assert!(person.read(".codex/config.toml").contains("env = { XDG_STATE_HOME = \"/state\" }"));
    // If PATH has another name for the same file, that name is written: it survives an upgrade.
    std::os::unix::fs::symlink(PINFOLD, person.file("pinfold")).expect("a link");
    let output = person.command(&["connect", "gemini"]).env("PATH", person.pinfold.home()).output().expect("pinfold");
    assert!(output.status.success());
    let named = person.file("pinfold");
    assert_eq!(command_in("gemini", &person.read(".gemini/settings.json"))[0], named.to_str().expect("text"));
}

#[test]
fn hooks_are_added_and_removed_with_the_server() {
    let person = Person::new();
    let theirs = "{\n  \"hooks\": {\n    \"Stop\": [\n      { \"hooks\": [{ \"type\": \"command\", \"command\": \"say\" }] }\n    ]\n  }\n}\n";
    person.write(".claude/settings.json", theirs);
    let said = person.ok(&["connect", "claude", "--hooks"]);
    assert!(said.contains(".claude.json") && said.contains("settings.json"), "{said}");
    let settings: Value = serde_json::from_str(&person.read(".claude/settings.json")).expect("JSON");
    let command = |event: &str, index: usize| settings["hooks"][event][index]["hooks"][0]["command"].clone();
    let drain = Value::from(format!("{PINFOLD} hook claude drain"));
    assert_eq!((command("SessionStart", 0), command("UserPromptSubmit", 0)), (drain.clone(), drain.clone()));
    assert_eq!((command("Stop", 0), command("Stop", 1)), (Value::from("say"), drain));
    let wake = &settings["hooks"]["PostToolUse"][0];
    assert_eq!(wake["matcher"], "mcp__pinfold__execute");
    assert_eq!(wake["hooks"][0]["asyncRewake"], true);
    assert_eq!(person.ok(&["connect", "claude", "--hooks"]).matches("already connected").count(), 2);
    person.ok(&["connect", "claude", "--hooks", "--undo"]);
    assert_eq!(person.read(".claude/settings.json"), theirs);
    assert!(!person.file(".claude.json").exists());
}

/// The example of docs/own-loop.md, with the scripted model.
#[test]
fn the_example_loop_is_notified_of_the_end() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples");
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: there is no python3");
        return;
    }
    let pinfold = Pinfold::start(PINFOLD);
    let mut model = Command::new("python3");
    model.arg(examples.join("scripted_model.py")).stdin(std::process::Stdio::null());
    let mut model = Running::spawn(model);
    let mut agent = Command::new("python3");
    agent.arg(examples.join("own_loop.py")).arg("build it").env("MODEL_URL", model.line());
    agent.env("PINFOLD", PINFOLD).env("PINFOLD_HOME", pinfold.home());
    let said = Running::spawn(agent).end();
    assert!(said.code == Some(0) && said.stdout.ends_with("failed with exit code 3.\n"), "{said:?}");
    let played = model.end();
    assert_eq!((played.code, played.stdout.as_str()), (Some(0), ""), "{played:?}");
}
