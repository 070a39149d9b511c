//! Networks that cut connections and flip bits, disks that return wrong bytes: detected, reported, and repaired if possible.

use std::fs;

use e2e::{TestEnvironment, wait_until};

use super::dice::seed;
use super::network::Way;
use super::site::Site;
use super::trees::{assert_identical, plant_mixed};
use super::{arg, noise, staged};

const REMOTE: &str = "/pfs/cloud/home/ada/tree";

#[test]
fn a_network_that_cuts_every_connection_only_slows_a_transfer() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    let (tree, back) = (env.folder("tree"), env.folder("back"));
    plant_mixed(&tree, 300);
    let seed = seed();
    site.network().cut_after(seed, 20_000..3_000_000);
    site.run("ada", &["cp", "-r", arg(&tree), REMOTE]).ok();
    let cuts_up = site.network().cuts();
    assert!(cuts_up > 5, "the network cut {cuts_up} connections only");
    assert_identical(&tree, &site.home("ada").join("tree"));
    assert!(staged(site.storage()).is_empty(), "nothing unfinished stays");

    site.run("ada", &["cp", REMOTE, arg(&back)]).ok();
    let cuts = site.network().cuts();
    assert!(
        cuts > cuts_up + 5,
        "the network cut {} connections only",
        cuts - cuts_up
    );
    assert_identical(&tree, &back.join("tree"));
    assert!(staged(&back).is_empty(), "nothing unfinished stays");
}

#[test]
fn ls_and_check_survive_cut_connections_and_a_killed_server() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    site.run("ada", &["mkdir", REMOTE]).ok();
    let (tree, there) = (env.folder("tree"), site.home("ada").join("tree"));
    // Names so long that a listing takes many connections, also after the server's death.
    let names: Vec<String> = (0..4000)
        .map(|number| format!("{number:05}-{}", "x".repeat(200)))
        .collect();
    for folder in [&tree, &there] {
        for name in &names {
            fs::write(folder.join(name), "").expect("a file can be written");
        }
    }
    for words in [&["ls", "-r", REMOTE][..], &["check", arg(&tree), REMOTE]] {
        // No connection carries more than a part of it.
        site.network().cut_after(seed(), 20_000..60_000);
        let killer = site.server().killer();
        site.network().after(300_000, killer);
        let mut client = site.spawn("ada", words);
        wait_until("the server must die or the client be done", || {
            (site.has_ended() || client.has_ended()).then_some(())
        });
        let has_died = site.has_ended();
        if has_died {
            site.start_again();
        }
        let (status, lines) = client.end();
        site.network().heal();
        assert!(status.success(), "{words:?}: {}", lines.join("\n"));
        assert!(has_died, "{words:?} was over before the server died");
        match words[0] {
            "ls" => assert_eq!(lines, names, "every name once"),
            _ => assert_eq!(lines, ["no differences: 4000 files identical"]),
        }
    }
}

#[test]
fn a_copy_on_the_cluster_survives_a_killed_server() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    let copy = "/pfs/cloud/home/ada/copy";
    site.run("ada", &["mkdir", REMOTE, copy]).ok();
    let there = site.home("ada").join("tree");
    // Into a folder that is there each file goes for itself.
    for number in 0..300 {
        fs::write(there.join(number.to_string()), noise(number, 100)).expect("a file can be written");
    }
    let killer = site.server().killer();
    // The listing takes some of it, every file's request and reply more.
    site.network().after(100_000, killer);
    let contents = format!("{REMOTE}/.");
    let mut client = site.spawn("ada", &["cp", "-r", &contents, copy]);
    wait_until("the server must die or the client be done", || {
        (site.has_ended() || client.has_ended()).then_some(())
    });
    assert!(site.has_ended(), "the copy was over before the server died");
    site.start_again();
    let (status, lines) = client.end();
    assert!(status.success(), "{}", lines.join("\n"));
    assert_identical(&there, &site.home("ada").join("copy"));
}

#[test]
fn a_bit_that_flips_on_the_wire_reaches_no_file() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    let (tree, back) = (env.folder("tree"), env.folder("back"));
    fs::write(tree.join("large"), noise(73, 9 << 20)).expect("a file can be written");
    for number in 0..50 {
        fs::write(tree.join(number.to_string()), noise(number, 60_000)).expect("a file can be written");
    }
    for (way, words) in [
        (Way::Up, ["cp", "-r", arg(&tree), REMOTE]),
        (Way::Down, ["cp", "-r", REMOTE, arg(&back)]),
    ] {
        let before = site.network().flips();
        site.network().flip_bits(way, 3);
        site.run("ada", &words).ok();
        assert_eq!(site.network().flips() - before, 3, "{way:?}");
    }
    assert_identical(&tree, &site.home("ada").join("tree"));
    assert_identical(&tree, &back.join("tree"));
}

#[test]
fn a_wire_that_damages_everything_is_reported_with_the_file() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    let file = env.folder("data").join("precious.bin");
    fs::write(&file, noise(74, 9 << 20)).expect("a file can be written");
    let remote = "/pfs/cloud/home/ada/precious.bin";
    let back = env.folder("back").join("precious.bin");
    let (up, down) = (["cp", arg(&file), remote], ["cp", remote, arg(&back)]);
    let message = "`precious.bin` has a different digest";

    site.network().flip_bits(Way::Up, u64::MAX);
    site.run("ada", &up).refused(1).says(message);
    site.run("ada", &["stat", remote]).refused(1);

    site.network().heal();
    site.run("ada", &up).ok();
    site.network().flip_bits(Way::Down, u64::MAX);
    site.run("ada", &down).refused(1).says(message);
    assert!(!back.exists(), "what is not right is not there");
}
