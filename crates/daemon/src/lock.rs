//! Locking a mutex whose changes are each complete, so that a panic of another holder does not matter.

use std::sync::{Mutex, MutexGuard};

/// The guard, whoever panicked while holding it: every change under these locks is complete in itself.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
