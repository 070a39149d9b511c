//! Errors of conversions name file and record, and leave nothing behind.

use paddlecloud_dataprep::{Dataset, ReadOptions};
use paddlecloud_recordio::{Policy, SkipBound};

use crate::workbench::{Workbench, records_of};

#[test]
fn every_refusal_names_file_and_record_and_leaves_nothing() {
    let bench = Workbench::new();
    bench.write("ok.txt", "plain\n");
    bench.write("late.jsonl", "{\"a\":1}\n{\"a\":1,\"b\":2}\n");
    bench.write("bad.jsonl", "{\"a\":1}\n{\"a\":\n");
    bench.write("ragged.csv", "a,b\n1,2\n3\n");
    bench.write("twice.csv", "a,a\n1,2\n");
    bench.write("latin.csv", b"a\n\xff\n");
    bench.write("two-lines.jsonl", "{\"t\":\"a\\nb\"}\n");
    bench.write("unknown", "?");
    bench.write("cut.tar", [b'x'; 700]);
    bench.write("half.jsonl", "{\"a\":\"x\"}\n{\"a\":\"\\ud800\"}\n");
    bench.write("huge.jsonl", "{\"a\":1.5}\n{\"a\":1e400}\n");
    bench.write("fine.jsonl", "{\"a\":0.1000000000000000055511151231257827}\n");
    let before = bench.names();
    let cases = [
        (
            "half.jsonl",
            "x.parquet",
            "line 2 of `/half.jsonl` has `\\ud800` at column 7",
        ),
        (
            "half.jsonl",
            "x.csv",
            "line 2 of `/half.jsonl` has `\\ud800` at column 7",
        ),
        (
            "huge.jsonl",
            "x.parquet",
            "record 1 of `/huge.jsonl` has the number 1e400",
        ),
        ("fine.jsonl", "x.parquet", "which a 64-bit float would change"),
        (
            "ok.txt",
            "x.csv",
            "record 0 of `/ok.txt` is not a JSON object or array, so it cannot be a row",
        ),
        (
            "ok.txt",
            "x.tar",
            "record 0 of `/ok.txt` is not a pickled dictionary",
        ),
        (
            "late.jsonl",
            "x.csv",
            "record 1 of `/late.jsonl` has a field `b` that the first record does not have",
        ),
        ("bad.jsonl", "x.rio", "line 2 of `/bad.jsonl` is not JSON"),
        (
            "ragged.csv",
            "x.rio",
            "line 3 of `/ragged.csv` has 1 values where the lines before it have 2",
        ),
        ("twice.csv", "x.rio", "`/twice.csv` has two columns called `a`"),
        ("latin.csv", "x.rio", "line 2 of `/latin.csv` is not UTF-8"),
        (
            "unknown",
            "x.rio",
            "the format of `/unknown` cannot be determined",
        ),
        ("ok.txt", "x", "the format of `/x` cannot be determined"),
        ("ok.txt", "x.rio.gz", "which no reader expects"),
        ("cut.tar", "x.rio", "`/cut.tar` cannot be read as tar"),
    ];
    for (from, to, words) in cases {
        let problem = match Dataset::open(bench.path(from), ReadOptions::default()) {
            Err(error) => error.to_string().replace(bench.path("").to_str().unwrap(), "/"),
            Ok(_) => bench.problem(from, to),
        };
        assert!(problem.contains(words), "{from} to {to}: {problem}");
    }
    assert_eq!(bench.names(), before);
}

#[test]
fn a_record_with_a_line_end_cannot_become_a_line() {
    let bench = Workbench::new();
    bench.write("a.jsonl", "{\"t\":\"a\\nb\"}\n");
    bench.convert_with("a.jsonl", "b.rio", Some("t")).unwrap();
    assert!(
        bench
            .problem("b.rio", "c.txt")
            .contains("record 0 of `/b.rio` contains a line end")
    );
    bench.write("c.jsonl", "{\"t\":\"a\\rb\"}\n{\"t\":\"a\\r\"}\n");
    bench.convert_with("c.jsonl", "d.rio", Some("t")).unwrap();
    let problem = bench.problem("d.rio", "e.txt");
    assert!(
        problem.contains("record 1 of `/d.rio` ends with a carriage return"),
        "{problem}"
    );
}

#[test]
fn damage_is_an_error_unless_it_may_be_skipped() {
    let bench = Workbench::new();
    bench.write("a.txt", "0\n1\n2\n");
    let options = paddlecloud_dataprep::WriteOptions {
        chunk_size: 1,
        compressor: paddlecloud_recordio::Compressor::None,
        ..Default::default()
    };
    let to = bench.path("b.rio");
    paddlecloud_dataprep::convert(&bench.open("a.txt"), &to, &options, &mut |_| {}).unwrap();
    let mut bytes = std::fs::read(&to).unwrap();
    let middle = bytes.len() / 2 + 12;
    bytes[middle] ^= 0x10;
    std::fs::write(&to, bytes).unwrap();
    let problem = bench.problem("b.rio", "c.txt");
    assert!(
        problem.contains("`/b.rio` is damaged at offset 25: checksum mismatch"),
        "{problem}"
    );
    let read = ReadOptions {
        policy: Policy::Skip(SkipBound::UNLIMITED),
        ..ReadOptions::default()
    };
    let mut numbers = Vec::new();
    let data = Dataset::open(&to, read).unwrap();
    let damage = data
        .each(&mut |seen| {
            numbers.push(seen.number);
            Ok(std::ops::ControlFlow::Continue(()))
        })
        .unwrap();
    assert_eq!(numbers, [0, 2], "records keep their numbers");
    assert_eq!(damage.lost_bytes(), 25);
}

#[test]
fn a_field_of_records_without_fields_is_refused() {
    let bench = Workbench::new();
    bench.write("a.txt", "x\n");
    let options = ReadOptions {
        field: Some("a".to_owned()),
        ..ReadOptions::default()
    };
    let error = Dataset::open(bench.path("a.txt"), options).unwrap_err();
    assert!(error.to_string().contains("whose records have no fields"));
    bench.write("a.csv", "b\n1\n");
    let options = ReadOptions {
        field: Some("a".to_owned()),
        ..ReadOptions::default()
    };
    let data = Dataset::open(bench.path("a.csv"), options).unwrap();
    assert!(
        records_of(&data)
            .unwrap_err()
            .to_string()
            .contains("has no column `a`")
    );
}

#[cfg(unix)]
#[test]
fn only_regular_files_are_replaced() {
    let bench = Workbench::new();
    bench.write("a.txt", "x\n");
    let options = paddlecloud_dataprep::WriteOptions {
        if_exists: paddlecloud_dataprep::IfExists::Replace,
        ..Default::default()
    };
    for name in ["socket.jsonl", "socket.rio", "socket.txt"] {
        let _listener = std::os::unix::net::UnixListener::bind(bench.path(name)).unwrap();
        paddlecloud_dataprep::convert(&bench.open("a.txt"), &bench.path(name), &options, &mut |_| {})
            .unwrap_err();
        let kept = std::fs::metadata(bench.path(name)).unwrap();
        assert!(!kept.is_file(), "{name}");
    }
}
