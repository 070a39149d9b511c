//! What a split promises: nothing lost, nothing duplicated, and it can be repeated.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use paddlecloud_recordio::{Compressor, FileWriter, RecordFile, WriteOptions, store_index};
use tempfile::TempDir;

use super::*;

struct SplitFolder {
    folder: TempDir,
}

impl SplitFolder {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("job")
    }

    fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join("set").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, contents).unwrap();
        path
    }

    fn split(&self, inputs: &[PathBuf], parts: u32, by: By) -> Result<Divided, DataError> {
        let request = Request {
            inputs: inputs.to_vec(),
            out: self.out(),
            parts: parts.to_string().parse().unwrap(),
            by,
            first_row: FirstRow::AsItLooks,
        };
        run(&request, &mut |_, _| {})
    }

    fn split_table(&self, table: &Path, first_row: FirstRow) -> Result<Divided, DataError> {
        let request = Request {
            inputs: vec![table.to_owned()],
            out: self.out(),
            parts: "2".parse().unwrap(),
            by: By::Auto,
            first_row,
        };
        run(&request, &mut |_, _| {})
    }

    fn piece(&self, part: u32, name: &str) -> PathBuf {
        self.out().join(part.to_string()).join("data").join(name)
    }

    fn text(&self, part: u32, name: &str) -> String {
        fs::read_to_string(self.piece(part, name)).unwrap()
    }

    /// Every file below the output folder, without hidden ones.
    fn tree(&self) -> Vec<String> {
        let mut found = Vec::new();
        list(&self.out(), &self.out(), &mut found);
        found.sort();
        found
    }
}

fn list(root: &Path, folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        if name.starts_with('.') {
            continue;
        }
        if path.is_dir() {
            found.push(format!("{name}/"));
            list(root, &path, found);
        } else {
            found.push(name);
        }
    }
}

fn problem(result: Result<Divided, DataError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn lines_go_round_and_every_node_sees_the_same_names() {
    let place = SplitFolder::new();
    let first = place.file("a.txt", "0\n1\n2\n3\n");
    let second = place.file("b.txt", "4\n5\n6");
    let divided = place.split(&[first, second], 3, By::Auto).unwrap();
    let units: Vec<_> = divided.files.iter().map(|file| (file.by, file.units)).collect();
    assert_eq!(units, [(By::Line, 4), (By::Line, 3)]);
    // The turn continues from file to file: nodes differ by one line at most.
    let all: Vec<String> = (0..3)
        .map(|part| place.text(part, "a.txt") + "|" + &place.text(part, "b.txt"))
        .collect();
    assert_eq!(all, ["0\n3\n|6", "1\n|4\n", "2\n|5\n"]);
    let tree = [
        "0/",
        "0/data/",
        "0/data/a.txt",
        "0/data/b.txt",
        "1/",
        "1/data/",
        "1/data/a.txt",
        "1/data/b.txt",
        "2/",
        "2/data/",
        "2/data/a.txt",
        "2/data/b.txt",
        "output/",
    ];
    assert_eq!(place.tree(), tree);
}

#[test]
fn rows_of_a_table_stay_whole_and_every_node_has_the_names() {
    let place = SplitFolder::new();
    let table = place.file(
        "a.csv",
        "id,note\r\n1,\"two\r\nlines\"\r\n2,\"a, \"\"b\"\"\"\r\n\r\n3,x",
    );
    let divided = place.split_table(&table, FirstRow::AsItLooks).unwrap();
    let file = &divided.files[0];
    assert_eq!((file.by, file.units, file.has_names), (By::Row, 3, true));
    assert_eq!(place.text(0, "a.csv"), "id,note\r\n1,\"two\r\nlines\"\r\n3,x");
    assert_eq!(place.text(1, "a.csv"), "id,note\r\n2,\"a, \"\"b\"\"\"\r\n");
}

#[test]
fn a_first_row_of_numbers_is_data_unless_declared_as_names() {
    let place = SplitFolder::new();
    let halves = || (place.text(0, "a.csv"), place.text(1, "a.csv"));
    let (first, second) = ("1,x\n3,z\n".to_owned(), "2,y\n".to_owned());
    let table = place.file("a.csv", "1,x\n2,y\n3,z\n");
    assert!(!place.split_table(&table, FirstRow::AsItLooks).unwrap().files[0].has_names);
    assert_eq!(halves(), (first, second));
    assert!(place.split_table(&table, FirstRow::Names).unwrap().files[0].has_names);
    assert_eq!(halves(), ("1,x\n2,y\n".to_owned(), "1,x\n3,z\n".to_owned()));
    let words = place.file("b.csv", "great,good\nbad,worse\n");
    place.split_table(&words, FirstRow::Data).unwrap();
    assert_eq!(
        place.text(0, "b.csv") + &place.text(1, "b.csv"),
        "great,good\nbad,worse\n"
    );
}

#[test]
fn a_table_with_an_unclosed_quote_is_refused_with_its_line() {
    let place = SplitFolder::new();
    let table = place.file("a.csv", "id,note\n1,\"open\n2,x\n");
    let problem = problem(place.split_table(&table, FirstRow::AsItLooks));
    assert!(
        problem.starts_with("line 2 of") && problem.ends_with("has a quote in column 2 that is never closed"),
        "{problem}"
    );
    assert!(!place.out().exists());
}

#[test]
fn gzip_stays_gzip_and_members_are_all_read() {
    let place = SplitFolder::new();
    let mut packed = Vec::new();
    for text in ["a\nb\n", "c\nd\ne\n"] {
        let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(text.as_bytes()).unwrap();
        packed.extend(gzip.finish().unwrap());
    }
    let file = place.file("x.txt.gz", &packed);
    place.split(std::slice::from_ref(&file), 2, By::Line).unwrap();
    let unpacked = |part| {
        let mut text = String::new();
        let piece = fs::File::open(place.piece(part, "x.txt.gz")).unwrap();
        MultiGzDecoder::new(piece).read_to_string(&mut text).unwrap();
        text
    };
    assert_eq!(
        (unpacked(0).as_str(), unpacked(1).as_str()),
        ("a\nc\ne\n", "b\nd\n")
    );
    // A truncated file is an error, not fewer lines.
    fs::write(&file, &packed[..packed.len() - 3]).unwrap();
    assert!(place.split(&[file], 2, By::Line).is_err());
    assert_eq!(unpacked(0), "a\nc\ne\n", "what was there before is still there");
}

#[test]
fn records_go_round_with_their_compressor_and_more_nodes_than_fit_at_once() {
    let place = SplitFolder::new();
    let path = place.file("train.rio", "");
    let mut writer = FileWriter::create(
        &path,
        WriteOptions::new().compressor(Compressor::Gzip).chunk_size(64),
    )
    .unwrap();
    let records: Vec<String> = (0..500).map(|n| format!("record {n}")).collect();
    for record in &records {
        writer.write(record.as_bytes()).unwrap();
    }
    writer.finish().unwrap();
    store_index(&path, RecordFile::open(&path).unwrap().index()).unwrap();
    let set = place.folder.path().join("set");
    let divided = place.split(&[set], 150, By::Auto).unwrap();
    assert_eq!(divided.files.len(), 1, "the index beside the file is no data");
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for part in 0..150 {
        let file = RecordFile::open(place.piece(part, "train.rio")).unwrap();
        assert!(matches!(file.len(), 3 | 4));
        assert_eq!(file.index().chunks()[0].header.compressor, Compressor::Gzip);
        let mut reader = file.records();
        while let Some(record) = reader.next_record().unwrap() {
            *seen
                .entry(String::from_utf8(record.to_vec()).unwrap())
                .or_default() += 1;
        }
    }
    assert_eq!(seen.len(), 500);
    assert!(seen.values().all(|count| *count == 1));
}

#[test]
fn damage_ends_a_division_and_names_the_place() {
    let place = SplitFolder::new();
    let path = place.file("train.rio", "");
    let mut writer = FileWriter::create(&path, WriteOptions::new().compressor(Compressor::None)).unwrap();
    writer.write(b"hello").unwrap();
    writer.finish().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let problem = problem(place.split(&[path], 2, By::Record));
    assert!(
        problem.contains("is damaged at offset 0: checksum mismatch"),
        "{problem}"
    );
    assert!(!place.out().exists());
}

#[test]
fn whole_files_go_to_the_node_that_has_least() {
    let place = SplitFolder::new();
    let sizes = [10, 70, 20, 40, 30];
    let files: Vec<PathBuf> = sizes
        .iter()
        .enumerate()
        .map(|(n, size)| place.file(&format!("{n}.bin"), vec![0; *size]))
        .collect();
    let divided = place.split(&files, 2, By::Auto).unwrap();
    assert!(divided.files.iter().all(|file| file.by == By::File));
    assert_eq!(divided.part_bytes, [90, 80]);
}

#[test]
fn a_repeated_run_replaces_and_a_smaller_one_removes_extra_pieces() {
    let place = SplitFolder::new();
    let file = place.file("a.txt", "0\n1\n2\n3\n");
    place.split(std::slice::from_ref(&file), 4, By::Auto).unwrap();
    fs::write(place.out().join("3/notes"), "mine").unwrap();
    fs::write(place.out().join("output/model"), "mine").unwrap();
    fs::write(&file, "x\ny\n").unwrap();
    place.split(std::slice::from_ref(&file), 2, By::Auto).unwrap();
    let tree = [
        "0/",
        "0/data/",
        "0/data/a.txt",
        "1/",
        "1/data/",
        "1/data/a.txt",
        "3/",
        "3/notes",
        "output/",
        "output/model",
    ];
    assert_eq!(place.tree(), tree);
    assert_eq!(place.text(0, "a.txt") + &place.text(1, "a.txt"), "x\ny\n");
    assert_eq!(
        fs::read_to_string(file).unwrap(),
        "x\ny\n",
        "the data set is only read"
    );
}

#[test]
fn a_run_interrupted_during_the_exchange_is_created_again() {
    let place = SplitFolder::new();
    let file = place.file("a.txt", "0\n1\n2\n");
    place.split(std::slice::from_ref(&file), 3, By::Auto).unwrap();
    // As a crash leaves it: the manifest says so, one folder is new, one is gone, one is old.
    let note = fs::read_to_string(place.out().join(MANIFEST)).unwrap();
    let broken = note.replace("\"done\"", "\"exchanging\"");
    assert_ne!(note, broken);
    fs::write(place.out().join(MANIFEST), broken).unwrap();
    fs::remove_dir_all(place.piece(1, "")).unwrap();
    fs::create_dir_all(place.out().join(".paddle-data.tmp/old-1")).unwrap();
    place.split(&[file], 2, By::Auto).unwrap();
    assert_eq!(place.text(0, "a.txt") + &place.text(1, "a.txt"), "0\n2\n1\n");
    assert!(!place.out().join("2").exists());
    assert!(!place.out().join(".paddle-data.tmp").exists());
}

#[test]
fn foreign_data_is_left_alone() {
    let place = SplitFolder::new();
    let file = place.file("a.txt", "0\n");
    fs::create_dir_all(place.out().join("1/data")).unwrap();
    let problem = problem(place.split(&[file], 2, By::Auto));
    assert!(problem.contains("was not created by a split"), "{problem}");
}

#[test]
fn two_runs_at_once_do_not_mix() {
    let place = SplitFolder::new();
    let file = place.file("a.txt", "0\n");
    let held = Tree::open(&place.out(), "1".parse().unwrap()).unwrap();
    let problem = problem(place.split(std::slice::from_ref(&file), 1, By::Auto));
    assert!(problem.contains("by another split"), "{problem}");
    drop(held);
    place.split(&[file], 1, By::Auto).unwrap();
}

#[test]
fn without_names_the_data_set_of_the_document_is_divided() {
    let place = SplitFolder::new();
    let problem = problem(place.split(&[], 2, By::Auto));
    assert!(problem.contains("no files to split were named"), "{problem}");
    let set = place.out().join("quick_start/data");
    fs::create_dir_all(&set).unwrap();
    fs::write(set.join("train.txt"), "0\n1\n").unwrap();
    fs::write(set.join(".hidden"), "no data").unwrap();
    place.split(&[], 2, By::Auto).unwrap();
    assert_eq!(place.text(1, "data/train.txt"), "1\n");
}

#[test]
fn impossible_splits_are_refused() {
    let place = SplitFolder::new();
    let text = place.file("a.txt", "0\n");
    let binary = place.file("a.bin", [0, 1, 2]);
    let same_name = place.file("other/a.txt", "0\n");
    let table = place.file("a.csv", "a,b\n");
    let cases = [
        (vec![table], By::Record, "split it by row"),
        (vec![binary.clone()], By::Row, "it has no rows"),
        (vec![text.clone()], By::Record, "is not RecordIO"),
        (vec![binary], By::Line, "is not text"),
        (vec![text.clone(), same_name], By::Line, "have the same name"),
        (vec![place.folder.path().join("missing")], By::Auto, "cannot read"),
    ];
    for (inputs, by, words) in cases {
        let problem = problem(place.split(&inputs, 2, by));
        assert!(problem.contains(words), "{problem}");
    }
    place.split(&[text], 2, By::Auto).unwrap();
    let own = place.piece(0, "a.txt");
    let problem = problem(place.split(&[own], 2, By::Auto));
    assert!(problem.contains("is inside the output folder"), "{problem}");
}

#[test]
fn the_number_of_nodes_is_checked() {
    for bad in ["0", "-1", "three", "", "10001", "1.5"] {
        assert!(bad.parse::<PartCount>().is_err(), "{bad}");
    }
    assert_eq!(" 3\n".parse::<PartCount>().unwrap().get(), 3);
}

#[test]
fn a_file_where_a_folder_must_be_is_named_before_anything_is_touched() {
    let place = SplitFolder::new();
    let set = place.file("a.txt", "1\n2\n3\n4\n");
    place.split(std::slice::from_ref(&set), 2, By::Line).unwrap();
    fs::write(place.out().join("2"), "mine").unwrap();
    let error = place.split(&[set], 4, By::Line).unwrap_err().to_string();
    assert!(error.contains("is not a folder"), "{error}");
    assert_eq!(fs::read_to_string(place.piece(0, "a.txt")).unwrap(), "1\n3\n");
    assert_eq!(fs::read_to_string(place.piece(1, "a.txt")).unwrap(), "2\n4\n");
    assert_eq!(fs::read_to_string(place.out().join("2")).unwrap(), "mine");
}

/// A folder of another file system in the second position: nothing can be renamed out of it.
#[cfg(target_os = "linux")]
#[test]
fn a_failed_exchange_is_rolled_back() {
    let place = SplitFolder::new();
    let old = place.file("a.txt", "1\n2\n");
    place.split(&[old], 2, By::Line).unwrap();
    let note = fs::read(place.out().join(MANIFEST)).unwrap();

    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    fs::create_dir(elsewhere.path().join("data")).unwrap();
    fs::copy(place.piece(1, "a.txt"), elsewhere.path().join("data/a.txt")).unwrap();
    fs::remove_dir_all(place.out().join("1")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), place.out().join("1")).unwrap();

    let new = place.file("b.txt", "3\n4\n5\n");
    place.split(&[new], 3, By::Line).unwrap_err();
    assert_eq!(fs::read_to_string(place.piece(0, "a.txt")).unwrap(), "1\n");
    assert_eq!(fs::read_to_string(place.piece(1, "a.txt")).unwrap(), "2\n");
    assert!(!place.piece(0, "b.txt").exists() && !place.out().join("2").exists());
    assert_eq!(fs::read(place.out().join(MANIFEST)).unwrap(), note);
    assert!(!place.out().join(".paddle-data.tmp").exists());
}

#[test]
fn foreign_files_among_the_data_are_named_and_kept() {
    let place = SplitFolder::new();
    place.file("a.txt", "1\n2\n");
    place.file("below/b.txt", "3\n4\n");
    let set = [place.folder.path().join("set")];
    place.split(&set, 2, By::Line).unwrap();
    place.split(&set, 2, By::Line).unwrap();
    for own in ["own", "below/own", "mine/a.txt", "below/a.txt"] {
        let own = place.piece(1, own);
        let is_new_folder = fs::create_dir(own.parent().unwrap()).is_ok();
        fs::write(&own, "mine").unwrap();
        let problem = problem(place.split(&set, 1, By::Line));
        assert!(
            problem.contains("was not created by the previous split"),
            "{problem}"
        );
        assert_eq!(fs::read_to_string(&own).unwrap(), "mine");
        assert_eq!(place.text(0, "a.txt"), "1\n");
        fs::remove_file(&own).unwrap();
        if is_new_folder {
            fs::remove_dir(own.parent().unwrap()).unwrap();
        }
    }
    place.split(&set, 1, By::Line).unwrap();
}

/// Half of the folders have the files of one split, half those of the other; both are ours.
#[test]
fn an_interrupted_exchange_leaves_no_foreign_files() {
    let place = SplitFolder::new();
    let old = place.file("a.txt", "1\n2\n");
    place.split(&[old], 2, By::Line).unwrap();
    let before = Note::parse(&fs::read(place.out().join(MANIFEST)).unwrap()).unwrap();
    let set = place.file("b.txt", "3\n4\n");
    place.split(std::slice::from_ref(&set), 2, By::Line).unwrap();
    let note = Note::parse(&fs::read(place.out().join(MANIFEST)).unwrap()).unwrap();
    fs::remove_file(place.piece(1, "b.txt")).unwrap();
    fs::write(place.piece(1, "a.txt"), "2\n").unwrap();
    let note = note.exchanging(2, Some(&before)).to_json();
    fs::write(place.out().join(MANIFEST), note).unwrap();
    place.split(&[set], 2, By::Line).unwrap();
    assert_eq!(place.text(1, "b.txt"), "4\n");
    assert!(!place.piece(1, "a.txt").exists());
}

#[test]
fn a_file_that_contradicts_its_name_is_refused_unless_kept_undivided() {
    let place = SplitFolder::new();
    let path = place.file("a.rio", "");
    let mut writer = FileWriter::create(&path, WriteOptions::new()).unwrap();
    writer.write(b"record").unwrap();
    writer.finish().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[0] ^= 1;
    let utf16: Vec<u8> = "a,b\n1,2\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(3);
    archive.append_data(&mut header, "a.txt", &b"abc"[..]).unwrap();
    let archive = archive.into_inner().unwrap();
    let cases = [
        ("a.rio", bytes.clone(), "is damaged at offset 0"),
        ("b.recordio", bytes[..3].to_vec(), "is damaged at offset 0"),
        (
            "a.parquet",
            b"PAR1 and no more".to_vec(),
            "cannot be read as Parquet",
        ),
        ("b.parquet", b"lines\n".to_vec(), "cannot be read as Parquet"),
        ("a.tar", archive[..514].to_vec(), "truncated"),
        ("a.csv", [b"\xff\xfe".to_vec(), utf16].concat(), "is not UTF-8"),
        ("a.jsonl", b"{}\n{\n".to_vec(), "line 2 of"),
    ];
    for (name, bytes, words) in cases {
        let file = [place.file(name, bytes)];
        let problem = problem(place.split(&file, 2, By::Auto));
        assert!(problem.contains(words), "{name}: {problem}");
        assert!(!place.out().exists(), "{name}");
        let whole = place.split(&file, 2, By::File).unwrap();
        assert_eq!(whole.files[0].units, 1, "{name}");
        fs::remove_dir_all(place.out()).unwrap();
    }
    let whole = [
        place.file("empty.rio", ""),
        place.file("b.tar", archive),
        place.file("b.jsonl", "{}\n"),
    ];
    let divided = place.split(&whole, 2, By::Auto).unwrap();
    let by: Vec<By> = divided.files.iter().map(|file| file.by).collect();
    assert_eq!(by, [By::Record, By::File, By::Line]);
}
