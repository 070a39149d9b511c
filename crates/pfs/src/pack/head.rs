//! The 20-byte head of every entry.

use super::{PackError, PackTotals};
use crate::entry::{Entry, Mtime, Node};
use crate::relpath::RelPath;

pub(super) const HEAD: usize = 20;

const DIR: u8 = 1;
const FILE: u8 = 2;
const LINK: u8 = 3;
const END: u8 = 4;
const EXECUTABLE: u8 = 1;

/// A decoded head, before its path is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    Entry {
        kind: HeadKind,
        path_len: usize,
        mtime: Mtime,
    },
    End(PackTotals),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadKind {
    Dir,
    File { size: u64, executable: bool },
    Link { len: usize },
}

pub(super) fn encode_entry(entry: &Entry) -> [u8; HEAD] {
    match &entry.node {
        Node::Dir => encode_as(DIR, entry, 0),
        Node::File { size, .. } => encode_as(FILE, entry, *size),
        Node::Symlink { target } => encode_as(LINK, entry, target.as_bytes().len() as u64),
    }
}

fn encode_as(tag: u8, entry: &Entry, size: u64) -> [u8; HEAD] {
    let is_program = matches!(&entry.node, Node::File { executable: true, .. });
    let flags = if is_program { EXECUTABLE } else { 0 };
    let path_len = u16::try_from(entry.path.as_bytes().len()).expect("a path has at most 4095 bytes");
    encode(tag, flags, path_len, size, entry.mtime.as_nanos() as u64)
}

pub(super) fn encode_end(totals: PackTotals) -> [u8; HEAD] {
    encode(END, 0, 0, totals.entries, totals.bytes)
}

fn encode(tag: u8, flags: u8, path_len: u16, a: u64, b: u64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[0] = tag;
    head[1] = flags;
    head[2..4].copy_from_slice(&path_len.to_le_bytes());
    head[4..12].copy_from_slice(&a.to_le_bytes());
    head[12..].copy_from_slice(&b.to_le_bytes());
    head
}

/// Decodes a head. Every length in it is bounded before memory is allocated.
pub(super) fn decode(head: &[u8; HEAD]) -> Result<Head, PackError> {
    let [tag, flags, len_low, len_high, rest @ ..] = *head;
    let path_len = usize::from(u16::from_le_bytes([len_low, len_high]));
    let a = u64::from_le_bytes(rest[..8].try_into().expect("eight of sixteen bytes"));
    let b = u64::from_le_bytes(rest[8..].try_into().expect("eight of sixteen bytes"));
    let malformed = || PackError::Malformed(RelPath::root());
    let kind = match (tag, flags) {
        (DIR, 0) if a == 0 => HeadKind::Dir,
        (FILE, 0 | EXECUTABLE) => HeadKind::File {
            size: a,
            executable: flags == EXECUTABLE,
        },
        (LINK, 0) if (1..=RelPath::MAX_LEN as u64).contains(&a) => HeadKind::Link { len: a as usize },
        (END, 0) if path_len == 0 => return Ok(Head::End(PackTotals { entries: a, bytes: b })),
        (DIR | FILE | LINK | END, _) => return Err(malformed()),
        _ => return Err(PackError::Tag(tag)),
    };
    if path_len == 0 || path_len > RelPath::MAX_LEN {
        return Err(malformed());
    }
    Ok(Head::Entry {
        kind,
        path_len,
        mtime: Mtime::from_nanos(b as i64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_come_back_as_they_went() {
        let entry = Entry {
            path: "a/b".parse().unwrap(),
            node: Node::File {
                size: u64::MAX,
                executable: true,
                digest: None,
            },
            mtime: Mtime::from_nanos(-7),
        };
        let kind = HeadKind::File {
            size: u64::MAX,
            executable: true,
        };
        let head = Head::Entry {
            kind,
            path_len: 3,
            mtime: Mtime::from_nanos(-7),
        };
        assert_eq!(decode(&encode_entry(&entry)).unwrap(), head);
        let totals = PackTotals { entries: 2, bytes: 9 };
        assert_eq!(decode(&encode_end(totals)).unwrap(), Head::End(totals));
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(matches!(decode(&encode(0, 0, 1, 0, 0)), Err(PackError::Tag(0))));
        assert!(matches!(decode(&encode(9, 0, 1, 0, 0)), Err(PackError::Tag(9))));
        for (tag, flags, path_len, a) in [
            (DIR, 0, 1, 5),
            (DIR, 1, 1, 0),
            (FILE, 2, 1, 0),
            (FILE, 0, 0, 0),
            (FILE, 0, 4096, 0),
            (LINK, 0, 1, 0),
            (LINK, 0, 1, 4096),
            (END, 0, 1, 0),
        ] {
            let head = encode(tag, flags, path_len, a, 0);
            assert!(
                matches!(decode(&head), Err(PackError::Malformed(_))),
                "{tag} {flags} {path_len} {a}"
            );
        }
    }
}
