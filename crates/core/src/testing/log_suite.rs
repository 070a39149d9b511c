//! What every log store must do. Call it from a test of the implementation, with a time limit.

use std::sync::Arc;

use crate::job::WorkerKey;
use crate::ports::{AttemptKey, Chunk, Gap, LogMark, LogStore, Piece, Stream};

use super::samples;

/// Where the store under test keeps its logs.
pub trait Shelf {
    /// Opens the store. Dropping it and opening it again simulates a restart of the server.
    fn store(&self) -> Arc<dyn LogStore>;

    /// Sets whether nothing can be written to this log, which has been begun.
    fn set_broken(&self, attempt: &AttemptKey, is_broken: bool);
}

/// Runs every check.
pub async fn log_suite(shelf: &dyn Shelf) {
    an_unwritten_log_is_empty(shelf);
    bytes_come_back_by_offset_with_their_stream_and_time(shelf);
    bytes_already_stored_are_skipped(shelf);
    missing_bytes_are_a_gap(shelf);
    a_log_is_resumed_where_it_ended(shelf);
    lines_and_times_are_found(shelf);
    attempts_have_logs_of_their_own(shelf);
    a_follower_is_notified_of_growth_and_of_the_end(shelf).await;
    a_discarded_job_leaves_nothing(shelf);
    unwritten_bytes_may_be_sent_again(shelf);
    the_oldest_parts_are_trimmed(shelf);
}

fn attempt(job: u32, number: u32) -> AttemptKey {
    AttemptKey {
        job: samples::id(job),
        worker: WorkerKey::trainer(0),
        attempt: number,
    }
}

fn chunk(offset: u64, stamp: u64, stream: Stream, text: &str) -> Chunk {
    Chunk {
        offset,
        // Far enough apart not to be merged into one moment.
        stamp: stamp * 1_000_000_000,
        stream,
        bytes: text.as_bytes().to_vec(),
    }
}

/// Everything stored, with adjacent pieces of one stream and time merged.
fn all(store: &dyn LogStore, key: &AttemptKey) -> Vec<Piece> {
    let mut reader = store.reader(key);
    let (mut at, mut found) = (0, Vec::<Piece>::new());
    loop {
        let pieces = reader.read(at, 7).expect("the log can be read");
        let Some(last) = pieces.last() else { return found };
        at = last.end();
        for piece in pieces {
            match (found.last_mut(), piece) {
                (Some(Piece::Chunk(before)), Piece::Chunk(next))
                    if (before.stream, before.stamp) == (next.stream, next.stamp) =>
                {
                    before.bytes.extend(next.bytes);
                }
                (_, piece) => found.push(piece),
            }
        }
    }
}

fn an_unwritten_log_is_empty(shelf: &dyn Shelf) {
    let (store, key) = (shelf.store(), attempt(1, 1));
    let mut reader = store.reader(&key);
    assert_eq!(reader.length().expect("the store works"), 0);
    assert_eq!(reader.read(0, 100).expect("the store works"), []);
    assert_eq!(reader.read(5, 100).expect("the store works"), []);
    assert!(store.follow(&key).is_none(), "nobody appends to it");
    assert_eq!(store.occupied(&key.job), 0);
}

/// Bytes of one stream that are this far apart are kept separate.
const MS: u64 = 1_000_000;

fn bytes_come_back_by_offset_with_their_stream_and_time(shelf: &dyn Shelf) {
    let (store, key) = (shelf.store(), attempt(2, 1));
    let pieces = [
        chunk(0, MS, Stream::Launcher, "hello\n"),
        chunk(6, 2 * MS, Stream::Output, "out"),
        chunk(9, 4 * MS, Stream::Output, "\u{0}\u{7f}\n"),
    ];
    for chunk in &pieces {
        let end = store.append(&key, chunk).expect("the store works");
        assert_eq!(end, chunk.offset + chunk.bytes.len() as u64);
    }
    assert_eq!(all(&*store, &key), pieces.map(Piece::Chunk));
    let mut reader = store.reader(&key);
    let part = reader.read(7, 1).expect("the store works");
    assert_eq!(part, [Piece::Chunk(chunk(7, 2 * MS, Stream::Output, "u"))]);
    assert_eq!(reader.read(12, 9).expect("the store works"), [], "at the end");
    assert_eq!(reader.read(99, 9).expect("the store works"), [], "beyond the end");
    store
        .append(&key, &chunk(12, 6 * MS, Stream::Output, "!"))
        .expect("the store works");
    let grown = reader.read(12, 9).expect("the store works");
    assert_eq!(
        grown,
        [Piece::Chunk(chunk(12, 6 * MS, Stream::Output, "!"))],
        "an open reader sees more"
    );
}

fn bytes_already_stored_are_skipped(shelf: &dyn Shelf) {
    let (store, key) = (shelf.store(), attempt(3, 1));
    for (offset, text, end) in [(0, "abcd", 4), (0, "abcd", 4), (1, "bc", 4), (2, "cdef", 6)] {
        let sent = chunk(offset, 1, Stream::Output, text);
        assert_eq!(
            store.append(&key, &sent).expect("the store works"),
            end,
            "{text} at {offset}"
        );
    }
    assert_eq!(
        all(&*store, &key),
        [Piece::Chunk(chunk(0, 1, Stream::Output, "abcdef"))]
    );
}

fn missing_bytes_are_a_gap(shelf: &dyn Shelf) {
    let (store, key) = (shelf.store(), attempt(4, 1));
    store
        .append(&key, &chunk(3, 1, Stream::Output, "abc"))
        .expect("the store works");
    store
        .append(&key, &chunk(8, 1, Stream::Output, "d"))
        .expect("the store works");
    store.close(&key, 11).expect("the store works");
    let expected = [
        Piece::Gap(Gap { from: 0, to: 3 }),
        Piece::Chunk(chunk(3, 1, Stream::Output, "abc")),
        Piece::Gap(Gap { from: 6, to: 8 }),
        Piece::Chunk(chunk(8, 1, Stream::Output, "d")),
        Piece::Gap(Gap { from: 9, to: 11 }),
    ];
    assert_eq!(all(&*store, &key), expected);
    assert_eq!(store.reader(&key).length().expect("the store works"), 11);
}

fn a_log_is_resumed_where_it_ended(shelf: &dyn Shelf) {
    let (store, key) = (shelf.store(), attempt(5, 1));
    assert_eq!(store.begin(&key).expect("the store works"), 0);
    assert_eq!(
        store.begin(&key).expect("the store works"),
        0,
        "once more changes nothing"
    );
    // Long enough to need more than one segment if segments are small.
    let text = "0123456789\n".repeat(40);
    store
        .append(&key, &chunk(0, 1, Stream::Output, &text))
        .expect("the store works");
    drop(store);
    let store = shelf.store();
    let end = store.begin(&key).expect("the store works");
    assert_eq!(end, text.len() as u64);
    store
        .append(&key, &chunk(end, 1, Stream::Output, "more"))
        .expect("the store works");
    store.close(&key, end + 4).expect("the store works");
    drop(store);
    let store = shelf.store();
    let whole = Piece::Chunk(chunk(0, 1, Stream::Output, &(text + "more")));
    assert_eq!(all(&*store, &key), [whole]);
    assert!(store.follow(&key).is_none(), "it is closed");
}

fn lines_and_times_are_found(shelf: &dyn Shelf) {
    let (store, key) = (shelf.store(), attempt(6, 1));
    for (offset, stamp, text) in [(0, 1, "one\n"), (4, 2, "two\nthr"), (11, 3, "ee\n")] {
        store
            .append(&key, &chunk(offset, stamp, Stream::Output, text))
            .expect("the store works");
    }
    let reader = store.reader(&key);
    let tails = [0, 1, 2, 3, 9].map(|lines| reader.tail_lines(lines).expect("the store works"));
    assert_eq!(tails, [14, 8, 4, 0, 0]);
    let times =
        [0, 1, 2, 3, 4].map(|second| reader.seek_time(second * 1_000_000_000).expect("the store works"));
    assert_eq!(times, [0, 0, 4, 11, 14]);
}

fn attempts_have_logs_of_their_own(shelf: &dyn Shelf) {
    let store = shelf.store();
    for number in [1, 2] {
        let text = format!("attempt {number}");
        store
            .append(&attempt(7, number), &chunk(0, 1, Stream::Output, &text))
            .expect("the store works");
    }
    for number in [1, 2] {
        let expected = chunk(0, 1, Stream::Output, &format!("attempt {number}"));
        assert_eq!(all(&*store, &attempt(7, number)), [Piece::Chunk(expected)]);
    }
}

async fn a_follower_is_notified_of_growth_and_of_the_end(shelf: &dyn Shelf) {
    let (store, key) = (shelf.store(), attempt(8, 1));
    store.begin(&key).expect("the store works");
    let mut follower = store.follow(&key).expect("it was begun");
    store
        .append(&key, &chunk(0, 1, Stream::Output, "abc"))
        .expect("the store works");
    let grown = LogMark {
        length: 3,
        complete: false,
    };
    assert_eq!(follower.changed().await, Some(grown));
    store.close(&key, 3).expect("the store works");
    let end = LogMark {
        length: 3,
        complete: true,
    };
    assert_eq!(follower.changed().await, Some(end));
    assert!(store.follow(&key).is_none());
}

fn a_discarded_job_leaves_nothing(shelf: &dyn Shelf) {
    let (store, key) = (shelf.store(), attempt(9, 1));
    store
        .append(&key, &chunk(0, 1, Stream::Output, "abc"))
        .expect("the store works");
    store.close(&key, 3).expect("the store works");
    assert!(store.jobs().expect("the store works").contains(&key.job));
    assert!(store.occupied(&key.job) >= 3);
    store.discard(&key.job).expect("the store works");
    store.discard(&key.job).expect("the store works");
    assert!(!store.jobs().expect("the store works").contains(&key.job));
    assert_eq!(store.occupied(&key.job), 0);
    assert_eq!(all(&*store, &key), []);
}

fn unwritten_bytes_may_be_sent_again(shelf: &dyn Shelf) {
    let (store, key) = (shelf.store(), attempt(10, 1));
    // Long enough to fill a segment if segments are small.
    let text = "0123456789\n".repeat(40);
    let (end, more) = (
        text.len() as u64,
        chunk(text.len() as u64, 1, Stream::Output, "more"),
    );
    store
        .append(&key, &chunk(0, 1, Stream::Output, &text))
        .expect("the store works");
    shelf.set_broken(&key, true);
    assert_ne!(store.append(&key, &more).ok(), Some(end + 4), "it is not stored");
    assert!(store.close(&key, end + 4).is_err(), "it is not durable");
    shelf.set_broken(&key, false);
    assert_eq!(store.append(&key, &more).expect("the store works"), end + 4);
    store.close(&key, end + 4).expect("the store works");
    let whole = Piece::Chunk(chunk(0, 1, Stream::Output, &(text + "more")));
    assert_eq!(all(&*store, &key), [whole], "without a gap");
}

fn the_oldest_parts_are_trimmed(shelf: &dyn Shelf) {
    let (store, key) = (shelf.store(), attempt(11, 1));
    let text = "0123456789".repeat(5);
    for number in 0..10 {
        // Together they need several segments if segments are small.
        let sent = chunk(number * 50, number + 1, Stream::Output, &text);
        store.append(&key, &sent).expect("the store works");
    }
    let (jobs, before) = ([key.job.clone()], store.occupied(&key.job));
    assert_eq!(store.trim(&jobs, before), 0, "it occupies no more than that");
    let freed = store.trim(&jobs, before / 2);
    let left = store.occupied(&key.job);
    assert_eq!(left, before - freed);
    assert!(left <= before / 2, "{left} of {before}");
    let pieces = all(&*store, &key);
    assert!(
        matches!(pieces.first(), Some(Piece::Gap(Gap { from: 0, .. }))),
        "{pieces:?}"
    );
    assert_eq!(pieces.last().map(Piece::end), Some(500));
    store.trim(&jobs, 0);
    assert!(store.occupied(&key.job) > 0, "the latest part stays");
    let more = chunk(500, 11, Stream::Output, "more");
    assert_eq!(store.append(&key, &more).expect("the store works"), 504);
}
