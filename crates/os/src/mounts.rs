//! Where the cgroup hierarchies are mounted, and which cgroup we are in. Read-only.

use std::fs::File;
use std::path::{Component, Path, PathBuf};

/// `f_type` of cgroup v1 and v2 in statfs.
const CGROUP_SUPER_MAGIC: rustix::fs::FsWord = 0x0027_e0eb;
pub(crate) const CGROUP2_SUPER_MAGIC: rustix::fs::FsWord = 0x6367_7270;

/// A mounted hierarchy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The cgroup that is visible at the mount point.
    pub(crate) root: String,
    pub(crate) point: PathBuf,
}

/// The hierarchy to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hierarchy<'a> {
    V2,
    /// The v1 hierarchy with this controller.
    V1(&'a str),
}

/// The v2 hierarchy.
pub(crate) fn find_v2() -> Option<Mount> {
    find(Hierarchy::V2)
}

/// Our own cgroup in the v2 hierarchy, as the kernel names it.
pub(crate) fn own_v2() -> Option<String> {
    own(Hierarchy::V2)
}

/// Our own cgroup in the v2 hierarchy and its ancestors, nearest first, as far as the mount shows them.
pub(crate) fn own_v2_places() -> Vec<PathBuf> {
    let Some(mount) = find_v2() else { return vec![] };
    let below = own_v2().and_then(|own| visible_below(&mount.root, &own));
    below.map_or(vec![], |below| below.ancestors().map(|place| mount.point.join(place)).collect())
}

/// Our own cgroup in the v1 hierarchy of a controller.
pub(crate) fn own_v1_place(controller: &str) -> Option<PathBuf> {
    let mount = find(Hierarchy::V1(controller))?;
    let below = visible_below(&mount.root, &own(Hierarchy::V1(controller))?)?;
    Some(mount.point.join(below))
}

fn find(wanted: Hierarchy<'_>) -> Option<Mount> {
    let magic = if wanted == Hierarchy::V2 { CGROUP2_SUPER_MAGIC } else { CGROUP_SUPER_MAGIC };
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    String::from_utf8_lossy(&table).lines().filter_map(|line| parse_mount(line, wanted)).find(|mount| {
        // The table also lists mounts that are hidden under others, so check what is really at the path.
        let status = File::open(&mount.point).ok().and_then(|dir| rustix::fs::fstatfs(&dir).ok());
        status.is_some_and(|status| status.f_type == magic)
    })
}

/// Parses `id parent major:minor root point options [optional…] - type source options`; `None` for other hierarchies.
fn parse_mount(line: &str, wanted: Hierarchy<'_>) -> Option<Mount> {
    let (place, kind) = line.split_once(" - ")?;
    let mut kind = kind.split(' ');
    let (name, options) = (kind.next()?, kind.nth(1).unwrap_or_default());
    let matches = match wanted {
        Hierarchy::V2 => name == "cgroup2",
        Hierarchy::V1(controller) => name == "cgroup" && options.split(',').any(|option| option == controller),
    };
    let mut fields = place.split(' ').skip(3);
    let mount = Mount { root: unescape(fields.next()?), point: unescape(fields.next()?).into() };
    matches.then_some(mount)
}

/// Decodes the kernel's octal escapes of space, tab, newline and backslash.
fn unescape(text: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.iter().fold(text.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}

fn own(wanted: Hierarchy<'_>) -> Option<String> {
    let lines = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    lines.lines().find_map(|line| parse_own(line, wanted))
}

/// Parses `number:controllers:path`; `None` for other hierarchies.
fn parse_own(line: &str, wanted: Hierarchy<'_>) -> Option<String> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let matches = match wanted {
        Hierarchy::V2 => number == "0" && controllers.is_empty(),
        Hierarchy::V1(controller) => controllers.split(',').any(|name| name == controller),
    };
    matches.then(|| path.to_owned())
}

/// Our own cgroup relative to the mount point; `None` if it is not visible there.
pub(crate) fn visible_below(root: &str, own: &str) -> Option<PathBuf> {
    let below = Path::new(own).strip_prefix(root).ok()?;
    let is_plain = below.components().all(|part| matches!(part, Component::Normal(_)));
    let root_is_visible = !Path::new(root).components().any(|part| part == Component::ParentDir);
    (is_plain && root_is_visible && own.starts_with('/')).then(|| below.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hierarchy_is_found_wherever_it_is() {
        let line = "41 31 0:38 /box /a\\040b/c rw,relatime shared:9 master:1 - cgroup2 cgroup2 rw,nsdelegate";
        let mount = parse_mount(line, Hierarchy::V2).expect("a cgroup2 mount");
        assert_eq!((mount.root.as_str(), mount.point.as_path()), ("/box", Path::new("/a b/c")));
        let v1 = "37 31 0:34 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct";
        let at = |controller| parse_mount(v1, Hierarchy::V1(controller)).map(|mount| mount.point);
        assert_eq!(at("cpu"), Some("/sys/fs/cgroup/cpu,cpuacct".into()));
        assert_eq!((at("pids"), parse_mount(v1, Hierarchy::V2)), (None, None));
        assert!(parse_mount("garbage", Hierarchy::V2).is_none());
    }

    #[test]
    fn our_own_place_is_that_of_the_hierarchy_asked_for() {
        let lines = ["8:pids:/", "4:memory:/a:b/c", "1:cpu,cpuacct:/d", "0::/e"];
        let own = |wanted| lines.iter().find_map(|line| parse_own(line, wanted));
        assert_eq!(own(Hierarchy::V2).as_deref(), Some("/e"));
        assert_eq!(own(Hierarchy::V1("memory")).as_deref(), Some("/a:b/c"));
        assert_eq!(own(Hierarchy::V1("cpu")).as_deref(), Some("/d"));
        assert_eq!(own(Hierarchy::V1("io")), None);
    }

    #[test]
    fn only_a_place_below_the_mounted_root_is_used() {
        let below = |root, own| visible_below(root, own);
        assert_eq!(below("/", "/"), Some(PathBuf::new()));
        assert_eq!(below("/", "/user.slice/a"), Some(PathBuf::from("user.slice/a")));
        assert_eq!(below("/box", "/box/a"), Some(PathBuf::from("a")));
        for (root, own) in [("/box", "/boxes"), ("/", "/../x"), ("/..", "/../x"), ("/", ""), ("/box", "/")] {
            assert_eq!(below(root, own), None, "{root} {own}");
        }
    }
}
