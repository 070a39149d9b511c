//! `paddlectl data`: what it prints, what it refuses, and with which exit code.

use std::fs;
use std::path::PathBuf;

use e2e::TestEnvironment;

struct Desk {
    env: TestEnvironment,
    folder: PathBuf,
}

impl Desk {
    fn new() -> Self {
        let env = TestEnvironment::new();
        let folder = env.folder("set");
        Self { env, folder }
    }

    fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        fs::write(self.folder.join(name), contents).unwrap();
        self.path(name)
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    /// Runs `paddlectl data …`, with names of files here for words that begin with `@`.
    fn data(&self, line: &str) -> e2e::Ran {
        let words: Vec<String> = line
            .split_whitespace()
            .map(|word| match word.strip_prefix('@') {
                Some(name) => self.path(name),
                None => word.to_owned(),
            })
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.env.paddlectl(&[&["data"], words.as_slice()].concat())
    }
}

const TABLE: &str = "id,text\n1,one\n2,\"two, or more\"\n3,three\n";

#[test]
fn a_table_is_converted_to_recordio_and_back() {
    let desk = Desk::new();
    desk.write("a.csv", TABLE);
    desk.data("convert @a.csv @a.rio")
        .ok()
        .says("a.rio` has 3 records");
    let head = desk.data("head -n 1 @a.rio").ok();
    assert_eq!(head.stdout, "{\"id\":\"1\",\"text\":\"one\"}\n");
    let two = desk.data("cat --records 1..3 -o json @a.rio").ok();
    assert_eq!(
        two.stdout.lines().next(),
        Some(r#"{"record":1,"text":"{\"id\":\"2\",\"text\":\"two, or more\"}"}"#)
    );
    assert_eq!(two.stdout.lines().count(), 2);
    desk.data("convert @a.rio @b.csv").ok();
    assert_eq!(fs::read_to_string(desk.path("b.csv")).unwrap(), TABLE);
    let column = desk.data("cat --field text @b.csv").ok();
    assert_eq!(column.stdout, "one\ntwo, or more\nthree\n");
}

#[test]
fn the_built_program_reads_and_writes_parquet() {
    let desk = Desk::new();
    desk.write("a.csv", TABLE);
    desk.data("convert @a.csv @a.parquet").ok().says("3 records");
    let head = desk.data("head -n 1 @a.parquet").ok();
    assert_eq!(head.stdout, "{\"id\":\"1\",\"text\":\"one\"}\n");
    desk.data("convert @a.parquet @b.csv").ok();
    assert_eq!(fs::read_to_string(desk.path("b.csv")).unwrap(), TABLE);
    desk.data("verify @a.parquet").ok();
}

#[test]
fn inspect_shows_format_records_chunks_and_index() {
    let desk = Desk::new();
    desk.write("a.txt", "one\ntwo\nthree\n");
    desk.data("convert @a.txt @a.rio --compressor gzip --chunk-size 6 --index")
        .ok();
    let view = desk.data("inspect --chunks -o json @a.rio @a.txt").ok().json();
    assert_eq!(view[0]["format"], "recordio");
    assert_eq!(view[0]["records"], 3);
    assert_eq!(view[0]["chunks"], 2);
    assert_eq!(view[0]["compressors"]["gzip"], 2);
    assert_eq!(view[0]["index"], true);
    assert_eq!(view[0]["chunk_list"][1]["first_record"], 2);
    assert_eq!(view[1]["format"], "lines");
    assert_eq!(view[1]["records"], 3);
    desk.data("inspect @a.rio")
        .ok()
        .prints("FILE\tFORMAT\tSIZE\tRECORDS\tCHUNKS\tCOMPRESSOR\tINDEX\tDAMAGE");
}

#[test]
fn damage_is_reported_by_every_command_and_skipped_only_on_request() {
    let desk = Desk::new();
    desk.write("a.txt", "one\ntwo\nsix\n");
    desk.data("convert @a.txt @a.rio --compressor none --chunk-size 1")
        .ok();
    // 20 bytes of header, 4 of length, 3 of record: the second chunk's record begins at 51.
    let mut bytes = fs::read(desk.path("a.rio")).unwrap();
    bytes[51] ^= 1;
    desk.write("a.rio", bytes);

    let verified = desk.data("verify -o json @a.rio @a.txt");
    assert_eq!(verified.code, Some(1), "{verified}");
    let view = verified.json();
    assert_eq!(view[0]["whole"], false);
    assert_eq!(view[0]["records"], 2);
    assert_eq!(view[0]["damage"][0]["offset"], 27);
    assert_eq!(view[0]["damage"][0]["end"], 54);
    assert_eq!(view[0]["damage"][0]["lost_records"], 1);
    assert_eq!(view[1]["whole"], true);
    verified.says("error: 1 of 2 files is damaged");
    desk.data("verify @a.rio")
        .says("is damaged at offset 27 (27 bytes, records lost: 1): checksum mismatch");

    let cat = desk.data("cat @a.rio");
    assert_eq!((cat.code, cat.stdout.as_str()), (Some(1), "one\n"), "{cat}");
    cat.says("is damaged at offset 27: checksum mismatch");
    let skipped = desk.data("cat --skip-damage 1Ki @a.rio").ok();
    assert_eq!(skipped.stdout, "one\nsix\n");
    skipped.says("note: ");
    desk.data("cat --skip-damage 26 @a.rio")
        .says("damaged beyond the bound");

    desk.data("convert @a.rio @b.txt")
        .refused(1)
        .says("--skip-damage");
    assert!(!fs::exists(desk.path("b.txt")).unwrap());
    desk.data("convert --skip-damage 1Ki @a.rio @b.txt")
        .ok()
        .says("records lost: 1");
    assert_eq!(fs::read_to_string(desk.path("b.txt")).unwrap(), "one\nsix\n");
}

#[test]
fn an_index_reveals_a_cut_between_two_chunks() {
    let desk = Desk::new();
    desk.write("a.txt", "one\ntwo\n");
    desk.data("convert @a.txt @a.rio --compressor none --chunk-size 1 --index")
        .ok();
    let bytes = fs::read(desk.path("a.rio")).unwrap();
    desk.write("a.rio", &bytes[..27]);
    let verified = desk.data("verify @a.rio");
    assert_eq!(verified.code, Some(1), "{verified}");
}

#[test]
fn invalid_data_commands_are_refused_with_a_reason() {
    let desk = Desk::new();
    desk.write("a.txt", "plain\n");
    desk.write("what", "?");
    for (line, code, words) in [
        ("", 2, "a subcommand is missing"),
        ("cat", 2, "is missing"),
        ("convert @a.txt", 2, "is missing"),
        ("convert @a.txt @b.csv", 1, "record 0 of"),
        (
            "convert @a.txt @b",
            1,
            "`--from` for the input, `--to` for the output",
        ),
        (
            "convert @what @b.rio",
            1,
            "cannot be determined from its name or contents",
        ),
        ("convert @a.txt @what --to recordio", 1, "`--force` replaces it"),
        (
            "convert @a.txt @b.rio --compressor lzma",
            2,
            "unknown compressor `lzma`",
        ),
        ("convert @a.txt @b.rio --from xml", 2, "unknown format `xml`"),
        ("cat @missing", 1, "cannot read"),
        ("cat --records x @a.txt", 2, "not a range of records"),
        (
            "split @a.txt -n 2 --out @job --header --no-header",
            2,
            "cannot be used with",
        ),
        ("split @a.txt -n 0 --out @job", 2, "not a number of nodes"),
        ("split @a.txt -n 2 --out @job --by record", 1, "is not RecordIO"),
    ] {
        desk.data(line).refused(code).says(words);
    }
}

#[test]
fn split_divides_and_can_be_repeated() {
    let desk = Desk::new();
    desk.write("a.txt", "0\n1\n2\n3\n4\n");
    for _ in 0..2 {
        let view = desk.data("split @a.txt -n 2 --out @job -o json").ok().json();
        assert_eq!(view["files"][0]["units"], 5);
        assert_eq!(view["files"][0]["by"], "line");
        assert_eq!(view["node_bytes"], serde_json::json!([6, 4]));
    }
    assert_eq!(
        fs::read_to_string(desk.path("job/0/data/a.txt")).unwrap(),
        "0\n2\n4\n"
    );
    assert_eq!(
        fs::read_to_string(desk.path("job/1/data/a.txt")).unwrap(),
        "1\n3\n"
    );
    assert!(fs::metadata(desk.path("job/output")).unwrap().is_dir());
}

#[test]
fn a_table_is_split_by_rows_and_an_unclosed_quote_is_damage() {
    let desk = Desk::new();
    desk.write("a.csv", "id,text\n1,\"two\nlines\"\n2,x\n");
    let view = desk.data("split @a.csv -n 2 --out @job -o json").ok().json();
    let file = &view["files"][0];
    assert_eq!(file["by"], "row");
    assert_eq!(file["units"], 2);
    assert_eq!(file["has_names"], true);
    let piece = |node: u32| fs::read_to_string(desk.path(&format!("job/{node}/data/a.csv"))).unwrap();
    assert_eq!(piece(0), "id,text\n1,\"two\nlines\"\n");
    assert_eq!(piece(1), "id,text\n2,x\n");
    desk.data("split @a.csv -n 2 --out @job")
        .ok()
        .says("is treated as a header and copied to every node; `--no-header` treats it as data");
    desk.data("verify @a.csv").ok();
    desk.write("torn.csv", "id,text\n1,\"two\n");
    let torn = desk.data("verify @torn.csv");
    assert_eq!(torn.code, Some(1), "{torn}");
    torn.says("torn.csv` has a quote in column 2 that is never closed")
        .says("1 of 1 file is damaged");
}

#[test]
fn data_commands_read_files_on_the_cluster() {
    let desk = Desk::new();
    desk.write("a.txt", "one\ntwo\n");
    desk.data("convert @a.txt @a.rio --compressor none --index").ok();
    let home = desk.env.paddlectl(&["whoami", "-o", "json"]).ok().json()["home"].clone();
    let remote = format!("{}/set/a.rio", home.as_str().unwrap());
    for end in ["", ".idx"] {
        let (here, there) = (desk.path("a.rio") + end, remote.clone() + end);
        desk.env.paddlectl(&["cp", &here, &there]).ok();
    }
    let cat = desk.data(&format!("cat {remote}")).ok();
    assert_eq!(cat.stdout, "one\ntwo\n");
    let view = desk.data(&format!("inspect -o json {remote}")).ok().json();
    assert_eq!(view[0]["file"], remote.as_str());
    assert_eq!(view[0]["index"], true, "the index comes along");
    desk.data(&format!("convert {remote} @b.csv"))
        .refused(1)
        .says(&format!("record 0 of `{remote}` is not a JSON object"));
    desk.data(&format!("cat {remote}.missing"))
        .refused(1)
        .says("a.rio.missing");
}
