//! The same commands on a folder and on remote stores: CephFS, HDFS, S3, each a real service.
//!
//! `cargo xtask test --with ceph,hdfs,s3` starts those and says where they are; other runs only try the folder.

mod objects;
mod quotas;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use e2e::{TestEnvironment, wait_until};

use super::network::Way;
use super::old_client::an_old_client_sends_a_file_twice;
use super::site::Site;
use super::{arg, assert_same, noise, plant};

const HOME: &str = "/pfs/cloud/home/ada";

/// Where a service was started.
fn service(variable: &str) -> String {
    let place = std::env::var(variable).unwrap_or_default();
    assert!(
        !place.is_empty(),
        "`{variable}` names no service; see `cargo xtask test --help`"
    );
    place
}

fn cephfs(env: &TestEnvironment, mount: &str) -> String {
    let folder = Path::new(mount).join(unique(env));
    fs::create_dir_all(&folder).expect("the mount can be written");
    format!("storage: {{kind: cephfs, path: {}}}\n", folder.display())
}

fn hdfs(env: &TestEnvironment, cluster: &str) -> String {
    format!(
        "storage: {{kind: hdfs, url: {cluster}/{}, replication: 1}}\n",
        unique(env)
    )
}

fn s3(env: &TestEnvironment, endpoint: &str) -> String {
    let secret = env.folder("secrets").join("s3");
    fs::write(&secret, "secret\n").expect("a file in the test's own folder");
    format!(
        "storage:\n  kind: s3\n  url: s3://bucket/{}\n  endpoint: {endpoint}\n  access_key: paddlecloud\n  \
         secret_key_file: {}\n",
        unique(env),
        arg(&secret)
    )
}

/// A name that no other test has.
fn unique(env: &TestEnvironment) -> String {
    let name = env.home().parent().and_then(Path::file_name);
    name.expect("a test has a folder of its own")
        .to_string_lossy()
        .into_owned()
}

fn on_ceph(check: impl Fn(&TestEnvironment, &str)) {
    on("PADDLECLOUD_TEST_CEPHFS", cephfs, check);
}

fn on_hdfs(check: impl Fn(&TestEnvironment, &str)) {
    on("PADDLECLOUD_TEST_HDFS", hdfs, check);
}

fn on_s3(check: impl Fn(&TestEnvironment, &str)) {
    on("PADDLECLOUD_TEST_S3", s3, check);
}

/// Checks something with the settings that lead to a service.
fn on(
    variable: &str,
    settings: impl Fn(&TestEnvironment, &str) -> String,
    check: impl Fn(&TestEnvironment, &str),
) {
    let env = TestEnvironment::new();
    check(&env, &settings(&env, &service(variable)));
}

#[test]
fn a_folder_keeps_a_tree_and_resumes_after_a_crash() {
    let env = TestEnvironment::new();
    check_round_trip_of_a_tree(&env, "");
    let env = TestEnvironment::new();
    check_resume_after_a_crash(&env, "");
}

#[test]
fn an_old_client_sends_to_a_folder() {
    check_old_client(&TestEnvironment::new(), "");
}

#[test]
#[ignore = "needs CephFS"]
fn an_old_client_sends_to_ceph() {
    on_ceph(check_old_client);
}

#[test]
#[ignore = "needs HDFS"]
fn an_old_client_sends_to_hdfs() {
    on_hdfs(check_old_client);
}

#[test]
#[ignore = "needs S3"]
fn an_old_client_sends_to_s3() {
    on_s3(check_old_client);
}

fn check_old_client(env: &TestEnvironment, storage: &str) {
    let site = Site::with(env, &[("ada", "")], storage, &[]);
    an_old_client_sends_a_file_twice(env, &site);
    let left = fs::read_dir(staging(&site, storage)).map(Iterator::count);
    assert_eq!(left.unwrap_or(0), 0, "nothing stays in the spool");
}

#[test]
#[ignore = "needs CephFS"]
fn ceph_keeps_a_tree() {
    on_ceph(check_round_trip_of_a_tree);
}

#[test]
#[ignore = "needs CephFS"]
fn ceph_resumes_after_a_crash() {
    on_ceph(check_resume_after_a_crash);
}

#[test]
#[ignore = "needs HDFS"]
fn hdfs_keeps_a_tree() {
    on_hdfs(check_round_trip_of_a_tree);
}

#[test]
#[ignore = "needs HDFS"]
fn hdfs_resumes_after_a_crash() {
    on_hdfs(check_resume_after_a_crash);
}

#[test]
#[ignore = "needs HDFS"]
fn hdfs_holds_no_jobs_and_reports_its_limits() {
    on_hdfs(|env, storage| check_that_limits_are_reported(env, storage, "HDFS"));
}

#[test]
#[ignore = "needs S3"]
fn s3_keeps_a_tree() {
    on_s3(check_round_trip_of_a_tree);
}

#[test]
#[ignore = "needs S3"]
fn s3_resumes_after_a_crash() {
    on_s3(check_resume_after_a_crash);
}

#[test]
#[ignore = "needs S3"]
fn s3_holds_no_jobs_and_reports_its_limits() {
    on_s3(|env, storage| check_that_limits_are_reported(env, storage, "S3"));
}

/// Small files in packs, one that is not small, an empty folder, an executable, strange names.
fn plant_tree(env: &TestEnvironment) -> PathBuf {
    let tree = env.folder("tree");
    let small = [
        ("a.txt", "one"),
        ("d/e/f.txt", "two"),
        ("été 数据", "three"),
        ("empty", ""),
    ];
    plant(&tree, &small);
    fs::create_dir_all(tree.join("hollow")).expect("ours");
    for index in 0..40 {
        fs::write(tree.join(format!("d/{index:02}")), vec![index; 3000]).expect("ours");
    }
    fs::write(tree.join("run.sh"), "#!/bin/sh\n").expect("ours");
    fs::set_permissions(tree.join("run.sh"), fs::Permissions::from_mode(0o755)).expect("ours");
    fs::write(tree.join("large"), noise(1, 9 << 20)).expect("ours");
    tree
}

fn check_round_trip_of_a_tree(env: &TestEnvironment, storage: &str) {
    let site = Site::with(env, &[("ada", "  quota: {storage: 60Mi}\n")], storage, &[]);
    // Nobody has made her home there yet.
    drop(site.run("ada", &["get", "quota"]).ok().prints("storage\t60Mi\t0"));
    let tree = plant_tree(env);
    let up = ["cp", "-r", arg(&tree), HOME];
    drop(site.run("ada", &up).ok());
    let listed = site.run("ada", &["ls", "-r", HOME]).ok();
    for name in ["tree/d/e/f.txt", "tree/hollow", "tree/été 数据", "tree/large"] {
        assert!(listed.stdout.contains(name), "{name} is not there\n{listed}");
    }

    let back = env.folder("back");
    drop(site.run("ada", &["cp", &format!("{HOME}/tree"), arg(&back)]).ok());
    assert_same(&tree, &back.join("tree"));
    let mode = fs::metadata(back.join("tree/run.sh"))
        .expect("it came")
        .permissions()
        .mode();
    assert_eq!(mode & 0o111, 0o111, "executable bits are kept");

    // A change in the middle of a large file: the rest of it comes from what is there.
    let mut large = fs::read(tree.join("large")).expect("ours");
    large[5 << 20] ^= 1;
    fs::write(tree.join("large"), large).expect("ours");
    fs::write(tree.join("d/e/f.txt"), "changed").expect("ours");
    drop(site.run("ada", &up).ok());
    drop(
        site.run("ada", &["mv", &format!("{HOME}/tree"), &format!("{HOME}/moved")])
            .ok(),
    );
    drop(
        site.run(
            "ada",
            &["cp", "-r", &format!("{HOME}/moved"), &format!("{HOME}/copied")],
        )
        .ok(),
    );
    let again = env.folder("again");
    drop(
        site.run("ada", &["cp", &format!("{HOME}/copied"), arg(&again)])
            .ok(),
    );
    assert_same(&tree, &again.join("copied"));
    drop(
        site.run("ada", &["check", arg(&tree), &format!("{HOME}/moved")])
            .ok(),
    );

    drop(site.run("ada", &["rm", "-r", &format!("{HOME}/copied")]).ok());
    assert!(!site.run("ada", &["ls", HOME]).ok().stdout.contains("copied"));
    let too_much = env.folder("more").join("much");
    fs::write(&too_much, noise(2, 61 << 20)).expect("ours");
    let refused = site.run("ada", &["cp", arg(&too_much), HOME]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.stderr.contains("of 60 MiB are used"), "{refused}");
    let left = site.run("ada", &["ls", HOME]).ok();
    assert!(!left.stdout.contains("much"), "{left}");
    drop(site.run("ada", &["get", "quota"]).ok().prints("storage"));
}

fn check_resume_after_a_crash(env: &TestEnvironment, storage: &str) {
    let mut site = Site::with(env, &[("ada", "")], storage, &[]);
    let file = env.folder("big").join("file");
    let content = noise(3, 48 << 20);
    fs::write(&file, &content).expect("ours");
    let target = format!("{HOME}/file");
    assert_eq!(site.network().passed_in_all(), 0, "it counts from now on");
    // Slow enough that the server dies in the middle.
    let slow = site.spawn("ada", &["cp", "--bwlimit", "4Mi", arg(&file), &target]);
    let staging = staging(&site, storage);
    wait_until("some of the file arrives", || {
        let uploads: Vec<_> = fs::read_dir(&staging).ok()?.flatten().collect();
        let journal = uploads.first()?.path().join("journal");
        fs::metadata(journal).ok().filter(|journal| journal.len() > 0)
    });
    site.server().killer()();
    drop(slow);
    site.start_again();
    let missing = site.run("ada", &["stat", &target]);
    assert_eq!(missing.code, Some(1), "half a file is not there\n{missing}");
    let before = site.network().passed(Way::Up);
    drop(site.run("ada", &["cp", arg(&file), &target]).ok());
    let sent = site.network().passed(Way::Up) - before;
    assert!(
        sent < (45 << 20),
        "{sent} bytes were sent again: at least a chunk of 4 MiB was there"
    );
    let back = env.folder("fetched").join("file");
    drop(site.run("ada", &["cp", &target, arg(&back)]).ok());
    assert!(
        fs::read(&back).expect("it came") == content,
        "the bytes are the same"
    );
    let left = fs::read_dir(&staging).map(Iterator::count).unwrap_or(0);
    assert_eq!(left, 0, "nothing stays in the spool");
}

/// Where an upload grows: in the space itself where that is a folder, else in the server's spool.
fn staging(site: &Site<'_>, storage: &str) -> PathBuf {
    let folder = storage
        .split_once("path: ")
        .and_then(|(_, rest)| rest.split_once('}'));
    let spaces = match folder {
        Some((folder, _)) => PathBuf::from(folder),
        None if storage.is_empty() => site.storage().to_owned(),
        None => site.data().join("spool"),
    };
    spaces.join("home/ada/.pfs-staging")
}

fn check_that_limits_are_reported(env: &TestEnvironment, storage: &str, name: &str) {
    let site = Site::with(env, &[("ada", "  admin: true\n")], storage, &[]);
    let package = env.package("job").file("train.py", "print('never')\n");
    let refused = site.run("ada", &["submit", "-entry", "python3 train.py", package.arg()]);
    let refused = refused.refused(1).says("no job can run here").says("not mounted");
    drop(refused.says(&format!("is on {name} (")));
    let status = site.run("ada", &["server", "status"]).ok();
    drop(status.prints("; no symbolic links"));

    let tree = env.folder("linked");
    fs::write(tree.join("file"), "x").expect("ours");
    std::os::unix::fs::symlink("file", tree.join("link")).expect("ours");
    let partly = site.run("ada", &["cp", "-r", arg(&tree), HOME]);
    assert_eq!(partly.code, Some(1), "what cannot be kept is a failure\n{partly}");
    drop(partly.says("no symbolic links"));
    drop(
        site.run("ada", &["cat", &format!("{HOME}/linked/file")])
            .ok()
            .prints("x"),
    );
}
