//! Locking a mutex and ignoring poison: every change under these locks is complete in itself, so a panic of another
//! holder does no harm.

use std::sync::{Mutex, MutexGuard};

/// Locks the mutex, poisoned or not.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
