//! Files written in the old way, request by request, without a network.

mod publishing;

use std::time::Instant;

use paddlecloud_api::files::StorageView;

use super::write::MOST_OF_ONE;
use super::*;
use crate::auth::Caller;
use crate::files::testing::{self, files_of};

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

    fn with(quota: &str, old: &[u8]) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let users = format!(
            "- {{name: me, password_file: word, system_user: a{quota}}}\n\
             - {{name: you, password_file: word, system_user: b}}\n"
        );
        let fixture = Fixture {
            files: files_of(folder.path(), &users),
            me: testing::me(),
            path: "/pfs/dc/home/me/data".parse().unwrap(),
            folder,
        };
        std::fs::write(fixture.file(), old).unwrap();
        // What is there is known from here on, and counted as it changes.
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

    fn begin(&self, offset: u64, len: u64) -> OldRangeIn {
        self.files.old_post(&self.me, &self.path, offset, len).unwrap()
    }

    fn settle(&self) -> Settled {
        let settled = self
            .files
            .settle_if_silent_for(&self.me, &self.path, Duration::ZERO);
        settled.unwrap()
    }

    /// As an old client does: asks about every range, sends what differs. Returns how many it sent.
    fn upload(&self, content: &[u8]) -> usize {
        self.announce(content.len() as u64);
        let mut sent = 0;
        for (index, range) in content.chunks(RANGE as usize).enumerate() {
            let offset = index as u64 * RANGE;
            if self.ask(offset).checksum != md5(range) {
                self.send(offset, range);
                sent += 1;
            }
        }
        sent
    }

    fn begun(&self) -> usize {
        self.files.0.old_writes.all().len()
    }

    fn ask(&self, offset: u64) -> RangeSum {
        let told = self.files.old_range_sum(&self.me, &self.path, offset, RANGE);
        told.unwrap()
    }

    fn send(&self, offset: u64, range: &[u8]) {
        let mut sending = self.begin(offset, range.len() as u64);
        sending.feed(range).unwrap();
        sending.finish().unwrap();
    }
}

/// An old client on its way through a file, one request at a time.
struct OldClient<'a> {
    all: &'a Fixture,
    content: &'a [u8],
    offset: usize,
    /// Whether the range it stands at differs from what it was told.
    differs: bool,
}

impl<'a> OldClient<'a> {
    fn new(all: &'a Fixture, content: &'a [u8]) -> Self {
        all.announce(content.len() as u64);
        Self {
            all,
            content,
            offset: 0,
            differs: false,
        }
    }

    fn is_done(&self) -> bool {
        self.offset >= self.content.len()
    }

    /// The next request: a question, or the range that was found to differ.
    fn step(&mut self) {
        let end = self.content.len().min(self.offset + RANGE as usize);
        let range = &self.content[self.offset..end];
        let offset = self.offset as u64;
        if self.differs {
            self.all.send(offset, range);
        } else {
            self.differs = self.all.ask(offset).checksum != md5(range);
            if self.differs {
                return;
            }
        }
        (self.offset, self.differs) = (end, false);
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
fn nothing_appears_while_a_range_is_on_its_way() {
    let old = pattern(1, 2 * RANGE);
    let new = pattern(2, 2 * RANGE);
    let all = Fixture::new(&old);
    all.announce(2 * RANGE);
    for offset in [0, RANGE] {
        all.ask(offset);
    }
    let mut first = all.begin(0, RANGE);
    first.feed(&new[..RANGE as usize]).unwrap();
    let mut second = all.begin(RANGE, RANGE);
    second.feed(&new[RANGE as usize..RANGE as usize + 10]).unwrap();
    first.finish().unwrap();
    assert_eq!(all.settle(), Settled::Later);
    assert!(all.content() == old, "no mixture of two versions");
    second.feed(&new[RANGE as usize + 10..]).unwrap();
    second.finish().unwrap();
    assert!(all.content() == new);
}

#[test]
fn a_range_that_broke_off_is_neither_the_old_one_nor_the_new_one() {
    let old = pattern(1, 2 * RANGE);
    let all = Fixture::new(&old);
    all.announce(2 * RANGE);
    for offset in [0, RANGE] {
        all.ask(offset);
    }
    let mut broken = all.begin(0, RANGE);
    broken.feed(b"half").unwrap();
    drop(broken);
    assert_eq!(all.settle(), Settled::Done);
    assert!(all.content() == old);
    assert_eq!(all.begun(), 1, "the client may send it again");
}

#[test]
fn a_client_that_sends_several_ranges_at_once_may_still_send_what_it_asked_about_last() {
    let (old, new) = (pattern(1, 2 * RANGE), pattern(2, 2 * RANGE));
    let all = Fixture::new(&old);
    all.announce(2 * RANGE);
    for offset in [0, RANGE] {
        all.ask(offset);
    }
    let mut first = all.begin(0, RANGE);
    first.feed(&new[..RANGE as usize]).unwrap();
    first.finish().unwrap();
    assert!(all.content() == old, "the second range may be about to come");
    let mut second = all.begin(RANGE, RANGE);
    second.feed(&new[RANGE as usize..]).unwrap();
    second.finish().unwrap();
    assert!(all.content() == new);
}

#[test]
fn a_file_that_grew_or_shrank_appears() {
    let old = pattern(1, 3 * RANGE);
    for (size, sent) in [
        (3 * RANGE + 100, 1),
        (5 * RANGE, 2),
        (2 * RANGE + 7, 0),
        (2 * RANGE, 0),
        (9, 0),
    ] {
        let all = Fixture::new(&old);
        let new = pattern(1, size);
        assert_eq!(all.upload(&new), sent, "{size}");
        assert_eq!(all.settle(), Settled::Done);
        assert!(all.content() == new, "{size}");
        assert_eq!(all.begun(), 0, "{size}");
    }
}

#[test]
fn an_unchanged_file_leaves_nothing_behind() {
    let old = pattern(1, 3 * RANGE + 5);
    let all = Fixture::with(", quota: {storage: 100Ki}", &old);
    let before = std::fs::metadata(all.file()).unwrap().modified().unwrap();
    assert_eq!(all.upload(&old), 0);
    assert_eq!(all.settle(), Settled::Done);
    assert_eq!(all.begun(), 0);
    assert_eq!(all.stored().bytes_used, old.len() as u64);
    assert_eq!(std::fs::metadata(all.file()).unwrap().modified().unwrap(), before);
}

#[test]
fn a_file_that_was_replaced_meanwhile_is_not_mixed_with_what_was_sent() {
    let old = pattern(1, 2 * RANGE);
    let all = Fixture::new(&old);
    all.announce(2 * RANGE);
    all.ask(0);
    let theirs = pattern(7, 2 * RANGE);
    std::fs::write(all.file().with_extension("new"), &theirs).unwrap();
    std::fs::rename(all.file().with_extension("new"), all.file()).unwrap();
    let mut second = all.begin(RANGE, RANGE);
    second.feed(&pattern(2, RANGE)).unwrap();
    drop(second.finish());
    let settled = all.files.settle_if_silent_for(&all.me, &all.path, Duration::ZERO);
    assert!(!matches!(settled, Ok(Settled::Later)));
    assert!(all.content() == theirs);
}

#[test]
fn what_no_client_comes_back_to_is_given_up_and_one_user_cannot_keep_all_out() {
    let all = Fixture::with(", quota: {storage: 1Mi}", b"old");
    all.announce(500 << 10);
    all.announce(500 << 10);
    all.announce(500 << 10);
    assert_eq!(all.begun(), 1, "announced again is begun anew");
    assert_eq!(all.files.0.old_writes.expire(), 0, "it was just used");
    assert_eq!(all.files.0.old_writes.expire_unused_for(Duration::ZERO), 1);
    assert_eq!(all.stored().bytes_used, 3);
    for number in 0..MOST_OF_ONE {
        let path = format!("/pfs/dc/home/me/{number}").parse().unwrap();
        all.files.old_touch(&all.me, &path, 1).unwrap();
    }
    let refused = all.files.old_touch(&all.me, &all.path, 1).unwrap_err();
    assert_eq!(refused.to_string(), "too many files are being written");
}

#[test]
fn the_end_of_an_older_announcement_does_not_end_the_newer_one() {
    let all = Fixture::new(&pattern(1, RANGE));
    all.announce(RANGE);
    let mut late = all.begin(0, RANGE);
    late.feed(&pattern(2, RANGE)).unwrap();
    all.announce(RANGE);
    late.finish().unwrap();
    assert_eq!(all.begun(), 1);
}

/// The same at every other range, from the second on.
fn half_new(ranges: u64) -> (Vec<u8>, Vec<u8>) {
    let old = pattern(1, ranges * RANGE);
    let mut new = pattern(2, ranges * RANGE);
    for range in (1..ranges as usize).step_by(2) {
        let span = range * RANGE as usize..(range + 1) * RANGE as usize;
        new[span.clone()].copy_from_slice(&old[span]);
    }
    (old, new)
}

#[test]
fn who_reads_the_file_meanwhile_completes_nothing() {
    let (old, new) = (pattern(1, 5 * RANGE), pattern(2, 5 * RANGE));
    let all = Fixture::new(&old);
    let mut client = OldClient::new(&all, &new);
    while client.offset < 2 * RANGE as usize {
        client.step();
    }
    for range in 0..5 {
        all.ask(range * RANGE);
    }
    while client.offset < 4 * RANGE as usize {
        client.step();
        assert!(all.content() == old, "no mixture of two versions");
    }
    assert_eq!(all.settle(), Settled::Done);
    assert!(all.content() == old, "a silent client is not through for that");
    while !client.is_done() {
        client.step();
    }
    assert!(all.content() == new);
    assert_eq!(all.begun(), 0);
}

/// However the requests of a client and of some who read the file come together.
#[test]
fn a_file_is_the_old_one_until_it_is_the_new_one_whoever_reads_it_meanwhile() {
    for seed in 1..160_u64 {
        let ranges = 1 + seed % 6;
        let (old, mut new) = half_new(ranges);
        // Also files that end elsewhere.
        new.truncate(new.len() - (seed % 3) as usize * 100);
        let all = Fixture::new(&old);
        let mut client = OldClient::new(&all, &new);
        let mut readers = vec![0; (seed % 4) as usize];
        let mut dice = seed;
        while !client.is_done() {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed);
            let turn = (dice >> 33) as usize % (readers.len() + 1);
            match readers.get_mut(turn) {
                Some(offset) => {
                    all.ask(*offset);
                    *offset = (*offset + RANGE) % (ranges * RANGE);
                }
                None => client.step(),
            }
            assert!(all.content() == old || all.content() == new, "seed {seed}");
        }
        // One who comes right behind the client keeps nothing from appearing.
        if all.begun() > 0 {
            all.ask(0);
        }
        assert_eq!(all.settle(), Settled::Done);
        assert!(all.content() == new, "seed {seed}");
        assert_eq!(all.begun(), 0, "seed {seed}");
    }
}

#[test]
fn who_may_only_read_a_file_is_told_of_it_and_changes_nothing() {
    let (old, new) = half_new(4);
    let mut all = Fixture::new(&old);
    all.me.admin = true;
    all.path = "/pfs/dc/public/data".parse().unwrap();
    let file = all.folder.path().join("data/storage/public/data");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, &old).unwrap();
    let you = Caller {
        user: "you".parse().unwrap(),
        admin: false,
    };
    let read_all = || {
        for range in 0..4_u64 {
            let told = all.files.old_range_sum(&you, &all.path, range * RANGE, RANGE);
            let told = told.unwrap();
            let span = (range * RANGE) as usize..((range + 1) * RANGE) as usize;
            assert_eq!(told.checksum, md5(&old[span]));
            assert!(
                !told.watch,
                "nobody looks later in the name of one who may not write"
            );
        }
    };
    all.announce(4 * RANGE);
    read_all();
    assert!(all.ask(0).watch, "the client itself is waited for");
    let mut client = OldClient::new(&all, &new);
    while !client.is_done() {
        client.step();
        read_all();
    }
    assert!(std::fs::read(&file).unwrap() == old, "the last range is the same");
    assert_eq!(all.settle(), Settled::Done);
    assert!(std::fs::read(&file).unwrap() == new);
}

#[test]
fn an_empty_file_counts_and_gives_back_what_it_replaces() {
    let all = Fixture::with(", quota: {storage: 8Ki, files: 3}", &pattern(1, 6 << 10));
    let at = |name: &str| -> PfsPath { format!("/pfs/dc/home/me/{name}").parse().unwrap() };
    all.files.old_touch(&all.me, &at("a"), 0).unwrap();
    all.files.old_touch(&all.me, &at("b"), 0).unwrap();
    // Nobody is refused by what was measured seconds ago.
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
fn a_file_that_came_whole_is_not_given_up_before_it_is_published() {
    let mut new = pattern(1, 3 * RANGE);
    let all = Fixture::new(&new);
    new[0] ^= 1;
    assert_eq!(all.upload(&new), 1, "the last range is the same");
    assert_eq!(all.files.0.old_writes.expire_unused_for(Duration::ZERO), 0);
    assert_eq!(all.settle(), Settled::Done);
    assert!(all.content() == new);
}

#[test]
fn what_an_old_client_began_is_shown_among_the_uploads_and_can_be_given_up() {
    let all = Fixture::with(", quota: {storage: 100Ki}", b"old");
    all.announce(3 * RANGE);
    all.send(0, &pattern(2, RANGE));
    let mut late = all.begin(RANGE, RANGE);
    let begun = all.files.upload_list(&all.me).unwrap();
    assert_eq!(begun.len(), 1);
    assert_eq!(begun[0].path.0, all.path);
    assert_eq!((begun[0].size, begun[0].arrived), (3 * RANGE, RANGE));
    let view = all.stored();
    assert_eq!((view.unfinished_uploads, view.unfinished_bytes), (1, 3 * RANGE));

    let you = Caller {
        user: "you".parse().unwrap(),
        admin: false,
    };
    assert!(all.files.upload_list(&you).unwrap().is_empty());
    assert!(
        all.files.upload_discard(&you, &begun[0].id).is_err(),
        "it is not theirs"
    );
    assert_eq!(all.begun(), 1);

    all.files.upload_discard(&all.me, &begun[0].id).unwrap();
    assert!(all.files.upload_list(&all.me).unwrap().is_empty());
    assert!(late.feed(b"more").is_err(), "whoever still sends hears of it");
    drop(late);
    assert!(all.files.old_post(&all.me, &all.path, RANGE, RANGE).is_err());
    assert_eq!(all.content(), b"old");
    assert!(!all.file().with_file_name(".pfs-staging").exists());
    assert_eq!(all.stored().bytes_used, 3);
}

#[test]
fn a_reader_does_not_shorten_what_a_client_that_is_gone_announced() {
    let old = pattern(1, 2 * RANGE);
    for (is_late, left) in [(true, 2 * RANGE), (false, RANGE)] {
        let all = Fixture::new(&old);
        all.announce(RANGE);
        let (_, begun) = all.files.0.old_writes.all().remove(0);
        if is_late {
            let long_ago = std::time::Instant::now().checked_sub(Duration::from_secs(60));
            lock(&begun.write).used = long_ago.unwrap();
        }
        let told = all.ask(0);
        assert_eq!((told.len, told.checksum.is_empty()), (RANGE, is_late));
        all.settle();
        assert_eq!(all.content(), old[..left as usize], "{is_late}");
    }
    // One that was slow sends it, and has what it wants.
    let all = Fixture::new(&old);
    all.announce(RANGE);
    let (_, begun) = all.files.0.old_writes.all().remove(0);
    lock(&begun.write).used = std::time::Instant::now()
        .checked_sub(Duration::from_secs(60))
        .unwrap();
    all.ask(0);
    all.send(0, &old[..RANGE as usize]);
    assert_eq!(all.content(), old[..RANGE as usize]);
}
