//! What goes over the wire: how many requests, how many concurrently, and what is not sent at all.

use std::fs;
use std::path::Path;
use std::sync::mpsc::channel;

use e2e::{LIMIT, TestEnvironment};

use super::site::Site;
use super::trees::{assert_identical, plant_mixed};
use super::{arg, noise};

const HOME: &str = "/pfs/cloud/home/ada";

#[test]
fn copies_and_moves_on_the_cluster_bypass_the_client() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    let tree = env.folder("tree");
    plant_mixed(&tree, 300);
    site.run("ada", &["cp", "-r", arg(&tree), &format!("{HOME}/tree")])
        .ok();
    let [first, copy, large, moved, synced] =
        ["tree", "copy", "large", "moved", "synced"].map(|name| format!("{HOME}/{name}"));
    let one = format!("{first}/large.bin");
    let cases: [(&[&str], u64); 4] = [
        // Trees are looked at: names travel, no content does.
        (&["cp", "-r", &first, &copy], 100_000),
        (&["cp", &one, &large], 20_000),
        (&["mv", &copy, &moved], 20_000),
        (&["sync", &first, &synced], 300_000),
    ];
    for (words, most) in cases {
        let before = site.network().passed_in_all();
        site.run("ada", words).ok();
        let passed = site.network().passed_in_all() - before;
        assert!(passed > 0, "{words:?} went past the network");
        assert!(passed < most, "{words:?}: {passed} bytes");
    }
    let home = site.home("ada");
    assert_identical(&tree, &home.join("moved"));
    assert_identical(&tree, &home.join("synced"));
    assert!(fs::read(home.join("large")).unwrap() == fs::read(tree.join("large.bin")).unwrap());
}

#[test]
fn many_small_files_are_transferred_in_few_requests() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    let (tree, back) = (env.folder("tree"), env.folder("back"));
    for number in 0..3000 {
        let folder = tree.join(format!("{}", number % 30));
        fs::create_dir_all(&folder).expect("ours");
        fs::write(folder.join(number.to_string()), noise(number, 1000)).expect("ours");
    }
    let remote = format!("{HOME}/tree");
    for words in [
        ["cp", "-r", arg(&tree), HOME],
        // What is the same is only asked about.
        ["cp", "-r", arg(&tree), HOME],
        ["cp", "-r", &remote, arg(&back)],
    ] {
        let before = site.network().exchanges().requests();
        site.run("ada", &words).ok();
        let requests = site.network().exchanges().requests() - before;
        assert!((2..=20).contains(&requests), "{words:?}: {requests} requests");
    }
    assert_identical(&tree, &site.home("ada").join("tree"));
    assert_identical(&tree, &back.join("tree"));
}

/// More files than two requests ask about.
const MANY: u64 = 4100;
/// Requests that ask about so many.
const ASKED: u64 = 3;
/// Who the caller is, what is at the destination, the folder, and a pack.
const INTO_NEW: u64 = 4;

fn plant_many(folder: &Path) {
    for number in 0..MANY {
        fs::write(folder.join(number.to_string()), number.to_string()).expect("ours");
    }
}

/// How many requests a command costs.
#[track_caller]
fn requests_of(site: &mut Site<'_>, words: &[&str]) -> u64 {
    let before = site.network().exchanges().requests();
    site.run("ada", words).ok();
    site.network().exchanges().requests() - before
}

#[test]
fn nothing_is_asked_about_a_folder_that_the_command_created() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    let tree = env.folder("tree");
    plant_many(&tree);
    site.network();
    site.run("ada", &["whoami"]).ok();
    let [copied, synced, one] = ["copied", "synced", "d/one"].map(|name| format!("{HOME}/{name}"));
    assert_eq!(
        requests_of(&mut site, &["cp", "-r", arg(&tree), &copied]),
        INTO_NEW
    );
    // What it is really called.
    let sync = ["sync", arg(&tree), &synced];
    assert_eq!(requests_of(&mut site, &sync), INTO_NEW + 1);
    // And what is in it.
    assert_eq!(requests_of(&mut site, &sync), INTO_NEW + 1 + ASKED);
    let file = tree.join("1");
    assert_eq!(requests_of(&mut site, &["cp", arg(&file), &one]), INTO_NEW);
    for name in ["copied", "synced"] {
        assert_identical(&tree, &site.home("ada").join(name));
    }
}

#[test]
fn a_copy_that_is_resumed_or_lost_the_reply_to_mkdir_asks_what_is_there() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    let tree = env.folder("tree");
    plant_many(&tree);
    site.network();
    site.run("ada", &["whoami"]).ok();

    let resumed = format!("{HOME}/resumed");
    let copy = ["cp", "-r", arg(&tree), &resumed];
    let (give, take) = channel::<Box<dyn FnOnce() + Send>>();
    site.network().before_request(INTO_NEW, move || {
        let kill = take.recv_timeout(LIMIT).expect("the client is started");
        kill();
    });
    let client = site.spawn("ada", &copy);
    give.send(Box::new(client.killer())).expect("the network waits");
    client.end();
    assert_eq!(requests_of(&mut site, &copy), INTO_NEW + ASKED);

    let lost = format!("{HOME}/lost");
    site.network().lose_reply(INTO_NEW - 1);
    let copy = ["cp", "-r", arg(&tree), &lost];
    assert_eq!(requests_of(&mut site, &copy), INTO_NEW + 1 + ASKED);
    for name in ["resumed", "lost"] {
        assert_identical(&tree, &site.home("ada").join(name));
    }
}

#[test]
fn concurrent_requests_stay_within_the_transfers_limit() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    let tree = env.folder("tree");
    for number in 0..3 {
        // One ends while the others are on their way.
        let size = (number as usize * 20 + 6) << 20;
        fs::write(tree.join(format!("large-{number}")), noise(number, size)).expect("ours");
    }
    for number in 0..800 {
        fs::write(tree.join(number.to_string()), noise(number, 60_000)).expect("ours");
    }
    for allowed in [1, 3] {
        let remote = format!("{HOME}/with-{allowed}");
        let back = env.folder("back").join(allowed.to_string());
        let allowed_text = allowed.to_string();
        for (from, to) in [(arg(&tree), remote.as_str()), (remote.as_str(), arg(&back))] {
            site.network().exchanges().take_most();
            let words = ["cp", "-r", "--transfers", &allowed_text, from, to];
            site.run("ada", &words).ok();
            let most = site.network().exchanges().take_most();
            assert_eq!(most, allowed, "{words:?}");
        }
        assert_identical(&tree, &back);
    }
}

#[test]
fn the_chunks_of_one_file_are_transferred_concurrently() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    let (file, back) = (env.folder("data").join("large"), env.folder("back").join("large"));
    // Down, one request asks for four chunks of 4 MiB.
    fs::write(&file, noise(92, 40 << 20)).expect("ours");
    let remote = format!("{HOME}/large");
    for (from, to, called) in [
        (arg(&file), remote.as_str(), "/chunks/"),
        (&remote, arg(&back), "/pfs/content?"),
    ] {
        site.network().gather(3, called);
        site.network().exchanges().take_most();
        site.run("ada", &["cp", "--transfers", "3", from, to]).ok();
        assert_eq!(site.network().exchanges().take_most(), 3, "{from} to {to}");
    }
    assert!(fs::read(&file).expect("ours") == fs::read(&back).expect("it came"));
}
