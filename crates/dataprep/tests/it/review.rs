//! A file counts as intact only if all of it was parsed; errors name the position.

use std::ops::ControlFlow;

use paddlecloud_dataprep::{Dataset, Format, ReadOptions};
use proptest::prelude::*;

use crate::workbench::Workbench;

/// How many records a file has, or what is wrong with it.
fn review(bench: &Workbench, name: &str) -> Result<u64, String> {
    let options = ReadOptions {
        format: Format::of_name(&bench.path(name)),
        ..ReadOptions::default()
    };
    let words = |error: paddlecloud_dataprep::DataError| {
        let folder = bench.path("");
        let text = match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        text.replace(folder.to_str().unwrap(), "/")
    };
    let data = Dataset::open(bench.path(name), options).map_err(words)?;
    let mut records = 0;
    data.review(&mut |_| {
        records += 1;
        Ok(ControlFlow::Continue(()))
    })
    .map_err(words)?;
    Ok(records)
}

fn review_of(name: &str, contents: impl AsRef<[u8]>) -> Result<u64, String> {
    let bench = Workbench::new();
    bench.write(name, contents);
    review(&bench, name)
}

/// The file uncompressed and compressed.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

#[test]
fn tables_are_read_cell_by_cell() {
    assert_eq!(review_of("a.csv", "a,b\n1,\"x\ny\"\n\n2,\n"), Ok(2));
    let problem = |table: &[u8]| review_of("a.csv", table).unwrap_err();
    assert_eq!(
        problem(b"a,b\n1,\"x\n2,y\n"),
        "line 2 of `/a.csv` has a quote in column 2 that is never closed"
    );
    assert_eq!(
        problem(b"a,b\n1,\"x\"y\n"),
        "line 2 of `/a.csv` has text after the closing quote of column 2"
    );
    assert_eq!(
        problem(b"a,b\n\"1\n\n\",2\n3\n"),
        "line 5 of `/a.csv` has 1 values where the lines before it have 2"
    );
    assert_eq!(problem(b"a\nx\n\xe9\n"), "line 3 of `/a.csv` is not UTF-8");
}

#[test]
fn lines_of_json_are_each_a_value() {
    assert_eq!(review_of("a.jsonl", "\u{feff}{\"a\":1}\r\n\n[2]\n"), Ok(2));
    let problem = |lines: &[u8]| review_of("a.jsonl", lines).unwrap_err();
    assert!(problem(b"1\n\n{\"a\":\n").starts_with("line 3 of `/a.jsonl` is not JSON"));
    assert!(problem(b"1\n2 3\n").starts_with("line 2 of `/a.jsonl` is not JSON"));
    assert!(problem(b"\"\xff\"\n").starts_with("line 1 of `/a.jsonl` is not JSON"));
}

/// An archive with a sample of two files, a link and a file that belongs to no sample.
fn archive() -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut add = |name: &str, kind: tar::EntryType, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(bytes.len() as u64);
        if kind == tar::EntryType::Symlink {
            header.set_link_name("a.jpg").unwrap();
        }
        archive.append_data(&mut header, name, bytes).unwrap();
    };
    add("a.jpg", tar::EntryType::Regular, b"picture");
    add("a.cls", tar::EntryType::Regular, &[0; 600]);
    add("README", tar::EntryType::Regular, b"words");
    add("link.jpg", tar::EntryType::Symlink, b"");
    archive.into_inner().unwrap()
}

#[test]
fn archives_are_read_to_their_end() {
    let whole = archive();
    assert_eq!(review_of("a.tar", &whole), Ok(1));
    assert_eq!(review_of("a.tar.gz", gzip(&whole)), Ok(1));
    assert_eq!(review_of("a.tar", [&whole[..], &[0; 5000]].concat()), Ok(1));

    let problem = |bytes: &[u8]| review_of("a.tar", bytes).unwrap_err();
    let end = whole.len() - 1024;
    for cut in [end, end + 512] {
        let expected = format!(
            "`/a.tar` ends without the two empty blocks that end an archive: it is truncated (offset {cut})"
        );
        assert_eq!(problem(&whole[..cut]), expected);
    }
    for cut in 1..end {
        problem(&whole[..cut]);
    }
    let joined = [&whole[..], &whole[..]].concat();
    assert!(problem(&joined).starts_with("`/a.tar` has data after the end of the archive"));
    let mut flipped = whole.clone();
    flipped[1024 + 3] ^= 1;
    let expected = "`/a.tar` cannot be read as tar at offset 1024: archive header checksum mismatch";
    assert_eq!(problem(&flipped), expected);
    let mut flipped = whole.clone();
    flipped[3] ^= 1;
    assert_eq!(problem(&flipped), expected.replace("1024", "0"));
    let packed = gzip(&whole);
    assert!(review_of("a.tar.gz", &packed[..packed.len() - 4]).is_err());
}

#[test]
fn an_unconvertible_file_can_still_be_intact() {
    let bench = Workbench::new();
    bench.write("a.tar", archive());
    assert!(bench.problem("a.tar", "b.rio").contains("contains `README`"));
    assert_eq!(review(&bench, "a.tar"), Ok(1));
}

/// Parquet as we write it.
fn columns() -> Vec<u8> {
    let bench = Workbench::new();
    let rows: String = (0..200)
        .map(|n| format!("{{\"id\":{n},\"word\":\"w{n}\"}}\n"))
        .collect();
    bench.write("a.jsonl", rows);
    bench.convert("a.jsonl", "a.parquet").unwrap();
    std::fs::read(bench.path("a.parquet")).unwrap()
}

#[test]
fn columns_are_read_to_the_last_page() {
    let whole = columns();
    assert_eq!(review_of("a.parquet", &whole), Ok(200));
    let problem = |bytes: &[u8]| review_of("a.parquet", bytes).unwrap_err();
    assert!(problem(&whole[..whole.len() - 1]).contains("cannot be read as Parquet"));
    // The first page's header: the column is named, with its offset.
    let mut flipped = whole.clone();
    flipped[4] ^= 0xff;
    let words = problem(&flipped);
    assert!(
        words.contains("column `id` of row group 0 at offset 4"),
        "{words}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn damaged_columns_are_an_error_or_read_and_never_a_panic(at in any::<prop::sample::Index>(), flip in 1_u8..) {
        thread_local!(static WHOLE: Vec<u8> = columns());
        let mut bytes = WHOLE.with(Clone::clone);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        let _ = review_of("a.parquet", bytes);
    }
}
