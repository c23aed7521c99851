//! What sandboxes, floors and their text mean.

use super::*;

fn parts(text: &str) -> SandboxParts {
    SandboxRequest::Text(text.into()).parse("/home/ann").expect("a sandbox")
}

fn sandbox(text: &str) -> Sandbox {
    Sandbox::of(&parts(text), Path::new("/work"), None).expect("not off")
}

fn bad(text: &str) -> String {
    SandboxRequest::Text(text.into()).parse("/home/ann").expect_err("refused").to_string()
}

#[test]
fn text_and_parts_mean_the_same() {
    let text = parts("workspace-write,network=leased,connect=5432,write=~/data,env=PATH,env=LC_*,unix=any,tmp=shared");
    let json = r#"{"profile":"workspace-write","network":"leased","connect":[5432],"write":["/home/ann/data"],
                   "env":["PATH","LC_*"],"unix":"any","tmp":"shared"}"#;
    let SandboxRequest::Parts(object) = serde_json::from_str(json).expect("parts") else { panic!("not text") };
    assert_eq!(text, object);
    let rendered = sandbox("workspace-write,network=none,missing=best_effort").render();
    assert_eq!(rendered, "workspace-write,write=/work,network=none,missing=best_effort");
    assert_eq!(sandbox(&rendered), sandbox("workspace-write,network=none,missing=best_effort"));
}

#[test]
fn what_cannot_be_used_is_refused_with_the_way_out() {
    for (text, way_out) in [
        ("", "read-only"),
        ("tight", "workspace-write"),
        ("read-only,network=some", "leased"),
        ("read-only,speed=9", "write=DIR"),
        ("read-only,connect=80,network=none", "network=leased"),
        ("read-only,connect=x", "port"),
        ("read-only,write=data", "absolute"),
        ("off,network=none", "leave out"),
        ("read-only,missing=ok", "best_effort"),
        ("read-only,tier=bwrap", "namespaces"),
        ("read-only,git=yes", "protected"),
        ("read-only,secrets=no", "hidden"),
        ("read-only,tier=landlock,secrets=hidden", "leave out one"),
        ("workspace-write,tier=landlock,git=protected", "leave out one"),
        ("off,tier=auto", "leave out"),
    ] {
        assert!(bad(text).contains(way_out), "{text}: {}", bad(text));
    }
    assert!(bad(&format!("read-only{}", ",write=/a".repeat(MAX_WRITE_ROOTS + 1))).contains("32"));
}

#[test]
fn the_working_directory_belongs_to_the_workspace_alone() {
    assert_eq!(sandbox("read-only").write, Vec::<PathBuf>::new());
    assert_eq!(sandbox("workspace-write").write, [PathBuf::from("/work")]);
    assert_eq!(sandbox("workspace-write,write=/").write, [PathBuf::from("/")]);
    assert!(sandbox("workspace-write").may_write(Path::new("/work/a")));
    assert!(!sandbox("workspace-write").may_write(Path::new("/workshop")));
    assert_eq!(Sandbox::of(&parts("off"), Path::new("/work"), None), None);
}

#[test]
fn what_the_kernel_lacks_refuses_the_start_unless_best_effort_is_asked_for() {
    let old = Kernel { landlock_abi: 4, seccomp: true, namespaces: false };
    let NotEnforceable(missing) = sandbox("read-only").enforcement(old).expect_err("refused");
    assert_eq!(missing, [Part::Devices, Part::Signals]);
    let error = NotEnforceable(missing.clone()).to_string();
    assert!(error.contains("`signals` needs Linux 6.12") && error.contains("missing=best_effort"), "{error}");
    let weak = sandbox("read-only,missing=best_effort").enforcement(old).expect("accepted");
    assert_eq!((weak.missing.clone(), weak.landlock_abi), (missing, 4));
    assert!(weak.label().contains("best effort: devices, signals not enforced"), "{}", weak.label());
    let new = Kernel { landlock_abi: 6, seccomp: true, namespaces: true };
    let whole = sandbox("workspace-write,unix=any,network=leased,secrets=hidden").enforcement(new).expect("enforced");
    let but_network: Vec<_> = Part::ALL.into_iter().filter(|part| *part != Part::NetworkNamespace).collect();
    assert_eq!((whole.got, whole.missing.len()), (but_network, 0));
    let none = sandbox("read-only,missing=best_effort").enforcement(Kernel::default()).expect("accepted");
    assert!(none.got.is_empty());
}

/// L9: every part that a start may widen is compared with the floor.
#[test]
fn l9_a_floor_only_tightens() {
    let of = |text: &str| Floor::from(&sandbox(text));
    let check = |floor: &Floor, text: &str| {
        let asked = Sandbox::of(&parts(text), Path::new("/work/sub"), Some(floor)).expect("not off");
        floor.check(&asked, "its floor").map_err(|looser| looser.part)
    };
    let floor = of("workspace-write,network=none,env=PATH,env=LC_*");
    assert_eq!(check(&floor, "read-only"), Ok(()));
    assert_eq!(check(&floor, "workspace-write"), Ok(()));
    assert_eq!(check(&floor, "workspace-write,env=LC_ALL,network=none"), Ok(()));
    for (text, part) in [
        ("workspace-write,write=/", "write"),
        ("read-only,write=/workshop", "write"),
        ("read-only,network=full", "network"),
        ("read-only,network=leased", "network"),
        ("read-only,unix=any", "unix"),
        ("read-only,env=*", "env"),
        ("read-only,env=HOME", "env"),
        ("read-only,tmp=shared", "tmp"),
        ("read-only,missing=best_effort", "missing"),
        ("read-only,tier=landlock", "tier"),
        ("workspace-write,git=writable", "git"),
    ] {
        assert_eq!(check(&floor, text), Err(part), "{text}");
    }
    let hidden = of("read-only,tier=namespaces,secrets=hidden,git=read-only");
    for (text, result) in [
        ("read-only", Ok(())),
        ("read-only,tier=auto", Err("tier")),
        ("read-only,secrets=visible", Err("secrets")),
        ("read-only,git=protected", Err("git")),
    ] {
        assert_eq!(check(&hidden, text), result, "{text}");
    }
    assert_eq!(check(&of("workspace-write,tier=landlock"), "workspace-write,tier=landlock"), Ok(()));
    let leased = of("read-only,network=leased,connect=80");
    assert_eq!(check(&leased, "read-only,network=leased,connect=81"), Err("connect"));
    assert_eq!(check(&leased, "read-only"), Ok(()));
}

#[test]
fn two_floors_allow_what_both_allow() {
    let wide = Floor::from(&parts("workspace-write,unix=any"));
    assert_eq!(wide.write, None);
    let deep = Floor::from(&sandbox("workspace-write,network=leased,connect=80,write=/data/a,env=LC_*,env=HOME"));
    let other = Floor::from(&sandbox("read-only,write=/data,write=/work/x,network=leased,connect=80,connect=81,env=*"));
    let met = wide.meet(&deep).meet(&other);
    assert_eq!(met.write, Some(vec!["/data/a".into(), "/work/x".into()]));
    assert_eq!((met.network, met.connect.clone(), met.unix), (Network::Leased, vec![80], UnixSockets::None));
    assert_eq!(met.env, Some(vec!["HOME".to_owned()]));
    let widest = met.widest(Path::new("/elsewhere"));
    assert_eq!(met.check(&widest, "its floor"), Ok(()));
    assert_eq!(wide.widest(Path::new("/elsewhere")).write, [PathBuf::from("/elsewhere")]);
}

#[test]
fn the_environment_passes_only_what_is_listed() {
    let listed = sandbox("read-only,env=PATH,env=LC_*");
    assert!(listed.passes("PATH") && listed.passes("LC_ALL") && !listed.passes("GITHUB_TOKEN"));
    assert!(sandbox("read-only").passes("GITHUB_TOKEN"));
    assert!(!sandbox("read-only,env=").passes("PATH"));
}

#[test]
fn a_hint_names_what_is_allowed() {
    let kernel = Kernel { landlock_abi: 6, seccomp: true, namespaces: true };
    let enforcement = sandbox("workspace-write,network=none").enforcement(kernel).expect("enforced");
    let hint = enforcement.hint(None);
    for word in ["workspace-write", "`/work`", "$TMPDIR", "no network", "no Unix sockets", ".git/hooks"] {
        assert!(hint.contains(word), "{hint}");
    }
    let mut refusals = Refusals::default();
    assert_eq!(refusals.render(), None);
    for call in [RefusedCall::UnixSocket, RefusedCall::Mount, RefusedCall::UnixSocket] {
        refusals.count(call);
    }
    let hint = enforcement.hint(Some(&refusals));
    assert!(hint.contains("The sandbox refused Unix sockets (2 times), mounts (once). "), "{hint}");
}

/// With the tier `auto`, what namespaces add is there where they are; what is asked for by name is required.
#[test]
fn the_tier_is_what_the_machine_gives() {
    let (without, with) = (
        Kernel { landlock_abi: 7, seccomp: true, namespaces: false },
        Kernel { landlock_abi: 7, seccomp: true, namespaces: true },
    );
    let got = |text: &str, kernel| {
        let enforcement = sandbox(text).enforcement(kernel).map_err(|NotEnforceable(missing)| missing)?;
        Ok((enforcement.tier, enforcement.got.contains(&Part::Git), enforcement.missing))
    };
    assert_eq!(got("workspace-write", with), Ok((Tier::Namespaces, true, vec![])));
    assert_eq!(got("workspace-write", without), Ok((Tier::Landlock, false, vec![])));
    assert_eq!(got("workspace-write,tier=landlock", with), Ok((Tier::Landlock, false, vec![])));
    assert_eq!(got("workspace-write,git=writable", with), Ok((Tier::Namespaces, false, vec![])));
    assert_eq!(got("read-only,git=read-only", without), Ok((Tier::Landlock, false, vec![])));
    assert_eq!(got("workspace-write,git=read-only", without), Err(vec![Part::Git]));
    assert_eq!(got("read-only,secrets=hidden", without), Err(vec![Part::Secrets]));
    let all = vec![Part::Metadata, Part::Git, Part::NetworkNamespace, Part::Ipc];
    assert_eq!(got("workspace-write,tier=namespaces,network=none", without), Err(all.clone()));
    let weak = "workspace-write,tier=namespaces,network=none,missing=best_effort";
    assert_eq!(got(weak, without), Ok((Tier::Landlock, false, all)));
}

/// A record from before there were tiers is one without namespaces.
#[test]
fn an_older_record_has_the_tier_landlock() {
    let old = r#"{"profile":"workspace-write","write":["/work"],"network":"full","unix":"none","tmp":"own","missing":"refuse"}"#;
    let read: Sandbox = serde_json::from_str(old).expect("a sandbox");
    assert_eq!((read.tier, read.git, read.secrets), (TierChoice::Landlock, GitAccess::Writable, Secrets::Visible));
    assert_eq!(
        SandboxRequest::Parts((&read).into()).parse("/home/ann").expect("valid").tier,
        Some(TierChoice::Landlock)
    );
}

#[test]
fn a_path_is_guessed_only_beside_an_error_and_outside_of_the_roots() {
    let kernel = Kernel { landlock_abi: 6, seccomp: true, namespaces: true };
    let enforcement = sandbox("workspace-write").enforcement(kernel).expect("enforced");
    let guess = |output: &str| enforcement.guess_paths(output, Path::new("/work"), Some(Path::new("/home/tmp")));
    for (output, path) in [
        ("touch: cannot touch '/etc/x': Permission denied\n", "/etc/x"),
        ("/bin/sh: 1: cannot create /etc/x: Read-only file system", "/etc/x"),
        ("cp: cannot create regular file ‘/etc/x’: Permission denied", "/etc/x"),
        ("open /etc/x: permission denied", "/etc/x"),
        ("PermissionError: [Errno 13] Permission denied: '/etc/x'", "/etc/x"),
        ("Error: EACCES: permission denied, open '/etc/x'", "/etc/x"),
        ("mv: cannot move 'a' to '/etc/x': Operation not permitted", "/etc/x"),
        ("error: could not lock config file .git/config: Read-only file system", "/work/.git/config"),
    ] {
        assert_eq!(guess(output), [PathBuf::from(path)], "{output}");
    }
    for output in [
        "",
        "all well with /etc/x",
        "touch: cannot touch 'a': Permission denied",
        "touch: cannot touch '/work/a': Permission denied",
        "touch: cannot touch '/home/tmp/a': Permission denied",
        "touch: cannot touch '/work/../etc': Permission denied",
        "ignore what '/was said; do this' says: Permission denied",
        "Permission denied",
        "’: Permission denied: ’",
    ] {
        assert_eq!(guess(output), Vec::<PathBuf>::new(), "{output}");
    }
    let read_only = sandbox("read-only").enforcement(kernel).expect("enforced");
    let output = "Error: EACCES: permission denied, open '/etc/x'\nPermissionError: [Errno 13] Permission denied: 'a'";
    let paths = read_only.guess_paths(output, Path::new("/work"), None);
    assert_eq!(paths, [PathBuf::from("/work/a"), PathBuf::from("/etc/x")], "no other word is taken for a file");
    let many: String = (0..9).map(|n| format!("cannot write '/etc/{n}': Permission denied\n")).collect();
    assert_eq!(guess(&many).len(), MAX_GUESSED_PATHS);
}
