//! The tier with namespaces: what it adds, as root and as an ordinary user, and what it says where it cannot be had.

use std::path::Path;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Outcome, SandboxPart, SandboxTier};
use pinfold_testkit::environments::{Containment, Environment, NOBODY, User, is_root, setup};
use pinfold_testkit::{Pidfd, Pinfold, Setup, alive, until};

use super::{Places, daemons, run, try_start};
use crate::PINFOLD;

/// Daemons that can create namespaces; says so if there is none.
fn able(places: &Places) -> Vec<(Environment, Pinfold)> {
    let is_able = |(environment, pinfold): &(Environment, Pinfold)| match try_start(
        pinfold,
        "true",
        &places.work(),
        "read-only,tier=namespaces",
    ) {
        Ok(_) => true,
        Err(error) => {
            eprintln!("skipped: no namespaces here ({environment}): {}", error.message);
            false
        }
    };
    daemons().into_iter().filter(is_able).collect()
}

/// Makes a repository in `work` that everybody may write, as far as Git's own files go.
fn make_repository(pinfold: &Pinfold, work: &Path) {
    let script = "mkdir .git .git/hooks .git/objects .git/refs && echo 'ref: refs/heads/main' > .git/HEAD && \
                  printf '[core]\\n' > .git/config && echo made";
    assert_eq!(run(pinfold, script, work, None).1, "made\n");
}

/// Ways to change what Git executes. Each prints ESCAPED if it works.
const GIT_ATTACKS: [&str; 10] = [
    "echo x > .git/hooks/pre-commit && echo ESCAPED",
    "echo x >> .git/config && echo ESCAPED",
    "rm -rf .git/hooks; test -e .git/hooks || echo ESCAPED",
    "mv .git/hooks .git/old && echo ESCAPED",
    "mv .git/config .git/old && echo ESCAPED",
    "echo x > new && mv new .git/config && echo ESCAPED",
    "mv .git elsewhere && mkdir -p .git/hooks && echo ESCAPED",
    "ln .git/config hard && echo x >> hard && echo ESCAPED",
    "chmod 777 .git/config && echo ESCAPED",
    "W=$(pwd); echo x >> /proc/self/root$W/.git/config && echo ESCAPED",
];

#[test]
fn what_git_executes_cannot_be_changed() {
    let places = Places::new();
    for (environment, pinfold) in able(&places) {
        for attack in GIT_ATTACKS {
            places.reset();
            make_repository(&pinfold, &places.work());
            let script = format!("({attack}) 2>&1");
            for sandbox in ["workspace-write", "workspace-write,git=read-only"] {
                let (record, text) = run(&pinfold, &script, &places.work(), Some(sandbox));
                assert!(!text.contains("ESCAPED"), "{environment}, {sandbox}, {attack}: {text}");
                assert!(record.sandbox.expect("a sandbox").got.contains(&SandboxPart::Git), "{environment}");
            }
            let free = run(&pinfold, &script, &places.work(), Some("workspace-write,git=writable")).1;
            assert!(free.contains("ESCAPED"), "{environment}: with git=writable, {attack}: {free}");
        }
        places.reset();
        make_repository(&pinfold, &places.work());
        let commit = "echo x > .git/index.lock && mv .git/index.lock .git/index && echo x > .git/refs/new && echo done";
        assert_eq!(run(&pinfold, commit, &places.work(), Some("workspace-write")).1, "done\n", "{environment}");
        let refused = run(&pinfold, commit, &places.work(), Some("workspace-write,git=read-only")).1;
        assert!(!refused.contains("done"), "{environment}: {refused}");
        places.reset();
    }
}

/// No mount can keep a file from being created. Git follows this one, so its creation is noted; git=read-only prevents it.
#[test]
fn a_redirected_repository_is_noted() {
    let places = Places::new();
    for (environment, pinfold) in able(&places) {
        make_repository(&pinfold, &places.work());
        let script = "echo ../evil > .git/commondir && echo ESCAPED";
        let (record, text) = run(&pinfold, script, &places.work(), Some("workspace-write"));
        assert!(text.contains("ESCAPED"), "{environment}: it is said to be possible: {text}");
        let note = record.note.expect("a note");
        assert!(note.contains(".git/commondir` was created"), "{environment}: {note}");
        std::fs::remove_file(places.work().join(".git/commondir")).expect("it was created");
        let (_, text) = run(&pinfold, script, &places.work(), Some("workspace-write,git=read-only"));
        assert!(!text.contains("ESCAPED"), "{environment}: {text}");
        places.reset();
    }
}

/// The workspace inside a wider root can be neither renamed nor replaced with another repository.
#[test]
fn a_repository_inside_a_root_is_protected_if_it_is_the_workspace() {
    let places = Places::new();
    for (environment, pinfold) in able(&places) {
        let inner = places.work().join("inner");
        run(&pinfold, "mkdir inner", &places.work(), None);
        make_repository(&pinfold, &inner);
        let sandbox = format!("workspace-write,write={}", places.work().display());
        for attack in [
            "echo x > .git/hooks/new && echo ESCAPED",
            "mkdir sub && cd sub && echo x > ../.git/config && echo ESCAPED",
            "cd .. && mv inner old && mkdir -p inner/.git/hooks && echo ESCAPED",
        ] {
            let (_, text) = run(&pinfold, &format!("({attack}) 2>&1"), &inner, Some(&sandbox));
            assert!(!text.contains("ESCAPED"), "{environment}, {attack}: {text}");
        }
        let (_, text) = run(&pinfold, "echo x > ../new && echo wrote", &inner, Some(&sandbox));
        assert_eq!(text, "wrote\n", "{environment}");
        places.reset();
    }
}

/// In a worktree `.git` is a file that names the repository.
#[test]
fn the_file_of_a_worktree_cannot_name_another_repository() {
    let places = Places::new();
    for (environment, pinfold) in able(&places) {
        run(&pinfold, "echo 'gitdir: /elsewhere' > .git", &places.work(), None);
        for attack in ["echo 'gitdir: evil' > .git && echo ESCAPED", "rm .git && mkdir .git && echo ESCAPED"] {
            let (_, text) = run(&pinfold, &format!("({attack}) 2>&1"), &places.work(), Some("workspace-write"));
            assert!(!text.contains("ESCAPED"), "{environment}, {attack}: {text}");
        }
        places.reset();
    }
}

#[test]
fn a_link_that_cannot_be_protected_refuses_the_start() {
    let places = Places::new();
    for (environment, pinfold) in able(&places) {
        run(&pinfold, "mkdir .git && ln -s /etc .git/hooks", &places.work(), None);
        let error = try_start(&pinfold, "true", &places.work(), "workspace-write").expect_err("refused").message;
        assert!(error.contains("git=writable") && error.contains("hooks"), "{environment}: {error}");
        let (_, text) = run(&pinfold, "echo ran", &places.work(), Some("workspace-write,git=read-only"));
        assert_eq!(text, "ran\n", "{environment}");
        places.reset();
    }
}

/// Landlock does not see these.
#[test]
fn modes_times_and_attributes_of_files_outside_cannot_be_changed() {
    let places = Places::new();
    for (environment, pinfold) in able(&places) {
        let file = "mine=$OUT/mine; ";
        for attack in [
            "chmod 777 $mine && echo ESCAPED",
            "touch -d 2001-01-01 $mine && echo ESCAPED",
            "chgrp $(id -g) $mine && echo ESCAPED",
            "perl -e 'exit !chmod(0777, \"/proc/self/root$ARGV[0]\")' $mine && echo ESCAPED",
        ] {
            let make = format!("OUT={}; {file} echo x > $mine", places.outside().display());
            run(&pinfold, &make, &places.work(), None);
            let script = format!("OUT={}; {file} ({attack}) 2>&1", places.outside().display());
            let escapes = |sandbox| run(&pinfold, &script, &places.work(), sandbox).1.contains("ESCAPED");
            assert!(escapes(None), "{environment}: without a sandbox, {attack}");
            assert!(!escapes(Some("workspace-write")), "{environment}, {attack}");
            places.reset();
        }
    }
}

#[test]
fn secrets_are_hidden_and_everything_else_is_as_before() {
    let places = Places::new();
    for user in [User::Root, User::Ordinary] {
        let environment = Environment { user, containment: Containment::Walk };
        if user == User::Root && !is_root() {
            continue;
        }
        let drops = user == User::Ordinary && is_root();
        let uid = drops.then_some(NOBODY);
        let home = places.outside();
        let env = vec![("HOME".to_owned(), home.to_str().expect("text").to_owned())];
        let pinfold = Pinfold::start_with(PINFOLD, Setup { env, ..setup("subreaper", uid) });
        if let Err(error) = try_start(&pinfold, "true", &places.work(), "read-only,tier=namespaces") {
            eprintln!("skipped: no namespaces here ({environment}): {}", error.message);
            continue;
        }
        let make = "cd ~ && mkdir -p .ssh .config/gh elsewhere && echo key > .ssh/id && echo token > .netrc && \
                    echo token > .config/gh/hosts && echo key > elsewhere/id && ln -s $HOME/elsewhere .aws && echo plain > plain";
        run(&pinfold, make, &places.work(), None);
        let read = "cat ~/.ssh/id ~/.netrc ~/.config/gh/hosts ~/.aws/id ~/elsewhere/id ~/plain /proc/self/root$HOME/.ssh/id 2>/dev/null";
        let sandbox = "workspace-write,secrets=hidden";
        let (_, text) = run(&pinfold, read, &places.work(), None);
        assert_eq!(text, "key\ntoken\ntoken\nkey\nkey\nplain\nkey\n", "{environment}");
        let (record, text) = run(&pinfold, read, &places.work(), Some(sandbox));
        assert_eq!(text, "plain\n", "{environment}");
        assert!(record.sandbox.expect("a sandbox").got.contains(&SandboxPart::Secrets), "{environment}");
        // Not by way of a process that sees them.
        let (_, text) = run(&pinfold, "cat /proc/$PPID/root$HOME/.ssh/id 2>/dev/null", &places.work(), Some(sandbox));
        assert_eq!(text, "", "{environment}");
        for attack in ["umount ~/.ssh", "nsenter -t $PPID -m true", "unshare -m true", "mount -o remount,rw /"] {
            let (_, text) =
                run(&pinfold, &format!("{attack} 2>/dev/null && echo ESCAPED"), &places.work(), Some(sandbox));
            assert_eq!(text, "", "{environment}, {attack}");
        }
        drop(pinfold);
        places.reset();
    }
}

#[test]
fn no_network_is_a_namespace_of_its_own() {
    let places = Places::new();
    for (environment, pinfold) in able(&places) {
        let namespaces = "readlink /proc/self/ns/net /proc/self/ns/ipc /proc/self/ns/mnt /proc/self/ns/pid";
        let of = |sandbox| -> Vec<String> {
            run(&pinfold, namespaces, &places.work(), sandbox).1.lines().map(str::to_owned).collect()
        };
        let (outside, inside) = (of(None), of(Some("read-only,network=none")));
        assert_eq!(outside.len(), 4, "{environment}: {outside:?}");
        assert!((0..3).all(|index| outside[index] != inside[index]), "{environment}: {outside:?} {inside:?}");
        // The keeper finds, signals and waits for descendants by their pids.
        assert_eq!(outside[3], inside[3], "{environment}");
        let full = of(Some("read-only"));
        assert_eq!(full[0], outside[0], "{environment}");
        assert_eq!(of(Some("read-only,network=none,tier=landlock")), outside, "{environment}");
        let (_, devices) = run(&pinfold, "tail -n +3 /proc/net/dev", &places.work(), Some("read-only,network=none"));
        assert!(devices.lines().all(|line| line.trim_start().starts_with("lo:")), "{environment}: {devices}");
    }
}

#[test]
fn the_record_says_which_tier_it_got() {
    let places = Places::new();
    for (environment, pinfold) in able(&places) {
        let tier = |sandbox: &str| {
            let (record, _) = run(&pinfold, "true", &places.work(), Some(sandbox));
            let shown = record.sandbox.expect("a sandbox");
            (shown.tier, shown.got.contains(&SandboxPart::Metadata), shown.missing)
        };
        assert_eq!(tier("read-only"), (SandboxTier::Namespaces, true, vec![]), "{environment}");
        assert_eq!(tier("read-only,tier=landlock"), (SandboxTier::Landlock, false, vec![]), "{environment}");
        let doctor = pinfold.cli(&["doctor"]);
        assert!(doctor.stdout.contains("namespaces"), "{environment}: {}", doctor.stdout);
    }
}

/// A machine on which namespaces cannot be created: what requires them is refused, and what does not is weaker and says so.
#[test]
fn without_namespaces_the_error_names_what_is_missing_and_the_way_out() {
    let places = Places::new();
    let users = [(is_root(), None), (true, is_root().then_some(NOBODY))];
    for user in users.into_iter().filter(|(possible, _)| *possible).map(|(_, user)| user) {
        let pinfold = without_namespaces(user);
        for (sandbox, part) in [
            ("workspace-write,tier=namespaces", "`git`"),
            ("read-only,secrets=hidden", "`secrets`"),
            ("workspace-write,git=read-only", "`git`"),
        ] {
            let error = try_start(&pinfold, "true", &places.work(), sandbox).expect_err("refused");
            assert_eq!(error.code, ErrorCode::FailedToStart, "{sandbox}");
            assert!(error.message.contains(part) && error.message.contains("missing=best_effort"), "{}", error.message);
            let weak = format!("{sandbox},missing=best_effort");
            let (record, _) = run(&pinfold, "true", &places.work(), Some(&weak));
            let shown = record.sandbox.expect("a sandbox");
            assert_eq!(shown.tier, SandboxTier::Landlock);
            assert!(!shown.missing.is_empty() && shown.label.contains("best effort"), "{sandbox}: {shown:?}");
        }
        let script = "echo x > f; echo x > ../outside/new";
        let (record, text) = run(&pinfold, script, &places.work(), Some("workspace-write"));
        let shown = record.sandbox.expect("a sandbox");
        assert_eq!((shown.tier, shown.missing), (SandboxTier::Landlock, vec![]), "{text}");
        assert!(places.is_untouched());
        let mut check = pinfold.command(&["sandbox", "check", "read-only,secrets=hidden,missing=best_effort"]);
        let check = check.current_dir(places.work()).output().expect("it runs");
        let text = String::from_utf8_lossy(&check.stdout).into_owned();
        assert!(!check.status.success() && text.contains("tier landlock"), "{text}");
        let findings = pinfold.block(pinfold.client().doctor()).expect("it answers").findings;
        let finding = findings.iter().find(|finding| finding.topic == "sandbox").expect("a finding");
        assert!(finding.text.contains("secrets"), "{finding:?}");
        assert!(finding.remedy.as_ref().is_some_and(|remedy| remedy.contains("seccomp profile")), "{finding:?}");
        places.reset();
    }
}

/// A daemon that may not call unshare, as in a container with Docker's default profile.
fn without_namespaces(user: Option<u32>) -> Pinfold {
    // prctl(PR_SET_NO_NEW_PRIVS), then seccomp with a filter of four instructions: if the call is unshare, EPERM.
    const REFUSE: &str = "my ($unshare, $prctl, $seccomp) = `uname -m` =~ /x86/ ? (272, 157, 317) : (97, 167, 277); \
        my $code = pack('SCCL' x 4, 0x20, 0, 0, 0, 0x15, 0, 1, $unshare, 0x06, 0, 0, 0x50001, 0x06, 0, 0, 0x7fff0000); \
        my $program = pack('S x6 P', 4, $code); \
        syscall($prctl, 38, 1, 0, 0, 0) == 0 && syscall($seccomp, 1, 0, $program) == 0 or die $!; exec @ARGV";
    let pinfold = Pinfold::prepare(PINFOLD, setup("subreaper", user));
    let start = pinfold.command(&["daemon", "start"]);
    let mut inside = std::process::Command::new("perl");
    inside.args(["-e", REFUSE]).arg(start.get_program()).args(start.get_args());
    inside.envs(start.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir("/");
    let started = inside.output().expect("perl");
    assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
    pinfold
}

/// What contains a tree works across the user namespace: strays are listed and stopped, and a dead keeper leaves nothing.
#[test]
fn a_tree_is_contained_as_without_namespaces() {
    let places = Places::new();
    for (environment, pinfold) in able(&places) {
        let sandbox = Some("workspace-write,network=none");
        let script = "setsid -f sleep 31418; sleep 31419";
        let id = pinfold.start_request(&super::request(script, &places.work(), sandbox)).record.id;
        let tree = pinfold.until_tree(&id, 3);
        assert_eq!(tree.len(), 3, "{environment}");
        let stopped = pinfold.stop(&id);
        assert!(stopped.survivors.is_empty(), "{environment}: {stopped:?}");
        let id = pinfold.start_request(&super::request(script, &places.work(), sandbox)).record.id;
        let tree = pinfold.until_tree(&id, 3);
        let keeper = pinfold.keeper_pid(&id);
        Pidfd::open(keeper).expect("a keeper").kill();
        until("it is recorded as lost", || matches!(pinfold.show(&id).outcome, Some(Outcome::Lost { .. })));
        for pid in tree {
            until("nothing is left", || !alive(pid));
        }
    }
}
