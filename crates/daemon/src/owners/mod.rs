//! Owners: whom processes belong to. `book` knows who exists and what their end means, `parents` decides who may say whose child an
//! owner is, and `silence` ends what an owner left that no longer connects.

pub(crate) mod book;
pub(crate) mod parents;
pub(crate) mod silence;
