//! Writer and reader together, on real files.

use std::fs;
use std::path::Path;

use super::*;
use crate::protocol::LogLimits;

const MS: u64 = 1_000_000;

fn writer(dir: &Path, segment_bytes: u64, keep_bytes: u64) -> LogWriter {
    LogWriter::create(
        &dir.join("log"),
        LogLimits {
            segment_bytes,
            keep_bytes,
        },
    )
    .unwrap()
}

fn reader(dir: &Path) -> LogReader {
    LogReader::open(&dir.join("log"))
}

fn chunk(offset: u64, stamp: u64, stream: Stream, bytes: &[u8]) -> Piece {
    Piece::Chunk(Chunk {
        offset,
        stamp,
        stream,
        bytes: bytes.to_vec(),
    })
}

#[test]
fn an_absent_folder_is_an_empty_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut reader = reader(dir.path());
    assert!(reader.is_empty().unwrap());
    assert_eq!(reader.read_at(0, 10).unwrap(), []);
    assert_eq!(reader.tail_lines(3).unwrap(), 0);
    assert_eq!(reader.seek_time(UnixNanos(5)).unwrap(), 0);
}

#[test]
fn bytes_come_back_with_their_stream_and_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = writer(dir.path(), 100, 1000);
    log.append(Stream::Launcher, b"pre\n", UnixNanos(MS));
    log.append(Stream::Output, b"out", UnixNanos(MS));
    log.append(Stream::Output, b"put\n", UnixNanos(MS + 1));
    log.append(Stream::Output, b"late", UnixNanos(3 * MS));
    let mut reader = reader(dir.path());
    let all = [
        chunk(0, MS, Stream::Launcher, b"pre\n"),
        chunk(4, MS, Stream::Output, b"output\n"),
        chunk(11, 3 * MS, Stream::Output, b"late"),
    ];
    assert_eq!(reader.read_at(0, 1000).unwrap(), all);
    assert_eq!(
        reader.read_at(5, 2).unwrap(),
        [chunk(5, MS, Stream::Output, b"ut")]
    );
    assert_eq!(reader.read_at(15, 10).unwrap(), [], "the end");
    assert_eq!(reader.read_at(99, 10).unwrap(), [], "beyond the end");
    log.append(Stream::Output, b"!", UnixNanos(3 * MS));
    assert_eq!(
        reader.read_at(15, 10).unwrap(),
        [chunk(15, 3 * MS, Stream::Output, b"!")],
        "an open reader sees more"
    );
}

#[test]
fn the_same_reader_crosses_segments_as_they_come() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = writer(dir.path(), 4, 1000);
    let mut reader = reader(dir.path());
    let (mut offset, mut text) = (0, Vec::new());
    for number in 0..50u8 {
        log.append(Stream::Output, &[number; 3], UnixNanos(u64::from(number) * MS));
        for piece in reader.read_at(offset, 1000).unwrap() {
            offset = piece.end();
            let Piece::Chunk(chunk) = piece else {
                panic!("{piece:?}")
            };
            text.extend(chunk.bytes);
        }
    }
    assert_eq!(text, (0..50u8).flat_map(|number| [number; 3]).collect::<Vec<_>>());
    assert!(segments(&dir.path().join("log")).unwrap().len() > 20);
}

#[test]
fn rotated_bytes_are_a_gap_even_for_an_open_reader() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = writer(dir.path(), 10, 30);
    log.append(Stream::Output, b"0123456789", UnixNanos(0));
    let mut reader = reader(dir.path());
    assert_eq!(reader.read_at(0, 5).unwrap().len(), 1);
    for _ in 0..9 {
        log.append(Stream::Output, b"0123456789", UnixNanos(0));
    }
    assert_eq!((reader.start().unwrap(), reader.len().unwrap()), (70, 100));
    let pieces = reader.read_at(5, 5).unwrap();
    assert_eq!(
        pieces,
        [chunk(5, 0, Stream::Output, b"56789")],
        "the segment it has open is still good to it"
    );
    let pieces = reader.read_at(20, 5).unwrap();
    assert_eq!(
        pieces,
        [
            Piece::Gap(Gap { from: 20, to: 70 }),
            chunk(70, 0, Stream::Output, b"01234")
        ]
    );
    assert_eq!(log.close().unwrap(), 100);
}

#[test]
fn an_entry_without_bytes_is_ignored_and_a_torn_one_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = writer(dir.path(), 100, 1000);
    log.append(Stream::Output, b"abc", UnixNanos(MS));
    let index = index_path(&dir.path().join("log"), 0);
    let mut bytes = fs::read(&index).unwrap();
    bytes.extend(
        Entry {
            offset: 3,
            stamp: UnixNanos(9 * MS),
            stream: Stream::Output,
        }
        .encode(),
    );
    bytes.extend([1, 2, 3]);
    fs::write(&index, bytes).unwrap();
    let mut reader = reader(dir.path());
    assert_eq!(
        reader.read_at(0, 10).unwrap(),
        [chunk(0, MS, Stream::Output, b"abc")]
    );
    assert_eq!(reader.seek_time(UnixNanos(9 * MS)).unwrap(), 3);
}

#[test]
fn bytes_whose_index_was_lost_are_still_shown() {
    let dir = tempfile::tempdir().unwrap();
    writer(dir.path(), 100, 1000).append(Stream::Output, b"abc", UnixNanos(MS));
    fs::write(index_path(&dir.path().join("log"), 0), [0; 10]).unwrap();
    assert_eq!(
        reader(dir.path()).read_at(0, 10).unwrap(),
        [chunk(0, 0, Stream::Output, b"abc")]
    );
}

#[test]
fn the_last_lines_are_found_across_segments() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = writer(dir.path(), 4, 1000);
    for line in ["one\n", "two\n", "three\n", "four"] {
        log.append(Stream::Output, line.as_bytes(), UnixNanos(0));
    }
    let reader = reader(dir.path());
    let tails: Vec<_> = (0..6).map(|n| reader.tail_lines(n).unwrap()).collect();
    assert_eq!(tails, [18, 14, 8, 4, 0, 0]);
    log.append(Stream::Output, b"\n", UnixNanos(0));
    assert_eq!(
        reader.tail_lines(1).unwrap(),
        14,
        "a final newline begins no line"
    );
    log.append(Stream::Output, b"\n", UnixNanos(0));
    assert_eq!(reader.tail_lines(1).unwrap(), 19, "an empty line is one");
}

#[test]
fn tails_agree_with_counting_for_any_line_lengths() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = writer(dir.path(), 70_000, 10 << 20);
    let mut text = Vec::new();
    for number in 0..400usize {
        let mut line = vec![b'x'; number * 37 % 2000];
        line.push(b'\n');
        log.append(Stream::Output, &line, UnixNanos(0));
        text.extend(line);
    }
    let begins: Vec<_> = std::iter::once(0)
        .chain(
            (0..text.len())
                .filter(|at| text[*at] == b'\n')
                .map(|at| at as u64 + 1),
        )
        .take_while(|at| *at < text.len() as u64)
        .collect();
    let reader = reader(dir.path());
    for n in [1, 2, 7, 100, 399, 400, 401] {
        let expected = begins[begins.len().saturating_sub(n)];
        assert_eq!(reader.tail_lines(n).unwrap(), expected, "{n}");
    }
}

#[test]
fn time_finds_the_first_byte_that_is_not_older() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = writer(dir.path(), 4, 1000);
    for (at, text) in [(10, "aaaa"), (20, "bbbb"), (20, "cccc"), (30, "d")] {
        log.append(Stream::Output, text.as_bytes(), UnixNanos(at * MS));
    }
    let reader = reader(dir.path());
    let seek = |ms| reader.seek_time(UnixNanos(ms * MS)).unwrap();
    assert_eq!([0, 10, 11, 20, 21, 30, 31].map(seek), [0, 0, 4, 4, 12, 12, 13]);
}

#[test]
fn a_clock_that_is_set_back_does_not_turn_time_around() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = writer(dir.path(), 100, 1000);
    log.append(Stream::Launcher, b"a", UnixNanos(9 * MS));
    log.append(Stream::Output, b"b", UnixNanos(MS));
    let pieces = reader(dir.path()).read_at(0, 10).unwrap();
    assert_eq!(pieces[1], chunk(1, 9 * MS, Stream::Output, b"b"));
}

#[test]
fn a_loss_at_the_very_end_is_visible_once_the_log_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = writer(dir.path(), 1, 1000);
    log.append(Stream::Output, b"kept", UnixNanos(0));
    // A folder at the next segment's path makes writing fail as a full disk would.
    fs::create_dir(index_path(&dir.path().join("log"), 4)).unwrap();
    log.append(Stream::Output, b"lost", UnixNanos(0));
    assert_eq!((log.len(), log.dropped()), (4, 4));
    assert_eq!(log.close().unwrap(), 8);
    let mut reader = reader(dir.path());
    assert_eq!(reader.len().unwrap(), 8);
    let pieces = reader.read_at(0, 100).unwrap();
    assert_eq!(
        pieces,
        [
            chunk(0, 0, Stream::Output, b"kept"),
            Piece::Gap(Gap { from: 4, to: 8 })
        ]
    );
}

#[test]
fn a_resumed_log_takes_bytes_by_offset_and_marks_gaps() {
    let dir = tempfile::tempdir().unwrap();
    let log_dir = dir.path().join("log");
    let limits = LogLimits {
        segment_bytes: 100,
        keep_bytes: 1000,
    };
    let mut log = LogWriter::resume(&log_dir, limits).unwrap();
    assert_eq!(log.append_at(0, Stream::Output, b"abc", UnixNanos(5 * MS)), 3);
    drop(log);
    let mut log = LogWriter::resume(&log_dir, limits).unwrap();
    assert_eq!(
        log.append_at(0, Stream::Output, b"abc", UnixNanos(6 * MS)),
        3,
        "it has these"
    );
    assert_eq!(
        log.append_at(1, Stream::Output, b"bcde", UnixNanos(MS)),
        5,
        "and some of these"
    );
    assert_eq!(log.append_at(8, Stream::Output, b"!", UnixNanos(7 * MS)), 9);
    log.skip_to(11);
    assert_eq!(log.close().unwrap(), 11);
    let pieces = reader(dir.path()).read_at(0, 100).unwrap();
    assert_eq!(
        pieces,
        [
            chunk(0, 5 * MS, Stream::Output, b"abc"),
            chunk(3, 5 * MS, Stream::Output, b"de"),
            Piece::Gap(Gap { from: 5, to: 8 }),
            chunk(8, 7 * MS, Stream::Output, b"!"),
            Piece::Gap(Gap { from: 9, to: 11 }),
        ]
    );
    assert_eq!(
        LogWriter::resume(&log_dir, limits)
            .unwrap()
            .append_at(11, Stream::Output, b"z", UnixNanos(0)),
        12
    );
}

#[test]
fn bytes_refused_for_lack_of_space_can_be_sent_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = writer(dir.path(), 1, 1000);
    assert_eq!(log.append_at(0, Stream::Output, b"kept", UnixNanos(0)), 4);
    let blocked = index_path(&dir.path().join("log"), 4);
    fs::create_dir(&blocked).unwrap();
    assert_eq!(log.append_at(4, Stream::Output, b"more", UnixNanos(0)), 4);
    fs::remove_dir(&blocked).unwrap();
    assert_eq!(log.append_at(4, Stream::Output, b"more", UnixNanos(0)), 8);
    assert_eq!(log.close().unwrap(), 8);
    let pieces = reader(dir.path()).read_at(0, 100).unwrap();
    assert_eq!(
        pieces,
        [
            chunk(0, 0, Stream::Output, b"kept"),
            chunk(4, 0, Stream::Output, b"more")
        ]
    );
}
