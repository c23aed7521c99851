//! The sessions of agents that use pinfold, as they are kept: which client in which directory stands behind an owner, and which
//! server processes serve it. One small file that is replaced whole.
//!
//! Invariant S10, *no older state of the sessions is read after a write that failed*: what cannot be written takes the file away, so
//! that the next daemon knows of no session, rather than of one as ended that has a server again.

use std::collections::BTreeMap;
use std::io;

use pinfold_model::units::Moment;
use serde::{Deserialize, Serialize};

use crate::layout::{Home, replace_file};

/// The version of the file's format.
const SESSIONS_FORMAT: u32 = 1;
/// A larger file is not one of ours.
const MAX_FILE_SIZE: u64 = 16 << 20;

/// One session, by its owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSession {
    /// The client program, as it names itself.
    pub client: String,
    /// The directory that its server was started in.
    pub directory: String,
    /// The server processes that serve it.
    pub servers: Vec<KeptProcess>,
    /// The client programs that started them. One may still run after its server exited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<KeptProcess>,
    /// When the last of them was seen to have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Moment>,
}

/// A process. Together with its boot, this names no other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptProcess {
    pub pid: u32,
    pub start_time: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    format: u32,
    boot_id: String,
    sessions: BTreeMap<String, KeptSession>,
}

/// The sessions that an earlier daemon knew. Processes of an earlier boot have ended with it.
pub fn read_sessions(home: &Home, boot_id: &str) -> io::Result<BTreeMap<String, KeptSession>> {
    let path = home.sessions();
    match std::fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
        Ok(file) if file.len() > MAX_FILE_SIZE => return Err(io::Error::other("it is too large to be pinfold's")),
        Ok(_) => {}
    }
    let mut content: Content = serde_json::from_slice(&std::fs::read(&path)?).map_err(io::Error::other)?;
    if content.format != SESSIONS_FORMAT {
        let format = content.format;
        return Err(io::Error::other(format!("it is of format {format}, this pinfold knows {SESSIONS_FORMAT}")));
    }
    if content.boot_id != boot_id {
        for session in content.sessions.values_mut() {
            session.servers.clear();
            session.programs.clear();
        }
    }
    Ok(content.sessions)
}

/// Replaces what is kept. If it cannot be written, nothing is kept.
pub fn commit_sessions(home: &Home, boot_id: &str, sessions: &BTreeMap<String, KeptSession>) -> io::Result<()> {
    let content = Content { format: SESSIONS_FORMAT, boot_id: boot_id.to_owned(), sessions: sessions.clone() };
    let json = serde_json::to_vec(&content).map_err(io::Error::other)?;
    replace_file(&home.sessions(), &json, home.durability()).inspect_err(|_| {
        let _ = std::fs::remove_file(home.sessions());
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, mode_of};

    fn sessions() -> BTreeMap<String, KeptSession> {
        let (servers, programs) =
            (vec![KeptProcess { pid: 7, start_time: 70 }], vec![KeptProcess { pid: 6, start_time: 60 }]);
        let session = KeptSession { client: "c".into(), directory: "/d".into(), servers, programs, ended: None };
        [("mcp-1".to_owned(), session)].into()
    }

    #[test]
    fn sessions_are_read_back_and_are_private() {
        let home = Scratch::home();
        assert_eq!(read_sessions(&home, "boot").expect("none yet"), BTreeMap::new());
        commit_sessions(&home, "boot", &sessions()).expect("written");
        assert_eq!(read_sessions(&home, "boot").expect("read"), sessions());
        assert_eq!(mode_of(&home.sessions()), 0o600);
        std::fs::write(home.sessions(), r#"{"format":9,"boot_id":"boot","sessions":{}}"#).expect("written");
        assert!(read_sessions(&home, "boot").is_err(), "a newer format");
        std::fs::write(home.sessions(), "{").expect("written");
        assert!(read_sessions(&home, "boot").is_err(), "damage");
    }

    #[test]
    fn a_server_of_an_earlier_boot_has_ended() {
        let home = Scratch::home();
        commit_sessions(&home, "boot", &sessions()).expect("written");
        let read = read_sessions(&home, "another boot").expect("read");
        assert!(read["mcp-1"].servers.is_empty() && read["mcp-1"].programs.is_empty());
        assert_eq!(read["mcp-1"].directory, "/d");
    }

    #[test]
    fn s10_no_older_state_of_the_sessions_is_read_after_a_write_that_failed() {
        let home = Scratch::home();
        commit_sessions(&home, "boot", &sessions()).expect("written");
        // A directory where the fresh file is to be: it cannot be written, not even by root.
        std::fs::create_dir(home.root().join(format!("sessions.new-{}", std::process::id()))).expect("made");
        assert!(commit_sessions(&home, "boot", &sessions()).is_err());
        assert_eq!(read_sessions(&home, "boot").expect("none"), BTreeMap::new());
    }
}
