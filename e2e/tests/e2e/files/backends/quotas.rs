//! Quotas that a store keeps by itself: what runs into one is refused, and nothing half-written stays.

use std::fs;
use std::path::Path;

use e2e::{TestEnvironment, wait_until};

use super::super::site::Site;
use super::super::{arg, noise};
use super::{HOME, cephfs, hdfs, service, staging, unique};

#[test]
#[ignore = "needs CephFS"]
fn ceph_refuses_by_its_own_quota() {
    let mount = service("PADDLECLOUD_TEST_CEPHFS");
    let env = TestEnvironment::new();
    let storage = cephfs(&env, &mount);
    let site = Site::with(&env, &[("ada", "")], &storage, &[]);
    keep_old_files(&env, &site);
    let staging = staging(&site, &storage);
    let home = staging.parent().expect("it lies in the home");
    let set = std::process::Command::new("setfattr")
        .args(["-n", "ceph.quota.max_bytes", "-v", "1000000"])
        .arg(home)
        .status();
    assert!(set.is_ok_and(|status| status.success()), "setfattr sets a quota");
    // What is written is counted some seconds later; from then on nothing more is taken.
    let probe = env.folder("probe").join("p");
    fs::write(&probe, "x").expect("ours");
    wait_until("it must be full in the end", || {
        let refused = site.run("ada", &["cp", arg(&probe), HOME]).code == Some(1);
        drop(site.run("ada", &["rm", "-f", &format!("{HOME}/p")]));
        refused.then_some(())
    });
    check_that_own_quota_refuses(&env, &site, &staging);
    drop(site.run("ada", &["get", "quota"]).ok().prints("storage\t1M\t"));
}

#[test]
#[ignore = "needs HDFS"]
fn hdfs_refuses_by_its_own_quota() {
    let (cluster, classes) = (
        service("PADDLECLOUD_TEST_HDFS"),
        service("PADDLECLOUD_TEST_HDFS_CLASSES"),
    );
    let env = TestEnvironment::new();
    let storage = hdfs(&env, &cluster);
    let site = Site::with(&env, &[("ada", "")], &storage, &[]);
    keep_old_files(&env, &site);
    let home = format!("/{}/home/ada", unique(&env));
    let set = std::process::Command::new("java")
        .args(["-cp", &classes, "org.apache.hadoop.hdfs.tools.DFSAdmin", "-fs"])
        .args([&cluster, "-setSpaceQuota", "100m", &home])
        .status();
    assert!(set.is_ok_and(|status| status.success()), "dfsadmin sets a quota");
    let staging = staging(&site, &storage);
    check_that_own_quota_refuses(&env, &site, &staging);
    drop(site.run("ada", &["get", "quota"]).ok().prints("storage\t100Mi\t"));
}

fn keep_old_files(env: &TestEnvironment, site: &Site<'_>) {
    let old = env.folder("old").join("f");
    fs::write(&old, "the old one").expect("ours");
    drop(site.run("ada", &["cp", arg(&old), &format!("{HOME}/f")]).ok());
    let filler = env.folder("old").join("filler");
    fs::write(&filler, noise(4, 1_500_000)).expect("ours");
    drop(
        site.run("ada", &["cp", arg(&filler), &format!("{HOME}/filler")])
            .ok(),
    );
}

/// A large file and many small ones: neither leaves anything, and the old file stays.
fn check_that_own_quota_refuses(env: &TestEnvironment, site: &Site<'_>, staging: &Path) {
    let new = env.folder("new").join("f");
    fs::write(&new, noise(5, 3 << 20)).expect("ours");
    let many = env.folder("many");
    for index in 0..20 {
        fs::write(many.join(index.to_string()), noise(index, 200 << 10)).expect("ours");
    }
    for words in [
        ["cp", arg(&new), &format!("{HOME}/f")].as_slice(),
        &["cp", "-r", arg(&many), HOME],
    ] {
        let refused = site.run("ada", words);
        assert_eq!(refused.code, Some(1), "{refused}");
        let refused = refused.says("own quota leaves no room for");
        drop(refused.says("`paddlectl du` shows the largest entries"));
        let left = fs::read_dir(staging).map(Iterator::count).unwrap_or(0);
        assert_eq!(left, 0, "nothing half-written stays");
    }
    let kept = site.run("ada", &["cat", &format!("{HOME}/f")]).ok();
    assert_eq!(kept.stdout, "the old one");
}
