//! Files written in the old way, request by request, without a network.

use super::*;
use crate::auth::Caller;
use crate::config::Config;
use crate::packages::Storage;

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
        std::fs::write(folder.path().join("word"), "secret\n").unwrap();
        let text = format!(
            "data: data\ndatacenter: dc\nlisten: 127.0.0.1:0\n\
             users:\n- {{name: me, password_file: word{quota}}}\n"
        );
        let config = Config::parse(&text, &folder.path().join("server.yaml")).unwrap();
        std::fs::create_dir_all(&config.storage).unwrap();
        let storage = Storage::open(&config.storage, config.datacenter.clone()).unwrap();
        let fixture = Fixture {
            files: Files::open(&config, &storage).unwrap(),
            me: Caller {
                user: "me".parse().unwrap(),
                admin: false,
            },
            path: "/pfs/dc/home/me/data".parse().unwrap(),
            folder,
        };
        let home = fixture.file().parent().unwrap().to_owned();
        std::fs::create_dir_all(home).unwrap();
        std::fs::write(fixture.file(), old).unwrap();
        fixture
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("data/storage/home/me/data")
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
            let told = self
                .files
                .old_range_sum(&self.me, &self.path, offset, RANGE)
                .unwrap();
            let own: String = Md5::digest(range)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            if told.checksum != own {
                let mut sending = self.begin(offset, range.len() as u64);
                sending.feed(range).unwrap();
                sending.finish().unwrap();
                sent += 1;
            }
        }
        sent
    }

    fn begun(&self) -> usize {
        lock(&self.files.0.old_writes.0).len()
    }
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
        all.files
            .old_range_sum(&all.me, &all.path, offset, RANGE)
            .unwrap();
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
        all.files
            .old_range_sum(&all.me, &all.path, offset, RANGE)
            .unwrap();
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
        all.files
            .old_range_sum(&all.me, &all.path, offset, RANGE)
            .unwrap();
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
    assert_eq!(all.files.storage(&all.me).unwrap().bytes_used, old.len() as u64);
    assert_eq!(std::fs::metadata(all.file()).unwrap().modified().unwrap(), before);
}

#[test]
fn a_file_that_was_replaced_meanwhile_is_not_mixed_with_what_was_sent() {
    let old = pattern(1, 2 * RANGE);
    let all = Fixture::new(&old);
    all.announce(2 * RANGE);
    all.files.old_range_sum(&all.me, &all.path, 0, RANGE).unwrap();
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
    assert_eq!(all.files.storage(&all.me).unwrap().bytes_used, 3);
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
