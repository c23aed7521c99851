//! What the daemon knows, in memory: live and recently ended processes, their owners, and how to find and show them.
//!
//! `entries` has one entry for each process, with its state and its `keeper_link`, and `keeper_answers` says what a request
//! comes to when that keeper does not answer; `owner_book` has the owners and `view` what each of them sees (D5); `find`
//! resolves an id or a name in a view, with `similar_names` for suggestions; `records` is the JSON that clients get of a
//! process, with `service_records` for readiness, ports and restarts; `shared_reads` lets several observers of a process read
//! its output once; `recovery_progress` says whether every process is known yet.
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
pub(crate) mod shared_reads;
mod similar_names;
mod view;

#[cfg(test)]
pub(crate) use entries::entry_of;
pub(crate) use entries::{Entry, Registered, Registry, State};
pub(crate) use find::Found;
pub(crate) use owner_book::{Contact, Heard, OwnerBook, Releasable, no_owner};
pub(crate) use view::Scope;
