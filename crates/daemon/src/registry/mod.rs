//! What the daemon knows in memory: live and recently ended processes, their owners, and how to find and show them.
//!
//! `entries` has one entry for each process, with its state and its `keeper_link`, and `keeper_answers` has the errors
//! for a keeper that does not answer; `owner_book` has the owners and `view` what each of them sees (D5); `find`
//! resolves an id or a name in a view, with `similar_names` for suggestions; `records` is the JSON that clients get of
//! a process, with `service_records` for readiness, ports and restarts; `recovery_progress` says whether every process
//! is known yet.
//!
//! May use: no other room; by exception: services.

mod entries;
mod find;
pub(crate) mod keeper_answers;
pub(crate) mod keeper_link;
mod owner_book;
pub(crate) mod records;
pub(crate) mod recovery_progress;
pub(crate) mod service_records;
mod similar_names;
mod view;

#[cfg(test)]
pub(crate) use entries::entry_of;
pub(crate) use entries::{Entry, Registered, Registry, State};
pub(crate) use find::FoundProcess;
pub(crate) use owner_book::{Contact, ContactFrom, OwnerBook, ReleasableWait, no_owner};
pub(crate) use view::Viewer;
