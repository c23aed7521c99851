//! A file system that is really full: a small tmpfs, if we may mount one.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pinfold_model::facts::Fact;
use pinfold_model::id::ProcessId;
use pinfold_model::units::Moment;
use pinfold_store::Durability;
use pinfold_store::layout::ProcessDir;
use pinfold_store::marks::Stream;
use pinfold_store::output::OutputWriter;
use pinfold_store::reader::OutputReader;
use pinfold_store::record::{RecordError, RecordWriter, read_record};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

const START: Moment = Moment(1_000_000_000);

/// A small tmpfs, unmounted when dropped.
struct Small(PathBuf);

impl Small {
    /// `None`, with a line that says so, where mounting is not allowed.
    fn mount(name: &str) -> Option<Self> {
        let path = std::env::temp_dir().join(format!("pinfold-store-full-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("mount point");
        match mount("tmpfs", &path, "tmpfs", MountFlags::NOSUID, c"size=256k,mode=700") {
            Ok(()) => Some(Self(path)),
            Err(errno) => {
                println!("skipped: no tmpfs can be mounted here ({errno})");
                std::fs::remove_dir(&path).expect("removed");
                None
            }
        }
    }

    fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let file = std::fs::File::create(&path).expect("filler");
        let mut at = 0;
        while let Ok(written @ 1..) = file.write_at(&[1; 4096], at) {
            at += written as u64;
        }
        path
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn read_whole(dir: &Path, end: u64) -> (Vec<u8>, u64) {
    let reader = OutputReader::open(dir).with_known_end(Some(end));
    let (mut bytes, mut missing, mut cursor) = (Vec::new(), 0, 0);
    while cursor < end {
        let piece = reader.read(cursor, 50_000).expect("read");
        assert!(piece.next > cursor);
        missing += piece.gap.map_or(0, |gap| gap.end - gap.start);
        bytes.extend(piece.bytes);
        cursor = piece.next;
    }
    (bytes, missing)
}

#[test]
fn a_full_disk_costs_counted_bytes_and_capture_goes_on_when_there_is_room() {
    let Some(small) = Small::mount("output") else { return };
    let mut writer = OutputWriter::new(&small.0, 64 << 20, START);
    writer.append(Stream::Stdout, &[b'a'; 10_000], START);
    let filler = small.fill();
    for _ in 0..100 {
        writer.append(Stream::Stderr, &[b'b'; 1000], START);
    }
    let lost = writer.lost();
    assert_eq!(writer.total(), 110_000);
    assert!((90_000..=100_000).contains(&lost), "{lost}");

    std::fs::remove_file(filler).expect("room");
    writer.append(Stream::Stdout, &[b'c'; 5000], START);
    assert_eq!((writer.total(), writer.lost()), (115_000, lost));
    let (bytes, missing) = read_whole(&small.0, writer.total());
    assert_eq!(missing, lost);
    assert_eq!(bytes.len() as u64 + missing, 115_000);
    assert!(bytes[..10_000].iter().all(|&byte| byte == b'a'));
    assert!(bytes[bytes.len() - 5000..].iter().all(|&byte| byte == b'c'));
    assert!(bytes[10_000..bytes.len() - 5000].iter().all(|&byte| byte == b'b'), "and nothing else");
    let files = std::fs::read_dir(&small.0).expect("dir").count();
    assert!(files < 10, "{files} files");
}

#[test]
fn a_fact_that_found_no_room_is_written_when_there_is_some() {
    let Some(small) = Small::mount("record") else { return };
    let dir = ProcessDir::prepare(&small.0, &ProcessId::from_number(1, 1)).expect("prepared");
    let mut writer = RecordWriter::new(&dir, Durability::Programs);
    let filler = small.fill();
    // Longer than a page: a full tmpfs takes none of it, a full ext4 a part.
    let fact = Fact::Lost { evidence: "x".repeat(10_000), at: START };
    writer.append(&fact).expect_err("no room");
    assert!(matches!(read_record(dir.path()), Err(RecordError::Empty { .. })));
    std::fs::remove_file(filler).expect("room");
    writer.append(&fact).expect("room");
    let size = std::fs::metadata(dir.path().join("record")).expect("record").len();
    assert!(size > 10_000);
    writer.append(&fact).expect_err("one end only");
}
