//! Converting a file and converting it back restores it.

use std::ops::ControlFlow;

use paddlecloud_dataprep::{Dataset, Format, IfExists, ReadOptions, WriteOptions, convert};
use paddlecloud_recordio::{Compressor, RecordFile, index_path};
use proptest::prelude::*;

use crate::workbench::{Workbench, records_of};

const TABLE: &str = "id,name,note\n1,Ada,\"a, b\"\n2,Grace,\"two\nlines\"\n3,,\"\"\"quoted\"\"\"\n";

#[test]
fn csv_comes_back_through_every_format_of_rows() {
    let bench = Workbench::new();
    bench.write("a.csv", TABLE);
    let steps = ["b.rio", "c.jsonl", "d.csv.gz", "e.rio", "f.csv"];
    let mut from = "a.csv";
    for to in steps {
        assert_eq!(bench.convert(from, to).unwrap().records, 3, "{from} to {to}");
        from = to;
    }
    assert_eq!(bench.text("f.csv").replace("\r\n", "\n"), TABLE);
    let first = r#"{"id":"2","name":"Grace","note":"two\nlines"}"#;
    assert_eq!(bench.text("c.jsonl").lines().nth(1), Some(first));
}

#[test]
fn a_table_without_names_becomes_arrays() {
    let bench = Workbench::new();
    bench.write("a.csv", "1,2\n3,4\n");
    let options = ReadOptions {
        first_line_is_data: true,
        ..ReadOptions::default()
    };
    let input = Dataset::open(bench.path("a.csv"), options).unwrap();
    convert(
        &input,
        &bench.path("b.jsonl"),
        &WriteOptions::default(),
        &mut |_| {},
    )
    .unwrap();
    assert_eq!(bench.text("b.jsonl"), "[\"1\",\"2\"]\n[\"3\",\"4\"]\n");
    // When read back, the first row would be treated as a header.
    let problem = bench.problem("b.jsonl", "c.csv");
    assert!(
        problem.contains("record 0 of `/b.jsonl` is an array, so its columns have no names"),
        "{problem}"
    );
    let plain = WriteOptions {
        first_line_is_data: true,
        ..WriteOptions::default()
    };
    convert(&bench.open("b.jsonl"), &bench.path("c.csv"), &plain, &mut |_| {}).unwrap();
    assert_eq!(bench.text("c.csv"), "1,2\n3,4\n");
    bench.write("named.jsonl", "{\"a\":1}\n");
    let error = convert(
        &bench.open("named.jsonl"),
        &bench.path("d.csv"),
        &plain,
        &mut |_| {},
    )
    .unwrap_err();
    assert!(error.to_string().contains("is an object"), "{error}");
}

#[test]
fn numbers_and_order_survive_jsonl() {
    let bench = Workbench::new();
    let lines = "{\"z\":1.50,\"a\":12345678901234567890}\n\n  {\"z\": -0, \"a\": null}\n";
    bench.write("a.jsonl", lines);
    bench.convert("a.jsonl", "b.rio").unwrap();
    bench.convert("b.rio", "c.jsonl").unwrap();
    assert_eq!(
        bench.text("c.jsonl"),
        "{\"z\":1.50,\"a\":12345678901234567890}\n{\"z\": -0, \"a\": null}\n"
    );
    bench.convert("b.rio", "d.csv").unwrap();
    assert_eq!(bench.text("d.csv"), "z,a\n1.50,12345678901234567890\n-0,\n");
}

#[test]
fn one_field_can_be_taken_and_given() {
    let bench = Workbench::new();
    bench.write("a.csv", TABLE);
    bench.convert_with("a.csv", "b.rio", Some("note")).unwrap();
    let notes = bench.records("b.rio");
    assert_eq!(notes, [&b"a, b"[..], b"two\nlines", b"\"quoted\""]);
    bench.convert_with("b.rio", "c.jsonl", Some("text")).unwrap();
    assert_eq!(bench.text("c.jsonl").lines().next(), Some(r#"{"text":"a, b"}"#));
    bench.convert_with("c.jsonl", "d.rio", Some("text")).unwrap();
    bench.convert_with("d.rio", "e.csv", Some("note")).unwrap();
    bench.convert_with("e.csv", "f.tar", Some("note")).unwrap();
    bench.convert_with("f.tar", "g.rio", Some("note")).unwrap();
    assert_eq!(bench.records("g.rio"), notes);
}

/// An archive as WebDataset lays it out.
fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        archive.append_data(&mut header, name, *bytes).unwrap();
    }
    archive.into_inner().unwrap()
}

#[test]
fn a_webdataset_comes_back_with_all_its_files() {
    let bench = Workbench::new();
    let files: [(&str, &[u8]); 5] = [
        ("train/0001.jpg", &[0xff; 700]),
        ("train/0001.cls", b"3"),
        ("train/0002.jpg", &[0, 1, 2]),
        ("train/0002.seg.png", b""),
        ("train/0003.jpg", b"x"),
    ];
    bench.write("a.tar", archive(&files));
    assert_eq!(bench.convert("a.tar", "b.rio").unwrap().records, 3);
    bench.convert("b.rio", "c.tar.gz").unwrap();
    bench.convert("c.tar.gz", "d.tar").unwrap();
    let mut back = tar::Archive::new(std::fs::File::open(bench.path("d.tar")).unwrap());
    let mut found = Vec::new();
    for entry in back.entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
        found.push((entry.path().unwrap().to_str().unwrap().to_owned(), bytes));
    }
    let expected: Vec<_> = files
        .map(|(name, bytes)| (name.to_owned(), bytes.to_vec()))
        .into();
    assert_eq!(found, expected);
    bench.convert_with("a.tar", "e.rio", Some("jpg")).unwrap();
    assert_eq!(bench.records("e.rio"), [&[0xff; 700][..], &[0, 1, 2], b"x"]);
}

#[test]
fn compressors_are_exchanged_and_an_index_is_left() {
    let bench = Workbench::new();
    bench.write("a.txt", "one\n\nthree");
    bench.convert("a.txt", "a.rio").unwrap();
    let mut from = "a.rio".to_owned();
    for compressor in Compressor::ALL {
        let to = format!("{compressor}.rio");
        let options = WriteOptions {
            compressor,
            with_index: true,
            chunk_size: 4,
            ..WriteOptions::default()
        };
        convert(&bench.open(&from), &bench.path(&to), &options, &mut |_| {}).unwrap();
        let file = RecordFile::open(bench.path(&to)).unwrap();
        assert!(file.index_is_stored() && index_path(&bench.path(&to)).exists());
        assert_eq!(file.index().chunks()[0].header.compressor, compressor);
        assert_eq!(bench.records(&to), [&b"one"[..], b"", b"three"]);
        from = to;
    }
}

#[test]
fn a_range_of_records_is_shown_alone() {
    let bench = Workbench::new();
    bench.write("a.txt", "0\n1\n2\n3\n4\n");
    bench.convert("a.txt", "b.rio").unwrap();
    for name in ["a.txt", "b.rio"] {
        let mut seen = Vec::new();
        let data = bench.open(name);
        data.each_in(1..3, &mut |record| {
            seen.push((record.number, record.bytes.to_vec()));
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        assert_eq!(seen, [(1, b"1".to_vec()), (2, b"2".to_vec())], "{name}");
        let mut count = 0;
        let mut stop = |_: paddlecloud_dataprep::Seen<'_>| {
            count += 1;
            Ok(ControlFlow::Break(()))
        };
        data.each_in(3..100, &mut stop).unwrap();
        assert_eq!(count, 1, "{name}");
    }
}

#[test]
fn an_existing_file_is_replaced_only_when_asked() {
    let bench = Workbench::new();
    bench.write("a.txt", "new\n");
    bench.write("b.jsonl", "old");
    assert!(bench.problem("a.txt", "b.jsonl").contains("already exists"));
    let options = WriteOptions {
        if_exists: IfExists::Replace,
        field: Some("t".to_owned()),
        ..WriteOptions::default()
    };
    convert(
        &bench.open("a.txt"),
        &bench.path("b.jsonl"),
        &options,
        &mut |_| {},
    )
    .unwrap();
    assert_eq!(bench.text("b.jsonl"), "{\"t\":\"new\"}\n");
}

#[test]
fn parquet_keeps_kinds_and_order() {
    let bench = Workbench::new();
    let lines = concat!(
        "{\"z\":1,\"b\":true,\"t\":\"x\",\"f\":1,\"n\":[1,2]}\n",
        "{\"z\":-7,\"t\":null,\"f\":0.5,\"late\":\"y\"}\n",
    );
    bench.write("a.jsonl", lines);
    bench.convert("a.jsonl", "b.parquet").unwrap();
    bench.convert("b.parquet", "c.jsonl").unwrap();
    let expected = concat!(
        "{\"z\":1,\"b\":true,\"t\":\"x\",\"f\":1.0,\"n\":\"[1,2]\",\"late\":null}\n",
        "{\"z\":-7,\"b\":null,\"t\":null,\"f\":0.5,\"n\":null,\"late\":\"y\"}\n",
    );
    assert_eq!(bench.text("c.jsonl"), expected);
    assert_eq!(
        Format::of_file(&bench.path("b.parquet").into()).unwrap(),
        Some(Format::Parquet)
    );
}

#[test]
fn parquet_refuses_what_it_would_change() {
    let bench = Workbench::new();
    bench.write("mixed.jsonl", "{\"a\":1}\n{\"a\":\"x\"}\n");
    let problem = bench.problem("mixed.jsonl", "x.parquet");
    assert_eq!(
        problem,
        "record 1 of `/mixed.jsonl` has text in `a`, where earlier records have whole numbers"
    );
    bench.write("large.jsonl", "{\"a\":99999999999999999999}\n");
    assert!(
        bench
            .problem("large.jsonl", "x.parquet")
            .contains("too large for 64 bits")
    );
    bench.write("inexact.jsonl", "{\"a\":9007199254740993}\n{\"a\":0.5}\n");
    assert!(bench.convert("inexact.jsonl", "x.parquet").is_err());
    assert!(!bench.path("x.parquet").exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any bytes survive in a format that can represent them unchanged.
    #[test]
    fn any_bytes_survive_recordio_and_tar(records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 1..12)) {
        let bench = Workbench::new();
        let mut writer = paddlecloud_recordio::FileWriter::create(
            bench.path("a.rio"),
            paddlecloud_recordio::WriteOptions::new(),
        ).unwrap();
        for record in &records {
            writer.write(record).unwrap();
        }
        writer.finish().unwrap();
        bench.convert_with("a.rio", "b.tar", Some("bin")).unwrap();
        let as_samples = bench.convert("b.tar", "c.rio").unwrap();
        prop_assert_eq!(as_samples.records, records.len() as u64);
        bench.convert("c.rio", "d.tar").unwrap();
        bench.convert_with("d.tar", "e.rio", Some("bin")).unwrap();
        prop_assert_eq!(bench.records("e.rio"), records);
    }

    /// Any text survives a table.
    #[test]
    fn any_text_survives_csv(cells in prop::collection::vec(prop::collection::vec(".{0,20}", 3), 1..12)) {
        let bench = Workbench::new();
        let lines: Vec<String> = cells
            .iter()
            .map(|row| serde_json::json!({"a": row[0], "b": row[1], "c": row[2]}).to_string())
            .collect();
        bench.write("a.jsonl", lines.join("\n"));
        bench.convert("a.jsonl", "b.csv").unwrap();
        bench.convert("b.csv", "c.jsonl").unwrap();
        let back = records_of(&bench.open("c.jsonl")).unwrap();
        let lines: Vec<Vec<u8>> = lines.into_iter().map(String::into_bytes).collect();
        prop_assert_eq!(back, lines);
    }
}
