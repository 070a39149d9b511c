//! Networks that cut connections and flip bits, disks that lie: noticed, told, and mended where that can be.

use std::fs;

use e2e::TestEnvironment;

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
fn a_wire_that_damages_everything_is_told_with_the_file() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    let file = env.folder("data").join("precious.bin");
    fs::write(&file, noise(74, 9 << 20)).expect("a file can be written");
    let remote = "/pfs/cloud/home/ada/precious.bin";
    let back = env.folder("back").join("precious.bin");
    let (up, down) = (["cp", arg(&file), remote], ["cp", remote, arg(&back)]);
    let told = "`precious.bin` arrived with another digest";

    site.network().flip_bits(Way::Up, u64::MAX);
    site.run("ada", &up).refused(1).says(told);
    site.run("ada", &["stat", remote]).refused(1);

    site.network().heal();
    site.run("ada", &up).ok();
    site.network().flip_bits(Way::Down, u64::MAX);
    site.run("ada", &down).refused(1).says(told);
    assert!(!back.exists(), "what is not right is not there");
}
