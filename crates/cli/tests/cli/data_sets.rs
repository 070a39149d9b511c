//! `data inspect` and `data verify` report only what is known of a file.

use crate::shell::Shell;

#[test]
fn a_file_of_unknown_kind_is_not_called_damaged() {
    let shell = Shell::new();
    let parts = ["part-0", "part-1"].map(|name| shell.write(name, "sample\n").display().to_string());
    let [first, second] = &parts;

    let shown = shell.run(&["data", "inspect", first, second]);
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.out.contains("part-0\tunknown\t7\t0\t"), "{}", shown.out);
    let note =
        "the format of 2 files, `HOME/part-0` first, cannot be determined from their names or contents";
    assert_eq!(shell.tidy(&shown.err).matches(note).count(), 1, "{}", shown.err);
    assert!(!shown.err.contains("damaged"), "{}", shown.err);

    let verified = shell.run(&["data", "verify", first]);
    assert_eq!(verified.code, 1, "an unknown format does not count as intact");
    assert!(verified.out.contains("\tunknown\n"), "{}", verified.out);
    assert!(
        verified.err.contains("error: the format of `"),
        "{}",
        verified.err
    );
    assert!(verified.err.contains("--from"), "{}", verified.err);

    let named = shell.run(&["data", "inspect", "--from", "lines", first]);
    assert!(named.out.contains("\tlines\t7\t1\t"), "{}", named.out);
}

#[test]
fn recordio_that_lost_its_start_is_still_found_by_what_follows() {
    let shell = Shell::new();
    let text = shell.write("a.txt", "one\ntwo\n").display().to_string();
    let records = shell.home().join("part-0").display().to_string();
    let made = shell.run(&[
        "data",
        "convert",
        &text,
        &records,
        "--to",
        "recordio",
        "--chunk-size",
        "1",
        "--compressor",
        "none",
    ]);
    assert_eq!(made.code, 0, "{made:?}");
    let mut bytes = std::fs::read(&records).unwrap();
    bytes[0] ^= 0xff;
    std::fs::write(&records, bytes).unwrap();
    let shown = shell.run(&["data", "inspect", &records]);
    assert_eq!(shown.code, 1, "{shown:?}");
    assert!(shown.out.contains("\trecordio\t"), "{}", shown.out);
    assert!(
        shown.err.contains("error: 1 of 1 file is damaged"),
        "{}",
        shown.err
    );
}

#[test]
fn an_error_is_located_once_and_the_file_is_reported_as_invalid() {
    let shell = Shell::new();
    let file = shell.write("bad.jsonl", "{}\n{x}\n").display().to_string();
    let verified = shell.run(&["data", "verify", &file]);
    assert_eq!(verified.code, 1);
    assert!(
        verified.out.contains("\tjsonl\t1\t2\tinvalid"),
        "{}",
        verified.out
    );
    assert!(verified.err.contains("note: line 2 of `"), "{}", verified.err);
    assert!(verified.err.contains(" at column 2\n"), "{}", verified.err);
    assert!(!verified.err.contains("line 1"), "{}", verified.err);
}

#[test]
fn names_alone_are_printed_where_names_were_asked_for() {
    let shell = Shell::new();
    let text = shell.write("a.txt", "one\r\ntwo\r\n").display().to_string();
    let made = shell.home().join("a.rio").display().to_string();
    for words in [
        &["data", "inspect", "-o", "name", &text][..],
        &["data", "verify", "-o", "name", &text],
    ] {
        assert_eq!(shell.run(words).out, format!("{text}\n"), "{words:?}");
    }
    let converted = shell.run(&["data", "convert", "-o", "name", &text, &made]);
    assert_eq!(converted.out, format!("{made}\n"));
    assert_eq!(
        shell.run(&["data", "cat", &made]).out,
        "one\ntwo\n",
        "the ends of lines are no data"
    );
}
