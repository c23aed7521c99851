//! Text for people: functions from data to text. Nothing is printed here.

pub(crate) mod agent;
pub(crate) mod event;
pub(crate) mod finding;
pub(crate) mod health;
pub(crate) mod outcome;
pub(crate) mod owner;
pub(crate) mod paint;
pub(crate) mod ps;
pub(crate) mod quantity;
pub(crate) mod record;
#[cfg(test)]
pub(crate) mod sample;
pub(crate) mod stats;
pub(crate) mod summary;
pub(crate) mod table;
