//! The parent of keepers: a small single-threaded program that forks a keeper for each socket it receives.
//!
//! Forked keepers share memory pages and need no exec (docs/design/keeper.md). The nursery ends with its daemon;
//! keepers do not.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use pinfold_model::link::{self, DaemonLaunch, FromKeeper, MAX_FRAME, NurserySetup};
use pinfold_os::cgroup::{self, Base};
use pinfold_os::daemonize::{self, Fork};
use pinfold_os::{fsio, socket};

use crate::keeper::Keeper;
use crate::launch::Inherited;

/// Settings that all keepers of this nursery share.
#[derive(Debug)]
pub(crate) struct NurseryConfig {
    pub(crate) home: PathBuf,
    pub(crate) durable_over_power_loss: bool,
    pub(crate) cgroups: Option<Base>,
    pub(crate) inherited: Inherited,
    /// How a keeper starts a new daemon.
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
    if let Some(limit) = setup.descriptor_limit {
        daemonize::lower_descriptor_limit(limit)?;
    }
    let config = NurseryConfig {
        cgroups: setup.cgroup_name.as_deref().and_then(|name| cgroup::open_base(name).ok()),
        home: setup.home,
        durable_over_power_loss: setup.durable_over_power_loss,
        inherited: Inherited::from_env(),
        daemon: setup.daemon,
    };
    replace_stdio()?;
    daemonize::ignore_children();
    daemonize::trim_memory();
    while let Some(link) = socket::receive_fd(daemon.as_fd())? {
        match daemonize::fork() {
            Ok(Fork::Child) => {
                drop(daemon);
                run_keeper(&config, link);
            }
            Ok(_) => {}
            // Reports the error on the socket meant for the keeper, then closes it.
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or_default();
                let _ =
                    std::os::unix::net::UnixStream::from(link).write_all(&link::encode(&FromKeeper::Unborn { errno }));
            }
        }
    }
    Ok(())
}

/// Runs a keeper until it ends.
fn run_keeper(config: &NurseryConfig, link: OwnedFd) -> ! {
    daemonize::leave_session();
    // The nursery ignores SIGCHLD; a keeper waits for its children.
    daemonize::default_child_signal();
    let code = match Keeper::open(config, link) {
        Ok(mut keeper) => i32::from(keeper.run().is_err()),
        Err(_) => 1,
    };
    if let Some(base) = &config.cgroups {
        base.remove_if_empty();
    }
    std::process::exit(code)
}

fn read_setup(daemon: BorrowedFd<'_>) -> std::io::Result<NurserySetup> {
    let mut header = [0; link::HEADER];
    socket::read_exact(daemon, &mut header)?;
    let length = u32::from_le_bytes(header) as usize;
    if length > MAX_FRAME {
        return Err(std::io::Error::other(link::BadFrame::TooLong(length)));
    }
    let mut frame = vec![0; length];
    socket::read_exact(daemon, &mut frame)?;
    Ok(serde_json::from_slice(&frame)?)
}

/// Standard streams to /dev/null.
fn replace_stdio() -> std::io::Result<()> {
    fsio::point_stdio_at(fsio::dev_null()?.as_fd())
}
