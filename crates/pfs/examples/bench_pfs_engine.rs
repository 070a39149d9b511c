//! Measures what the transfer engine costs by itself, without a network: hashing, matching, packing.
//!
//! `cargo run --release -p paddlecloud-pfs --example bench_pfs_engine -- <folder> [megabytes]`; the folder chooses the
//! file system (tmpfs shows the program, a disk shows what syncing costs). Everything made there is removed.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use paddlecloud_pfs::content::{
    Assembly, AssemblyPlan, CHUNK, ChunkTable, Op, Signature, StatCache, hash_file,
};
use paddlecloud_pfs::pack::{PackLimits, StagedTree, write_pack};
use paddlecloud_pfs::package::{ScanOptions, scan};
use paddlecloud_pfs::root::Durability;
use paddlecloud_pfs::{Digest, Existing, RelPath, Root};

type Outcome<T> = Result<T, Box<dyn Error>>;

const SMALL_FILES: usize = 10_000;
const SMALL_SIZE: usize = 10 << 10;

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(
        args.next()
            .ok_or("usage: bench_pfs_engine <folder> [megabytes]")?,
    );
    let megabytes: u64 = args.next().map_or(Ok(2000), |text| text.parse())?;
    let work = folder.join(format!("bench-pfs-{}", std::process::id()));
    fs::create_dir(&work)?;
    let outcome = run(&work, megabytes * 1_000_000);
    fs::remove_dir_all(&work)?;
    outcome
}

fn run(work: &Path, size: u64) -> Outcome<()> {
    let source = work.join("source");
    fs::create_dir(&source)?;
    let big = source.join("big");
    write_noise(&big, size)?;
    one_file(work, &big, size)?;
    delta(work, &big, size)?;
    fs::remove_dir_all(&source)?;
    small_files(work)
}

fn one_file(work: &Path, big: &Path, size: u64) -> Outcome<()> {
    let file = File::open(big)?;
    let digest = rate("hash the file, one thread", size, || Ok(hash_file(&file)?))?;
    for threads in [1, 2] {
        let table = rate(&format!("name its chunks, {threads} threads"), size, || {
            ChunkTable::read(&file, threads)?.ok_or_else(|| "the file changed".into())
        })?;
        assert_eq!(table.digest(), Some(digest));
    }
    let table = ChunkTable::read(&file, 2)?.ok_or("the file changed")?;
    let target = work.join("target");
    fs::create_dir(&target)?;
    for durability in [Durability::Relaxed, Durability::Synced] {
        let root = Root::open(&target)?.with_durability(durability);
        rate(
            &format!("receive it chunk by chunk, {durability:?}"),
            size,
            || receive(&root, &file, &table, digest),
        )?;
    }
    fs::remove_dir_all(target)?;
    Ok(())
}

fn receive(root: &Root, file: &File, table: &ChunkTable, digest: Digest) -> Outcome<()> {
    let plan = AssemblyPlan {
        path: "big".parse()?,
        size: table.size,
        executable: false,
        mtime: None,
    };
    let assembly = Assembly::create(root, plan)?;
    let mut buffer = vec![0; 256 << 10];
    for (index, name) in table.names.iter().enumerate() {
        let (mut offset, len) = assembly
            .layout()
            .range(index as u64)
            .ok_or("a chunk of the file")?;
        let end = offset + len;
        let mut writer = assembly.chunk(index as u64)?;
        while offset < end {
            let step = buffer.len().min((end - offset) as usize);
            std::os::unix::fs::FileExt::read_exact_at(file, &mut buffer[..step], offset)?;
            writer.write(&buffer[..step])?;
            offset += step as u64;
        }
        writer.finish(Some(*name))?;
    }
    assembly.commit(digest, Existing::Replace)?;
    Ok(())
}

fn delta(work: &Path, big: &Path, size: u64) -> Outcome<()> {
    let old = File::open(big)?;
    let signature = rate("sum up the old file", size, || Ok(Signature::of(&old)?))?;
    let signature_bytes = signature.encode().len() as u64;
    let middle = size / 2 + 12_345;
    let edits = [
        (
            "1 MB changed",
            Edit {
                at: middle,
                removed: 1_000_000,
                inserted: 1_000_000,
            },
        ),
        (
            "1 MB inserted",
            Edit {
                at: middle,
                removed: 0,
                inserted: 1_000_000,
            },
        ),
    ];
    for (name, edit) in edits {
        let path = work.join("edited");
        write_edited(&path, big, &edit)?;
        let new = File::open(&path)?;
        let ops = rate(&format!("match the file, {name}"), size, || {
            Ok(signature.diff(&new)?)
        })?;
        let sent: u64 = ops
            .iter()
            .map(|op| if let Op::Send { len, .. } = op { *len } else { 0 })
            .sum();
        let total = sent + signature_bytes;
        println!(
            "    {sent} bytes sent + {signature_bytes} of sums = {:.3} %",
            total as f64 / size as f64 * 100.0
        );
        fs::remove_file(path)?;
    }
    Ok(())
}

fn small_files(work: &Path) -> Outcome<()> {
    let source = work.join("small");
    for index in 0..SMALL_FILES {
        let folder = source.join(format!("{:02}", index % 100));
        fs::create_dir_all(&folder)?;
        fs::write(
            folder.join(format!("{index:05}")),
            noise(SMALL_SIZE, index as u64),
        )?;
    }
    let root = Root::open(&source)?;
    let listed = files("list 10,000 files", || {
        let walked: Result<Vec<_>, _> = root.walk(&RelPath::root()).collect();
        let entries = walked?.into_iter().map(|found| found.into_entry());
        Ok(entries
            .collect::<Result<Vec<_>, _>>()
            .map_err(|path| path.to_string())?)
    })?;
    let cache = StatCache::new();
    let reading = ScanOptions {
        known: Some(&cache),
        ..ScanOptions::default()
    };
    files("scan them with digests", || Ok(scan(&source, &reading)?))?;
    wait_until_stamps_count(&source, &reading, &cache)?;
    files("scan them again, nothing changed", || {
        Ok(scan(&source, &reading)?)
    })?;

    let (stream, _) = files("pack them", || Ok(write_pack(&root, &listed, Vec::new())?))?;
    let target = work.join("unpacked");
    fs::create_dir(&target)?;
    for durability in [Durability::Relaxed, Durability::Synced] {
        let root = Root::open(&target)?.with_durability(durability);
        files(&format!("unpack, check and publish, {durability:?}"), || {
            let tree = StagedTree::create(&root)?;
            tree.unpack(stream.as_slice(), PackLimits::default())?;
            Ok(tree.publish(&RelPath::from_bytes(b"tree")?, Existing::Replace)?)
        })?;
    }
    Ok(())
}

/// Stamps count only once files have rested for two seconds.
fn wait_until_stamps_count(source: &Path, reading: &ScanOptions<'_>, cache: &StatCache) -> Outcome<()> {
    while cache.len() < SMALL_FILES {
        std::thread::sleep(std::time::Duration::from_millis(200));
        scan(source, reading)?;
    }
    Ok(())
}

fn rate<T>(what: &str, bytes: u64, work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let start = Instant::now();
    let outcome = work()?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{what:<45} {:>8.0} MB/s", bytes as f64 / 1e6 / seconds);
    Ok(outcome)
}

fn files<T>(what: &str, work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let start = Instant::now();
    let outcome = work()?;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{what:<45} {:>8.0} files/s ({:.0} ms)",
        SMALL_FILES as f64 / seconds,
        seconds * 1e3
    );
    Ok(outcome)
}

struct Edit {
    at: u64,
    removed: u64,
    inserted: usize,
}

fn write_edited(path: &Path, old: &Path, edit: &Edit) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    let mut head = io::Read::take(File::open(old)?, edit.at);
    io::copy(&mut head, &mut out)?;
    out.write_all(&noise(edit.inserted, u64::MAX))?;
    let mut tail = File::open(old)?;
    io::Seek::seek(&mut tail, io::SeekFrom::Start(edit.at + edit.removed))?;
    io::copy(&mut tail, &mut out)?;
    out.flush()
}

fn write_noise(path: &Path, size: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    let mut left = size;
    let mut seed = 0;
    while left > 0 {
        let piece = noise(left.min(CHUNK) as usize, seed);
        file.write_all(&piece)?;
        left -= piece.len() as u64;
        seed += 1;
    }
    Ok(())
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    let mut out = vec![0; len];
    hasher.finalize_xof().fill(&mut out);
    out
}
