//! Files are published complete or not at all, whatever the order of pieces, restarts and damage.

use std::fs;
use std::io::Write as _;

use super::*;
use crate::content::ChunkTable;
use crate::testing::{leftovers, rel, scratch};

const SIZE: usize = 2 * CHUNK as usize + 1000;

fn content() -> Vec<u8> {
    (0..SIZE as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

fn table(bytes: &[u8]) -> ChunkTable {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    ChunkTable::read(&file, 2).unwrap().unwrap()
}

fn plan(size: usize) -> AssemblyPlan {
    let mtime = Some(Mtime::new(1_000_000, 5));
    AssemblyPlan {
        path: rel("f"),
        size: size as u64,
        executable: true,
        mtime,
    }
}

fn piece(bytes: &[u8], index: usize) -> &[u8] {
    bytes.chunks(CHUNK as usize).nth(index).unwrap()
}

#[test]
fn chunks_arrive_in_any_order_and_the_file_appears_once_complete() {
    let (folder, root) = scratch();
    let bytes = content();
    let table = table(&bytes);
    let assembly = Assembly::create(&root, plan(SIZE)).unwrap();
    for index in [2, 0, 1] {
        assert!(!folder.path().join("f").exists());
        let error = assembly.commit(Digest::of(&bytes), Existing::Keep).unwrap_err();
        assert!(matches!(error, AssemblyError::Incomplete { .. }));
        assembly
            .put_chunk(index as u64, table.names[index], piece(&bytes, index))
            .unwrap();
    }
    let meta = assembly.commit(Digest::of(&bytes), Existing::Keep).unwrap();
    assert!(meta.executable && meta.mtime == Mtime::new(1_000_000, 5));
    assert_eq!(fs::read(folder.path().join("f")).unwrap(), bytes);
    assert_eq!(leftovers(folder.path()), ["f"]);
}

#[test]
fn a_failed_creation_leaves_nothing() {
    let (folder, root) = scratch();
    let mut plan = plan(SIZE);
    // No file system allows this size; the error is the same as for a quota.
    plan.size = i64::MAX as u64;
    assert!(Assembly::create(&root, plan).is_err());
    assert_eq!(leftovers(folder.path()), Vec::<String>::new());
}

#[test]
fn writes_during_publishing_are_refused_immediately() {
    let (folder, root) = scratch();
    let (here, there) = (plan(5), rel("g"));
    let assembly = Assembly::create(&root, here).unwrap();
    assembly.put_range(0, b"hello").unwrap();
    let mut refused = None;
    let committed = assembly.commit_elsewhere(Some(Digest::of(b"hello")), |_| {
        // Runs on the publishing thread: waiting here would deadlock.
        refused = assembly.put_range(0, b"again").err();
        root.write_file(&there, b"hello", Existing::Keep)?;
        root.stat(&there)
    });
    assert_eq!(committed.unwrap().size, 5);
    assert!(matches!(refused, Some(AssemblyError::Ending(_))), "{refused:?}");
    let late = assembly.put_range(0, b"again").unwrap_err();
    assert!(matches!(late, AssemblyError::Finished(_)), "{late:?}");
    assert_eq!(fs::read(folder.path().join("g")).unwrap(), b"hello");
}

#[test]
fn a_discarded_assembly_frees_its_space_while_open() {
    let (folder, root) = scratch();
    let held = Assembly::create(&root, plan(5)).unwrap();
    held.put_range(0, b"hello").unwrap();
    held.clone().discard().unwrap();
    assert_eq!(held.0.disk.data.metadata().unwrap().len(), 0);
    assert_eq!(leftovers(folder.path()), Vec::<String>::new());

    let published = Assembly::create(&root, plan(5)).unwrap();
    published.put_range(0, b"hello").unwrap();
    published.commit(Digest::of(b"hello"), Existing::Keep).unwrap();
    drop(published.clone().discard());
    assert_eq!(
        fs::read(folder.path().join("f")).unwrap(),
        b"hello",
        "it has its name"
    );
}

#[test]
fn bytes_appended_to_a_staged_file_prevent_its_commit() {
    let (folder, root) = scratch();
    let assembly = Assembly::create(&root, plan(5)).unwrap();
    assembly.put_range(0, b"01234").unwrap();
    let data = folder.path().join(format!(".pfs-staging/{}/data", assembly.id()));
    let mut data = fs::OpenOptions::new().append(true).open(data).unwrap();
    data.write_all(b"more").unwrap();
    let error = assembly.commit(Digest::of(b"01234"), Existing::Keep).unwrap_err();
    assert!(
        matches!(error, AssemblyError::Storage(RootError::Changing(_))),
        "{error}"
    );
    assert!(!folder.path().join("f").exists());
}

#[test]
fn an_empty_file_needs_no_chunk() {
    let (folder, root) = scratch();
    let assembly = Assembly::create(&root, plan(0)).unwrap();
    assembly.commit(Digest::of(b""), Existing::Keep).unwrap();
    assert_eq!(fs::read(folder.path().join("f")).unwrap(), b"");
}

#[test]
fn received_chunks_are_not_requested_again_after_a_restart() {
    let (folder, root) = scratch();
    let bytes = content();
    let table = table(&bytes);
    let first = Assembly::create(&root, plan(SIZE)).unwrap();
    let id = first.id().clone();
    first.put_chunk(1, table.names[1], piece(&bytes, 1)).unwrap();
    let mut torn = first.chunk(0).unwrap();
    torn.write(&piece(&bytes, 0)[..1000]).unwrap();
    drop((first, torn));
    let journal = folder.path().join(format!(".pfs-staging/{id}/journal"));
    fs::OpenOptions::new()
        .append(true)
        .open(journal)
        .unwrap()
        .write_all(&[1; 40])
        .unwrap();

    let again = Assembly::open(&root, &id).unwrap();
    assert_eq!(again.plan(), &plan(SIZE));
    assert_eq!(again.missing(), [0..CHUNK, 2 * CHUNK..SIZE as u64]);
    for index in [0, 2] {
        again
            .put_chunk(index as u64, table.names[index], piece(&bytes, index))
            .unwrap();
    }
    again.commit(Digest::of(&bytes), Existing::Keep).unwrap();
    assert_eq!(fs::read(folder.path().join("f")).unwrap(), bytes);
}

#[test]
fn resuming_reports_verified_chunks_and_their_age() {
    let (_folder, root) = scratch();
    let bytes = content();
    let table = table(&bytes);
    let before = SystemTime::now();
    let assembly = Assembly::create(&root, plan(SIZE)).unwrap();
    let id = assembly.id().clone();
    assembly.put_chunk(1, table.names[1], piece(&bytes, 1)).unwrap();
    assembly.put_range(0, &bytes[..10]).unwrap();
    drop(assembly);
    let again = Assembly::open(&root, &id).unwrap();
    assert_eq!(
        again.checked(),
        [(1, table.names[1])],
        "unchecked bytes have no name"
    );
    assert!(again.age().unwrap() <= before.elapsed().unwrap());
}

#[test]
fn the_outline_of_an_open_upload_can_be_read() {
    let (_folder, root) = scratch();
    let bytes = content();
    let assembly = Assembly::create(&root, plan(SIZE)).unwrap();
    let outline = || Assembly::outline(&root, assembly.id()).unwrap();
    assert_eq!((outline().plan, outline().arrived), (plan(SIZE), 0));
    let name = table(&bytes).names[1];
    assembly.put_chunk(1, name, piece(&bytes, 1)).unwrap();
    assembly.put_range(0, &bytes[..10]).unwrap();
    assert_eq!(outline().arrived, CHUNK + 10);
    let id = assembly.id().clone();
    assembly.discard().unwrap();
    assert_eq!(Assembly::outline(&root, &id), None);
}

#[test]
fn after_a_power_cut_only_readable_chunks_count() {
    let (folder, root) = scratch();
    let bytes = content();
    let table = table(&bytes);
    let first = Assembly::create(&root, plan(SIZE)).unwrap();
    for index in [0, 1] {
        first
            .put_chunk(index as u64, table.names[index], piece(&bytes, index))
            .unwrap();
    }
    first.put_range(2 * CHUNK, piece(&bytes, 2)).unwrap();
    let staged = folder.path().join(format!(".pfs-staging/{}", first.id()));
    // The state after a power cut: another boot id, and a page of chunk 1 that never reached the disk.
    let state = fs::read_to_string(staged.join("state"))
        .unwrap()
        .replace(&crate::sys::boot_id(), "earlier");
    fs::write(staged.join("state"), state).unwrap();
    let data = fs::OpenOptions::new()
        .write(true)
        .open(staged.join("data"))
        .unwrap();
    data.write_all_at(&[0; 4096], CHUNK + 8192).unwrap();
    let id = first.id().clone();
    drop(first);

    let again = Assembly::open(&root, &id).unwrap();
    assert_eq!(again.missing(), std::slice::from_ref(&(CHUNK..SIZE as u64)));
}

#[test]
fn two_connections_share_received_chunks() {
    let (_folder, root) = scratch();
    let bytes = content();
    let table = table(&bytes);
    let one = Assembly::create(&root, plan(SIZE)).unwrap();
    let two = Assembly::open(&root, one.id()).unwrap();
    one.put_chunk(0, table.names[0], piece(&bytes, 0)).unwrap();
    two.put_chunk(1, table.names[1], piece(&bytes, 1)).unwrap();
    one.put_chunk(2, table.names[2], piece(&bytes, 2)).unwrap();
    two.commit(Digest::of(&bytes), Existing::Keep).unwrap();
}

#[test]
fn a_damaged_chunk_is_named_and_does_not_count() {
    let (_folder, root) = scratch();
    let bytes = content();
    let table = table(&bytes);
    let assembly = Assembly::create(&root, plan(SIZE)).unwrap();
    let mut flipped = piece(&bytes, 1).to_vec();
    flipped[5] ^= 1;
    let error = assembly.put_chunk(1, table.names[1], &flipped).unwrap_err();
    assert_eq!(error.to_string(), "chunk 1 of `f` was damaged in transit");
    let short = assembly.put_chunk(1, table.names[1], &flipped[1..]).unwrap_err();
    assert!(matches!(short, AssemblyError::WrongLength { index: 1, .. }));
    // The right bytes at the wrong offset have another name.
    assert!(assembly.put_chunk(0, table.names[1], piece(&bytes, 1)).is_err());
    assert!(matches!(assembly.chunk(3), Err(AssemblyError::OutOfRange { .. })));
    assert_eq!(assembly.missing(), std::slice::from_ref(&(0..SIZE as u64)));
}

#[test]
fn a_wrong_digest_publishes_nothing_and_lets_the_sender_try_again() {
    let (folder, root) = scratch();
    let assembly = Assembly::create(&root, plan(3)).unwrap();
    assembly.put_range(0, b"abx").unwrap();
    let error = assembly.commit(Digest::of(b"abc"), Existing::Keep).unwrap_err();
    assert!(matches!(error, AssemblyError::WrongDigest { found, .. } if found == Digest::of(b"abx")));
    assert!(!folder.path().join("f").exists());
    assert_eq!(assembly.missing(), std::slice::from_ref(&(0..3)));
    assembly.put_range(0, b"abc").unwrap();
    assembly.commit(Digest::of(b"abc"), Existing::Keep).unwrap();
}

#[test]
fn a_checked_chunk_is_not_written_again() {
    let (folder, root) = scratch();
    let assembly = Assembly::create(&root, plan(SIZE)).unwrap();
    let bytes = content();
    let names = table(&bytes).names;
    assembly.put_chunk(1, names[1], piece(&bytes, 1)).unwrap();
    let wrong = vec![b'X'; SIZE];
    assembly.put_range(CHUNK + 1, b"X").unwrap();
    assembly.put_range(0, &wrong).unwrap();
    let mut other = tempfile::tempfile().unwrap();
    other.write_all(&wrong).unwrap();
    assert!(assembly.copy_from(0, &other, 0, SIZE as u64).unwrap());
    assert_eq!(assembly.checked(), [(1, names[1])]);
    assert!(assembly.missing().is_empty());
    for index in [0, 2] {
        let start = index as u64 * CHUNK;
        assembly.put_range(start, piece(&bytes, index)).unwrap();
    }
    assembly.commit(Digest::of(&bytes), Existing::Keep).unwrap();
    assert_eq!(fs::read(folder.path().join("f")).unwrap(), bytes);
}

#[test]
fn a_copy_from_a_file_that_is_too_short_does_not_count() {
    let (_folder, root) = scratch();
    let assembly = Assembly::create(&root, plan(SIZE)).unwrap();
    let mut other = tempfile::tempfile().unwrap();
    other.write_all(b"xyz").unwrap();
    assert!(!assembly.copy_from(0, &other, 0, CHUNK + 1).unwrap());
    assert_eq!(assembly.missing(), std::slice::from_ref(&(0..SIZE as u64)));
}

#[test]
fn an_interrupted_chunk_keeps_its_received_bytes() {
    let (folder, root) = scratch();
    let assembly = Assembly::create(&root, plan(3)).unwrap();
    assembly.chunk(0).unwrap().keep().unwrap();
    assert_eq!(assembly.missing(), std::slice::from_ref(&(0..3)));
    let mut writer = assembly.chunk(0).unwrap();
    writer.write(b"ab").unwrap();
    writer.keep().unwrap();
    assert_eq!(assembly.missing(), std::slice::from_ref(&(2..3)));
    assembly.put_range(2, b"c").unwrap();
    assembly.commit(Digest::of(b"abc"), Existing::Keep).unwrap();
    assert_eq!(fs::read(folder.path().join("f")).unwrap(), b"abc");
}

#[test]
fn without_a_digest_only_missing_bytes_prevent_a_commit() {
    let (folder, root) = scratch();
    let assembly = Assembly::create(&root, plan(3)).unwrap();
    assembly.put_range(0, b"ab").unwrap();
    let error = assembly.commit(None, Existing::Keep).unwrap_err();
    assert!(
        matches!(error, AssemblyError::Incomplete { missing: 1, .. }),
        "{error}"
    );
    assembly.put_range(2, b"c").unwrap();
    assembly.commit(None, Existing::Keep).unwrap();
    assert_eq!(fs::read(folder.path().join("f")).unwrap(), b"abc");
}

/// After a reboot, opening an upload reads all of it; other uploads must not wait for that.
#[test]
fn a_slow_open_does_not_block_other_uploads() {
    let (_folder, root) = scratch();
    let slow = Assembly::create(&root, plan(3)).unwrap().id().clone();
    let quick = Assembly::create(&root, plan(4)).unwrap().id().clone();
    let opened = disk::shared(&root, &slow, || {
        Assembly::open(&root, &quick).unwrap();
        Inner::open(&root, &slow)
    });
    opened.unwrap();
}

#[test]
fn ranges_beyond_the_file_are_refused() {
    let (_folder, root) = scratch();
    let assembly = Assembly::create(&root, plan(10)).unwrap();
    for (offset, len) in [(10, 1), (5, 6), (u64::MAX, 1)] {
        let error = assembly.put_range(offset, &vec![0; len]).unwrap_err();
        assert!(matches!(error, AssemblyError::OutOfRange { .. }), "{offset}");
    }
}

#[test]
fn the_later_of_two_commits_replaces_or_is_refused() {
    let (folder, root) = scratch();
    let begin = |bytes: &[u8]| {
        let assembly = Assembly::create(&root, plan(bytes.len())).unwrap();
        assembly.put_range(0, bytes).unwrap();
        assembly
    };
    let (one, two, three) = (begin(b"one"), begin(b"two"), begin(b"three"));
    one.commit(Digest::of(b"one"), Existing::Keep).unwrap();
    two.commit(Digest::of(b"two"), Existing::Replace).unwrap();
    let error = three.commit(Digest::of(b"three"), Existing::Keep).unwrap_err();
    assert!(matches!(error, AssemblyError::Storage(RootError::Exists(_))));
    assert_eq!(fs::read(folder.path().join("f")).unwrap(), b"two");
    three.discard().unwrap();
    assert_eq!(leftovers(folder.path()), ["f"]);
}

#[test]
fn a_damaged_second_copy_does_not_reach_a_chunk_that_was_checked() {
    let (folder, root) = scratch();
    let name = table(b"abc").names[0];
    let assembly = Assembly::create(&root, plan(3)).unwrap();
    let mut first = assembly.chunk(0).unwrap();
    first.write(b"a").unwrap();
    // While one connection writes a chunk, a second one is refused.
    assert!(matches!(assembly.chunk(0), Err(AssemblyError::PartBusy { .. })));
    assert!(matches!(
        assembly.put_range(2, b"x"),
        Err(AssemblyError::PartBusy { .. })
    ));
    first.write(b"bc").unwrap();
    first.finish(Some(name)).unwrap();
    let mut second = assembly.chunk(0).unwrap();
    second.write(b"xyz").unwrap();
    assert!(matches!(
        second.finish(Some(name)),
        Err(AssemblyError::DamagedChunk { .. })
    ));
    assembly
        .put_chunk(0, name, b"abc")
        .expect("a sound second copy is fine");
    assembly.commit(Digest::of(b"abc"), Existing::Keep).unwrap();
    assert_eq!(fs::read(folder.path().join("f")).unwrap(), b"abc");
}

#[test]
fn no_late_piece_reaches_a_published_file() {
    let (folder, root) = scratch();
    let assembly = Assembly::create(&root, plan(3)).unwrap();
    assembly.put_range(0, b"abc").unwrap();
    let mut late = assembly.chunk(0).unwrap();
    assembly.commit(Digest::of(b"abc"), Existing::Keep).unwrap();
    assert!(matches!(late.write(b"x"), Err(AssemblyError::Finished(_))));
    assert!(matches!(
        assembly.put_range(0, b"x"),
        Err(AssemblyError::PartBusy { .. })
    ));
    drop(late);
    assert!(matches!(
        assembly.put_range(0, b"x"),
        Err(AssemblyError::Finished(_))
    ));
    assert!(matches!(
        assembly.commit(Digest::of(b"abc"), Existing::Keep),
        Err(AssemblyError::Finished(_))
    ));
    assert_eq!(fs::read(folder.path().join("f")).unwrap(), b"abc");
}

#[test]
fn many_threads_assemble_one_file() {
    let (folder, root) = scratch();
    let bytes = content();
    let table = table(&bytes);
    let assembly = Assembly::create(&root, plan(SIZE)).unwrap();
    std::thread::scope(|scope| {
        for index in 0..3 {
            let (assembly, table, bytes) = (assembly.clone(), &table, &bytes);
            scope.spawn(move || {
                assembly
                    .put_chunk(index as u64, table.names[index], piece(bytes, index))
                    .unwrap();
            });
        }
    });
    assembly.commit(Digest::of(&bytes), Existing::Keep).unwrap();
    assert_eq!(fs::read(folder.path().join("f")).unwrap(), bytes);
}

#[test]
fn repeating_the_command_resumes_the_same_upload() {
    let (_folder, root) = scratch();
    let first = Assembly::create(&root, plan(10)).unwrap();
    first.put_range(0, b"half!").unwrap();
    let id = first.id().clone();
    drop(first);
    let again = Assembly::resume_or_create(&root, plan(10)).unwrap();
    assert_eq!(again.id(), &id);
    assert_eq!(again.missing(), std::slice::from_ref(&(5..10)));
    let changed = AssemblyPlan {
        mtime: Some(Mtime::new(7, 7)),
        ..plan(10)
    };
    assert_ne!(
        Assembly::resume_or_create(&root, changed).unwrap().id(),
        &id,
        "the source is another now"
    );
}

#[test]
fn a_changed_file_is_rebuilt_from_the_old_one_and_what_differs() {
    let (folder, root) = scratch();
    let old = content();
    fs::write(folder.path().join("f"), &old).unwrap();
    let mut new = old.clone();
    new.splice(5_000_000..5_000_000, *b"inserted in the middle");
    let mut new_file = tempfile::tempfile().unwrap();
    new_file.write_all(&new).unwrap();
    let (old_file, _) = root.open_file(&rel("f")).unwrap();
    let ops = crate::content::Signature::of(&old_file)
        .unwrap()
        .diff(&new_file)
        .unwrap();

    let assembly = Assembly::create(&root, plan(new.len())).unwrap();
    for op in ops {
        if let crate::content::Op::Copy { to, from, len } = op {
            assert!(assembly.copy_from(to, &old_file, from, len).unwrap());
        }
    }
    let missing = assembly.missing();
    let sent: u64 = missing.iter().map(|range| range.end - range.start).sum();
    assert!(sent < 20_000, "{sent} bytes sent");
    for range in missing {
        assembly
            .put_range(range.start, &new[range.start as usize..range.end as usize])
            .unwrap();
    }
    assembly.commit(Digest::of(&new), Existing::Replace).unwrap();
    assert_eq!(fs::read(folder.path().join("f")).unwrap(), new);
}

/// Sizes beyond 32 bits, in a sparse file.
#[test]
fn a_file_of_five_gigabytes_is_cut_and_resumed_like_any_other() {
    let (_folder, root) = scratch();
    let size = 5_000_000_001_u64;
    let big = AssemblyPlan { size, ..plan(0) };
    let assembly = Assembly::create(&root, big.clone()).unwrap();
    let last = assembly.layout().count() - 1;
    let (offset, len) = assembly.layout().range(last).unwrap();
    assert_eq!((last, offset + len), (1192, size));
    let bytes = vec![7; len as usize];
    let mut hasher = assembly.layout().hasher(last);
    hasher.update(&bytes);
    assembly.put_chunk(last, hasher.finish(), &bytes).unwrap();
    drop(assembly);
    let again = Assembly::resume_or_create(&root, big).unwrap();
    assert_eq!(again.missing(), std::slice::from_ref(&(0..offset)));
}
