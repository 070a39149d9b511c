//! Files written by the old protocol, request by request, without a network.

use std::time::Instant;

use paddlecloud_accounts::auth::Caller;
use paddlecloud_api::files::StorageView;

use super::*;
use crate::files::testing::{self, files_of, user};

const RANGE: u64 = 4 << 10;

struct Fixture {
    folder: tempfile::TempDir,
    files: Files,
    me: Caller,
    path: PfsPath,
}

impl Fixture {
    fn new(old: &[u8]) -> Fixture {
        Fixture::with("", old)
    }

    fn with(limit: &str, old: &[u8]) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let users = [user("me", limit), user("you", "")];
        let fixture = Fixture {
            files: files_of(folder.path(), &users),
            me: testing::me(),
            path: "/pfs/dc/home/me/data".parse().unwrap(),
            folder,
        };
        std::fs::write(fixture.file(), old).unwrap();
        // Measured once here; later changes are counted.
        fixture.stored();
        fixture
    }

    fn stored(&self) -> StorageView {
        self.files.storage(&self.me, Instant::now()).unwrap()
    }

    fn file(&self) -> std::path::PathBuf {
        testing::home(self.folder.path()).join("data")
    }

    fn content(&self) -> Vec<u8> {
        std::fs::read(self.file()).unwrap()
    }

    fn announce(&self, size: u64) {
        self.files.old_touch(&self.me, &self.path, size).unwrap();
    }

    fn unfinished(&self) -> usize {
        self.files.upload_list(&self.me).unwrap().len()
    }

    fn ask(&self, offset: u64) -> RangeSum {
        let sum = self.files.old_range_sum(&self.me, &self.path, offset, RANGE);
        sum.unwrap()
    }

    fn send(&self, offset: u64, range: &[u8]) {
        self.post(offset, range).unwrap();
    }

    fn post(&self, offset: u64, range: &[u8]) -> Result<(), FilesError> {
        let id = self.files.old_upload(&self.me, &self.path)?;
        self.files.old_post(&self.me, (&self.path, &id), offset, range)
    }
}

fn md5(bytes: &[u8]) -> String {
    let digest = Md5::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn pattern(seed: u8, len: u64) -> Vec<u8> {
    (0..len).map(|at| (at % 249) as u8 ^ seed).collect()
}

#[test]
fn a_file_appears_only_after_its_last_range_arrived() {
    let (old, new) = (pattern(1, 2 * RANGE), pattern(2, 2 * RANGE));
    let all = Fixture::new(&old);
    all.announce(2 * RANGE);
    all.send(RANGE, &new[RANGE as usize..]);
    all.send(RANGE, &new[RANGE as usize..]);
    assert!(all.content() == old, "no mixture of two versions");
    all.send(0, &new[..RANGE as usize]);
    assert!(all.content() == new);
    assert_eq!(all.unfinished(), 0);
}

#[test]
fn announcing_a_file_again_restarts_its_upload() {
    let (older, newer) = (pattern(2, 2 * RANGE), pattern(3, 2 * RANGE));
    let all = Fixture::with("storage=20Ki", b"old");
    all.announce(2 * RANGE);
    all.send(0, &older[..RANGE as usize]);
    let earlier = all.files.old_upload(&all.me, &all.path).unwrap();
    all.announce(2 * RANGE);
    all.announce(2 * RANGE);
    assert_eq!(all.unfinished(), 1);
    let late = (&all.path, &earlier);
    let late = all.files.old_post(&all.me, late, 0, &older[..RANGE as usize]);
    assert!(matches!(late, Err(FilesError::NotFound(_))), "it began before");
    all.send(RANGE, &newer[RANGE as usize..]);
    assert_eq!(
        all.content(),
        b"old",
        "half of the older version is no part of it"
    );
    all.send(0, &newer[..RANGE as usize]);
    assert!(all.content() == newer);
    assert_eq!(all.stored().bytes_used, 2 * RANGE);
}

#[test]
fn ranges_that_were_not_announced_are_refused() {
    let all = Fixture::new(b"old");
    let post = |offset, range: &[u8]| all.post(offset, range);
    assert!(matches!(post(0, b"x"), Err(FilesError::NotFound(_))));
    all.announce(RANGE);
    for offset in [RANGE, u64::MAX] {
        let refused = post(offset, b"x").unwrap_err();
        assert_eq!(refused.to_string(), "chunksize error");
    }
    assert_eq!(all.content(), b"old");
}

#[test]
fn a_file_that_grew_or_shrank_appears() {
    for size in [3 * RANGE + 100, 5 * RANGE, 2 * RANGE + 7, 2 * RANGE, 9] {
        let all = Fixture::new(&pattern(1, 3 * RANGE));
        let new = pattern(2, size);
        all.announce(size);
        for (index, range) in new.chunks(RANGE as usize).enumerate() {
            all.send(index as u64 * RANGE, range);
        }
        assert!(all.content() == new, "{size}");
        assert_eq!(all.unfinished(), 0, "{size}");
    }
}

#[test]
fn checksums_are_empty_while_a_file_is_uploaded() {
    let old = pattern(1, 2 * RANGE);
    let all = Fixture::new(&old);
    assert_eq!(all.ask(RANGE).checksum, md5(&old[RANGE as usize..]));
    all.announce(2 * RANGE);
    let sum = all.ask(RANGE);
    assert_eq!(
        (sum.checksum.as_str(), sum.len),
        ("", RANGE),
        "the client sends all"
    );
    assert!(all.content() == old, "asking completes nothing");
}

#[test]
fn a_reader_gets_the_published_checksum_and_changes_nothing() {
    let (old, new) = (pattern(1, RANGE), pattern(2, RANGE));
    let mut all = Fixture::new(&old);
    all.me.scopes = paddlecloud_core::access::Scopes::all();
    all.path = "/pfs/dc/public/data".parse().unwrap();
    let file = all.folder.path().join("data/storage/public/data");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, &old).unwrap();
    let you = Caller {
        user: "you".parse().unwrap(),
        scopes: paddlecloud_core::access::Scopes::user(),
    };
    all.announce(RANGE);
    let sum = all.files.old_range_sum(&you, &all.path, 0, RANGE).unwrap();
    assert_eq!(sum.checksum, md5(&old));
    assert!(std::fs::read(&file).unwrap() == old);
    all.send(0, &new);
    assert!(std::fs::read(&file).unwrap() == new);
}

#[test]
fn an_empty_file_counts_and_frees_what_it_replaces() {
    let all = Fixture::with("storage=8Ki,files=3", &pattern(1, 6 << 10));
    let at = |name: &str| -> PfsPath { format!("/pfs/dc/home/me/{name}").parse().unwrap() };
    all.files.old_touch(&all.me, &at("a"), 0).unwrap();
    all.files.old_touch(&all.me, &at("b"), 0).unwrap();
    // A measurement that is seconds old refuses nothing, so measure again.
    all.stored();
    let refused = all.files.old_touch(&all.me, &at("c"), 0).unwrap_err();
    assert!(refused.to_string().contains("3 of 3 files are used"), "{refused}");
    assert!(!all.file().with_file_name("c").exists());
    std::fs::remove_file(all.file().with_file_name("b")).unwrap();
    let view = all.stored();
    assert_eq!((view.bytes_used, view.files_used), (6 << 10, 2));
    all.files.old_touch(&all.me, &all.path, 0).unwrap();
    all.files.old_touch(&all.me, &at("large"), 7 << 10).unwrap();
}

#[test]
fn an_old_clients_unfinished_upload_is_listed_and_can_be_discarded() {
    let all = Fixture::with("storage=100Ki", b"old");
    all.announce(3 * RANGE);
    all.send(0, &pattern(2, RANGE));
    let listed = all.files.upload_list(&all.me).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].path.0, all.path);
    assert_eq!((listed[0].size, listed[0].arrived), (3 * RANGE, RANGE));
    let view = all.stored();
    assert_eq!((view.unfinished_uploads, view.unfinished_bytes), (1, 3 * RANGE));

    let you = Caller {
        user: "you".parse().unwrap(),
        scopes: paddlecloud_core::access::Scopes::user(),
    };
    assert!(all.files.upload_list(&you).unwrap().is_empty());
    assert!(
        all.files.upload_discard(&you, &listed[0].id).is_err(),
        "it is not theirs"
    );
    assert_eq!(all.unfinished(), 1);

    all.files.upload_discard(&all.me, &listed[0].id).unwrap();
    assert!(all.files.upload_list(&all.me).unwrap().is_empty());
    assert!(all.post(RANGE, b"more").is_err());
    assert_eq!(all.content(), b"old");
    assert!(!all.file().with_file_name(".pfs-staging").exists());
    assert_eq!(all.stored().bytes_used, 3);
}
