//! Killed processes and full disks: in the end all files are complete, and nothing else is left.
//!
//! The tests start this very program again as the process that suffers (`PFS_FAULT_ROLE`).
#![allow(
    clippy::unwrap_used,
    reason = "the lint knows tests by their attribute, not their helpers"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use paddlecloud_pfs::content::{Assembly, AssemblyError, AssemblyPlan, CHUNK, ChunkTable, hash_file};
use paddlecloud_pfs::pack::{PackError, PackLimits, StagedTree, write_pack};
use paddlecloud_pfs::package::{ScanOptions, scan};
use paddlecloud_pfs::root::Durability;
use paddlecloud_pfs::store::OpenSpace;
use paddlecloud_pfs::{Digest, Existing, RelPath, Root, RootError, staging};

const ROLE: &str = "PFS_FAULT_ROLE";
const FOLDER: &str = "PFS_FAULT_FOLDER";

fn role() -> Option<PathBuf> {
    std::env::var_os(ROLE)
        .and(std::env::var_os(FOLDER))
        .map(PathBuf::from)
}

/// This program, told to run one test as the suffering process.
fn sufferer(test: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--include-ignored", "--exact", test, "--nocapture"])
        .env(ROLE, "sufferer")
        .env(FOLDER, folder);
    command
}

fn rel(text: &str) -> RelPath {
    text.parse().unwrap()
}

fn contents(folder: &Path) -> BTreeMap<PathBuf, Digest> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(current) = folders.pop() {
        for entry in fs::read_dir(current).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_path_buf();
                found.insert(name, hash_file(&fs::File::open(path).unwrap()).unwrap());
            }
        }
    }
    found
}

fn step(what: &str) {
    println!("step {what}");
}

/// A server that is started, clears up and takes in an upload of `source` to `target`: as the service does it.
fn upload(folder: &Path) {
    let target = Root::open(folder.join("target"))
        .unwrap()
        .with_durability(Durability::Relaxed);
    staging::clear_abandoned(&target).unwrap();
    step("cleared");
    upload_big(&folder.join("source/big"), &target, &folder.join("note"));
    upload_small(&folder.join("source/small"), &OpenSpace::Folder(target));
}

/// Resumes the recorded upload, or starts one and records it.
fn begin(target: &Root, plan: AssemblyPlan, note: &Path) -> Assembly {
    let noted = fs::read_to_string(note).ok().and_then(|id| id.parse().ok());
    if let Some(assembly) = noted.and_then(|id| Assembly::open(target, &id).ok()) {
        assert_eq!(*assembly.plan(), plan);
        return assembly;
    }
    let assembly = Assembly::create(target, plan).unwrap();
    fs::write(note.with_extension("new"), assembly.id().to_string()).unwrap();
    fs::rename(note.with_extension("new"), note).unwrap();
    assembly
}

fn upload_big(source: &Path, target: &Root, note: &Path) {
    let file = fs::File::open(source).unwrap();
    let table = ChunkTable::read(&file, 1).unwrap().unwrap();
    let digest = table.digest().unwrap();
    if let Ok((there, _)) = target.open_file(&rel("big"))
        && hash_file(&there).unwrap() == digest
    {
        return;
    }
    let plan = AssemblyPlan {
        path: rel("big"),
        size: table.size,
        executable: false,
        mtime: None,
    };
    let assembly = begin(target, plan, note);
    step("begun");
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut &file, &mut bytes).unwrap();
    for gap in assembly.missing() {
        for index in gap.start / CHUNK..gap.end.div_ceil(CHUNK) {
            let (offset, len) = assembly.layout().range(index).unwrap();
            let chunk = &bytes[offset as usize..(offset + len) as usize];
            assembly
                .put_chunk(index, table.names[index as usize], chunk)
                .unwrap();
            step("chunk");
        }
    }
    assembly.commit(digest, Existing::Replace).unwrap();
    step("published");
}

fn upload_small(source: &Path, target: &OpenSpace) {
    let scan = scan(source, &ScanOptions::default()).unwrap();
    let (stream, _) = write_pack(&Root::open(source).unwrap(), &scan.entries, Vec::new()).unwrap();
    let tree = StagedTree::create(target.staging()).unwrap();
    let mut unpacker = tree.unpacker(PackLimits::default());
    for piece in stream.chunks(60_000) {
        unpacker.feed(piece).unwrap();
        step("piece");
    }
    unpacker.finish_unpacking().unwrap();
    step("whole");
    let merged = target.merge(tree, &rel("small"), Existing::Replace).unwrap();
    assert!(merged.failed.is_empty() && merged.kept.is_empty(), "{merged:?}");
    step("merged");
}

#[test]
fn an_upload_killed_a_hundred_times_ends_complete_with_nothing_left_over() {
    if let Some(folder) = role() {
        return upload(&folder);
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    fs::create_dir_all(source.join("small/deep")).unwrap();
    fs::create_dir(folder.path().join("target")).unwrap();
    let noise: Vec<u8> = (0..5 * CHUNK as u32 + 77)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8)
        .collect();
    fs::write(source.join("big"), &noise).unwrap();
    for index in 0..40 {
        fs::write(
            source.join(format!("small/deep/{index}")),
            &noise[index * 5000..][..5000 + index],
        )
        .unwrap();
    }
    let name = "an_upload_killed_a_hundred_times_ends_complete_with_nothing_left_over";
    let mut kills = 0;
    for round in 0_u64.. {
        // A different moment each time, the same ones in each run of the test.
        let moment = 1 + (round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 9;
        if kills < 100 {
            kills += u32::from(killed_at(&mut sufferer(name, folder.path()), moment));
        } else if !killed_at(&mut sufferer(name, folder.path()), u64::MAX) {
            break;
        }
        check_no_part_is_visible(folder.path());
        // Begun again every now and then, so that there is something to kill: some meet what is there, some nothing.
        if kills < 100 && round % 3 == 0 && folder.path().join("target/small").exists() {
            let target = Root::open(folder.path().join("target")).unwrap();
            target.remove_all(&rel("small")).unwrap();
            if folder.path().join("target/big").exists() {
                target.remove(&rel("big")).unwrap();
            }
        }
    }
    let target = Root::open(folder.path().join("target")).unwrap();
    // What was begun, not written down and can be gone on with is the only thing that waits for its time.
    for lost in staging::unfinished(&target).unwrap() {
        Assembly::open(&target, &lost.id).unwrap().discard().unwrap();
    }
    assert_eq!(contents(&folder.path().join("target")), contents(&source));
    assert_eq!(
        fs::read_dir(folder.path().join("target")).unwrap().count(),
        2,
        "no temporary file stays"
    );
}

/// Runs until the given step and kills without warning; `false` when the process ended by itself before.
fn killed_at(command: &mut Command, moment: u64) -> bool {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut steps = 0;
    for line in lines {
        steps += u64::from(line.unwrap().contains("step "));
        if steps == moment {
            child.kill().unwrap();
            child.wait().unwrap();
            return true;
        }
    }
    assert!(child.wait().unwrap().success(), "the upload itself never fails");
    false
}

/// Every file that is seen is whole.
fn check_no_part_is_visible(folder: &Path) {
    let source = contents(&folder.join("source"));
    let mut seen = contents(&folder.join("target"));
    seen.retain(|path, _| !path.starts_with(".pfs-staging"));
    for (path, digest) in seen {
        assert_eq!(source.get(&path), Some(&digest), "{}", path.display());
    }
}

#[test]
#[ignore = "needs user namespaces"]
fn a_full_disk_is_reported_and_harms_nothing() {
    if let Some(folder) = role() {
        return fill_the_disk(&folder);
    }
    let folder = tempfile::tempdir().unwrap();
    // A small file system of its own, in a mount namespace that goes when the process does.
    let script = format!(
        "mount -t tmpfs -o size=10m none '{0}' && exec \"$@\"",
        folder.path().display()
    );
    let test = sufferer("a_full_disk_is_reported_and_harms_nothing", folder.path());
    let mut command = Command::new("unshare");
    command
        .args(["--map-root-user", "--mount", "sh", "-c", &script, "sh"])
        .arg(test.get_program())
        .args(test.get_args());
    command.env(ROLE, "sufferer").env(FOLDER, folder.path());
    assert!(command.status().unwrap().success());
}

fn fill_the_disk(folder: &Path) {
    let root = Root::open(folder).unwrap();
    assert!(
        root.free_space().unwrap().1 <= 10 << 20,
        "this must not run on a real disk"
    );
    root.write_file(&rel("old"), b"old content", Existing::Keep)
        .unwrap();

    let bytes = vec![1; 3 * CHUNK as usize];
    let plan = AssemblyPlan {
        path: rel("old"),
        size: bytes.len() as u64,
        executable: false,
        mtime: None,
    };
    let assembly = Assembly::create(&root, plan).unwrap();
    let error = assembly.put_range(0, &bytes).unwrap_err();
    assert!(
        matches!(error, AssemblyError::Storage(RootError::NoSpace(_))),
        "{error}"
    );
    assert!(matches!(
        assembly.commit(Digest::of(&bytes), Existing::Replace),
        Err(AssemblyError::Incomplete { .. })
    ));
    assembly.discard().unwrap();

    let source = tempfile::tempdir_in("/dev/shm").unwrap();
    fs::write(source.path().join("big"), &bytes).unwrap();
    let scan = scan(source.path(), &ScanOptions::default()).unwrap();
    let (stream, _) = write_pack(&Root::open(source.path()).unwrap(), &scan.entries, Vec::new()).unwrap();
    let tree = StagedTree::create(&root).unwrap();
    let error = tree.unpack(stream.as_slice(), PackLimits::default()).unwrap_err();
    assert!(
        matches!(error, PackError::Storage(RootError::NoSpace(_))),
        "{error}"
    );
    tree.discard().unwrap();

    assert_eq!(fs::read(folder.join("old")).unwrap(), b"old content");
    assert_eq!(
        fs::read_dir(folder).unwrap().count(),
        1,
        "nothing half-written stays"
    );
    root.write_file(&rel("new"), b"fits", Existing::Keep).unwrap();
}
