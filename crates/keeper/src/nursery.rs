//! The small parent of keepers: a program of one thread that forks a keeper for each socket it is sent.
//!
//! A keeper forked from here shares its pages with all others and needs no exec (docs/design/keeper.md).
//! The nursery ends with its daemon; keepers do not.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use pinfold_model::link::{self, DaemonLaunch, FRAME_MOST, FromKeeper, NurserySetup};
use pinfold_os::cgroup::{self, Base};
use pinfold_os::daemonize::{self, Fork};
use pinfold_os::{fsio, socket};

use crate::keeper::Keeper;
use crate::launch::Inherited;

/// What every keeper of this nursery is born with.
#[derive(Debug)]
pub(crate) struct Birthright {
    pub(crate) home: PathBuf,
    pub(crate) durable_over_power_loss: bool,
    pub(crate) cgroups: Option<Base>,
    pub(crate) inherited: Inherited,
    /// How to start the next daemon.
    pub(crate) daemon: Option<DaemonLaunch>,
}

/// The program `pinfold nursery`: standard input is the socket of the daemon that started it.
pub fn main() -> ! {
    let code = match run() {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("pinfold nursery: {error}");
            1
        }
    };
    std::process::exit(code)
}

fn run() -> std::io::Result<()> {
    let stdin = std::io::stdin();
    let daemon = stdin.as_fd().try_clone_to_owned()?;
    daemonize::close_all_but(daemon.as_fd());
    daemonize::leave_session();
    daemonize::default_signals();
    daemonize::block_group_signals()?;
    let setup = read_setup(daemon.as_fd())?;
    let birthright = Birthright {
        cgroups: setup.cgroup_name.as_deref().and_then(|name| cgroup::open_base(name).ok()),
        home: setup.home,
        durable_over_power_loss: setup.durable_over_power_loss,
        inherited: Inherited::look(),
        daemon: setup.daemon,
    };
    replace_stdio()?;
    daemonize::ignore_children();
    daemonize::trim_memory();
    while let Some(link) = socket::receive_fd(daemon.as_fd())? {
        match daemonize::fork() {
            Ok(Fork::Child) => {
                drop(daemon);
                keep(&birthright, link);
            }
            Ok(_) => {}
            // The socket that was meant for the keeper says why there is none, and closes.
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or_default();
                let _ =
                    std::os::unix::net::UnixStream::from(link).write_all(&link::encode(&FromKeeper::Unborn { errno }));
            }
        }
    }
    Ok(())
}

/// The rest of a keeper's life.
fn keep(birthright: &Birthright, link: OwnedFd) -> ! {
    daemonize::leave_session();
    // SIGCHLD is no longer ignored: this program waits for its children.
    daemonize::default_child_signal();
    let code = match Keeper::open(birthright, link) {
        Ok(mut keeper) => i32::from(keeper.run().is_err()),
        Err(_) => 1,
    };
    if let Some(base) = &birthright.cgroups {
        base.remove_if_empty();
    }
    std::process::exit(code)
}

fn read_setup(daemon: BorrowedFd<'_>) -> std::io::Result<NurserySetup> {
    let mut header = [0; link::HEADER];
    socket::read_exact(daemon, &mut header)?;
    let length = u32::from_le_bytes(header) as usize;
    if length > FRAME_MOST {
        return Err(std::io::Error::other(link::BadFrame::TooLong(length)));
    }
    let mut frame = vec![0; length];
    socket::read_exact(daemon, &mut frame)?;
    Ok(serde_json::from_slice(&frame)?)
}

/// Standard streams to nowhere: nobody reads what a keeper would print.
fn replace_stdio() -> std::io::Result<()> {
    fsio::point_stdio_at(fsio::dev_null()?.as_fd())
}
