//! Group of behaviours.
