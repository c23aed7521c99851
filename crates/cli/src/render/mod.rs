//! What people read: data in, text out, nothing printed here.

pub(crate) mod agent;
pub(crate) mod event;
pub(crate) mod finding;
pub(crate) mod health;
pub(crate) mod list;
pub(crate) mod outcome;
pub(crate) mod owner;
pub(crate) mod paint;
pub(crate) mod quantity;
pub(crate) mod record;
#[cfg(test)]
pub(crate) mod sample;
pub(crate) mod summary;
pub(crate) mod table;
