//! What observers of one process read at about the same time, read once for all of them.
//!
//! A byte of output never changes, so that a stretch that was read for one observer is as good for every other at the same cursor. A
//! shelf only ever gives bytes: that there are none, that some are gone, or that no more will come is for each observer to
//! see for itself. Whoever finds nothing here reads for itself and for those who come to the same cursor meanwhile; nobody waits
//! for one who is elsewhere. Bounds: for each observer [`EACH`] stretches of [`STRETCH`] bytes, [`STRETCHES`] in all, none for an observer
//! who is alone, and all gone with the last.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use tokio::sync::OnceCell;

use crate::lock::lock;

/// Bytes that are read at a time.
pub(crate) const STRETCH: usize = 256 * 1024;
/// Stretches that are kept for those who are behind, for each observer and in all; the oldest go first. The more observers there are, the
/// farther they are apart.
const EACH: usize = 2;
const STRETCHES: usize = 64;

/// The stretches of one process that were read last.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    stretches: Mutex<VecDeque<Stretch>>,
}

#[derive(Clone, Debug)]
struct Stretch {
    at: u64,
    /// Empty if there was nothing to share; not there yet while somebody reads.
    bytes: Arc<OnceCell<Bytes>>,
}

impl Stretch {
    /// What it has from this cursor on; all that will be read there counts.
    fn has(&self, cursor: u64) -> bool {
        match self.bytes.get() {
            Some(bytes) => (self.at..self.at + bytes.len() as u64).contains(&cursor),
            None => self.at == cursor,
        }
    }
}

impl Shelf {
    /// The bytes from this cursor on, read by `read` unless somebody did. Nothing if `read` finds none.
    pub(crate) async fn bytes<F>(self: &Arc<Self>, cursor: u64, read: impl FnOnce() -> F) -> Option<Bytes>
    where
        F: Future<Output = Option<Vec<u8>>>,
    {
        let stretch = self.find(cursor);
        let fill = async || read().await.map(Bytes::from).unwrap_or_default();
        // If whoever reads goes away in the middle, the next who waits reads.
        let bytes = stretch.bytes.get_or_init(fill).await;
        if bytes.is_empty() {
            // There may be some the next time.
            lock(&self.stretches).retain(|other| !Arc::ptr_eq(&other.bytes, &stretch.bytes));
            return None;
        }
        Some(bytes.slice((cursor - stretch.at) as usize..))
    }

    fn find(self: &Arc<Self>, cursor: u64) -> Stretch {
        let mut stretches = lock(&self.stretches);
        if let Some(stretch) = stretches.iter().rev().find(|stretch| stretch.has(cursor)) {
            return stretch.clone();
        }
        let kept = match Arc::strong_count(self) {
            0 | 1 => 1,
            observers => (EACH * observers).min(STRETCHES),
        };
        let surplus = (stretches.len() + 1).saturating_sub(kept);
        stretches.drain(..surplus);
        let stretch = Stretch { at: cursor, bytes: Arc::default() };
        stretches.push_back(stretch.clone());
        stretch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shelf() -> (Arc<Shelf>, Arc<Shelf>) {
        let shelf = Arc::new(Shelf::default());
        (Arc::clone(&shelf), shelf)
    }

    async fn given(shelf: &Arc<Shelf>, cursor: u64, bytes: &'static [u8]) -> Option<Bytes> {
        shelf.bytes(cursor, async || Some(bytes.to_vec())).await
    }

    async fn found(shelf: &Arc<Shelf>, cursor: u64) -> Option<Bytes> {
        shelf.bytes(cursor, async || None).await
    }

    #[tokio::test]
    async fn what_was_read_for_one_is_there_for_all_at_any_cursor_in_it() {
        let (shelf, _another) = shelf();
        assert_eq!(given(&shelf, 10, b"abcd").await.as_deref(), Some(&b"abcd"[..]));
        assert_eq!(given(&shelf, 10, b"never").await.as_deref(), Some(&b"abcd"[..]));
        assert_eq!(found(&shelf, 12).await.as_deref(), Some(&b"cd"[..]));
        assert_eq!(found(&shelf, 14).await, None);
        assert_eq!(given(&shelf, 14, b"e").await.as_deref(), Some(&b"e"[..]), "nothing is no answer for ever");
    }

    #[tokio::test]
    async fn two_at_one_cursor_read_once_and_one_elsewhere_waits_for_nobody() {
        let (shelf, _another) = shelf();
        let (open, gate) = tokio::sync::oneshot::channel::<()>();
        let slow = shelf.bytes(0, async || {
            gate.await.ok()?;
            Some(b"slow".to_vec())
        });
        let same = given(&shelf, 0, b"twice");
        let other = async {
            let other = given(&shelf, 100, b"other").await;
            let _ = open.send(());
            other
        };
        let (slow, same, other) = tokio::join!(slow, same, other);
        assert_eq!([slow, same].map(|bytes| bytes.unwrap_or_default()), [Bytes::from("slow"), Bytes::from("slow")]);
        assert_eq!(other.as_deref(), Some(&b"other"[..]));
    }

    #[tokio::test]
    async fn a_reader_that_goes_away_leaves_its_work_to_the_next() {
        let (shelf, _another) = shelf();
        let gone = shelf.bytes(0, async || std::future::pending().await);
        assert!(tokio::time::timeout(std::time::Duration::from_millis(1), gone).await.is_err());
        assert_eq!(given(&shelf, 0, b"mine").await.as_deref(), Some(&b"mine"[..]));
    }

    #[tokio::test]
    async fn d4_a_shelf_holds_so_much_and_of_one_who_is_alone_nothing_more() {
        let (shelf, another) = shelf();
        let many = vec![Arc::clone(&shelf); STRETCHES];
        for cursor in 0..100 {
            given(&shelf, cursor, b"x").await;
        }
        assert_eq!(lock(&shelf.stretches).len(), STRETCHES);
        drop(many);
        given(&shelf, 99, b"x").await;
        given(&shelf, 100, b"x").await;
        assert_eq!(lock(&shelf.stretches).len(), 2 * EACH);
        drop(another);
        given(&shelf, 101, b"x").await;
        assert_eq!(lock(&shelf.stretches).len(), 1);
    }
}
