//! A server and workers that are not root: the same confinement, the same transfers, the same jobs.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use e2e::TestEnvironment;

use super::site::Site;
use super::trees::{assert_identical, plant_mixed};
use super::{arg, plant};

/// Becomes `nobody`, with no right that root has.
const AS_NOBODY: &[&str] = &[
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=-all",
    "--bounding-set=-all",
    "--no-new-privs",
];

fn give_to_nobody(path: &Path) {
    std::os::unix::fs::chown(path, Some(65534), Some(65534)).expect("root may give things away");
}

/// A server that runs as `nobody`. Needs root.
pub fn site(env: &TestEnvironment) -> Site<'_> {
    site_of(env, "")
}

/// The same with further lines about `ada`.
fn site_of<'a>(env: &'a TestEnvironment, of_ada: &str) -> Site<'a> {
    let server = env.folder("server");
    let top = server.parent().expect("it lies in the test's own folder");
    fs::set_permissions(top, fs::Permissions::from_mode(0o755)).expect("it is ours");
    give_to_nobody(&server);
    // The password must be readable for the server and for nobody else.
    let password = server.join("ada");
    fs::write(&password, "").expect("a file in the test's own folder");
    give_to_nobody(&password);
    Site::with(env, &[("ada", of_ada)], "", AS_NOBODY)
}

/// Where the files of [`site_with`] are.
pub const TREE: &str = "/pfs/cloud/home/ada/t";

/// The same, with files that ada has sent there.
pub fn site_with<'a>(env: &'a TestEnvironment, files: &[(&str, &str)]) -> Site<'a> {
    let site = site(env);
    let data = env.folder("data");
    plant(&data, files);
    site.run("ada", &["cp", "-r", arg(&data), TREE]).ok();
    site
}

/// Takes all rights to a file or folder of the server away from whom it belongs to.
pub fn lock(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o000)).expect("root may");
}

#[test]
#[ignore = "needs root"]
fn files_are_copied_through_a_server_that_is_not_root() {
    let env = TestEnvironment::new();
    let site = site(&env);
    let (tree, back) = (env.folder("tree"), env.folder("back"));
    plant_mixed(&tree, 200);
    let remote = "/pfs/cloud/home/ada/tree";
    site.run("ada", &["cp", "-r", arg(&tree), remote]).ok();
    assert_identical(&tree, &site.home("ada").join("tree"));
    assert_eq!(
        fs::metadata(site.home("ada").join("tree/large.bin"))
            .unwrap()
            .uid(),
        65534,
        "the server is not root"
    );
    site.run("ada", &["cp", remote, arg(&back)]).ok();
    assert_identical(&tree, &back.join("tree"));
    site.run("ada", &["cp", "-r", remote, "/pfs/cloud/home/ada/copy"])
        .ok();
    site.run("ada", &["check", remote, "/pfs/cloud/home/ada/copy"])
        .ok();
    site.run("ada", &["rm", "-r", "/pfs/cloud/home/ada/copy"]).ok();
}

#[test]
#[ignore = "needs root"]
fn folders_that_a_job_locked_are_reported_and_can_be_removed() {
    let env = TestEnvironment::new();
    let files = [("a", "1"), ("closed/b", "2"), ("read-only/c/d", "3"), ("z", "4")];
    let site = site_with(&env, &files);
    let (remote, back, there) = (TREE, env.folder("back"), site.home("ada").join("t"));
    lock(&there.join("closed"));
    for name in ["read-only/c", "read-only"] {
        let mode = fs::Permissions::from_mode(0o555);
        fs::set_permissions(there.join(name), mode).expect("root may");
    }

    let measured = site.run("ada", &["du", "-o", "json", remote]).json();
    let count = |name: &str| measured[0][name].as_u64();
    assert_eq!(
        (count("files"), count("unread")),
        (Some(3), Some(1)),
        "{measured}"
    );

    let uncounted = "1 folder in it is unreadable, its contents are not counted";
    let ran = site.run("ada", &["du", remote]).says(uncounted);
    assert_eq!(ran.code, Some(1), "{ran}");

    let listed = site.run("ada", &["ls", "-r", remote]);
    assert_eq!(listed.code, Some(1), "{listed}");
    assert!(listed.stdout.ends_with("read-only/c/d\nz\n"), "{listed}");
    let copied = site.run("ada", &["cp", "-r", remote, arg(&back.join("t"))]);
    copied
        .refused(1)
        .says("/pfs/cloud/home/ada/t/closed")
        .says(" ... Done, 1 failed");
    assert_eq!(fs::read(back.join("t/z")).unwrap(), b"4", "the rest is here");
    plant(&back, &[("t/extra", "")]);
    site.run("ada", &["sync", "--delete", remote, arg(&back.join("t"))])
        .refused(1)
        .says("so nothing is deleted");
    assert!(back.join("t/extra").exists());

    site.run("ada", &["rm", "-r", remote]).ok().says(uncounted);
    let left = fs::read_dir(site.home("ada")).unwrap().flatten();
    let left: Vec<_> = left
        .map(|entry| entry.file_name())
        .filter(|name| name != ".paddlecloud")
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
#[ignore = "needs root"]
fn a_job_of_a_server_that_is_not_root_works_on_its_users_files() {
    let env = TestEnvironment::new();
    let site = site(&env);
    let data = env.folder("data");
    plant(&data, &[("in", "seven")]);
    site.run("ada", &["cp", arg(&data.join("in")), "/pfs/cloud/home/ada/in"])
        .ok();
    // It reads what was uploaded, leaves something, and plants a link to what is not its own.
    let script = "set -e\ncd \"$(dirname /pfs/cloud/home/ada/in)\"\ncat in > out\nid -u\n\
                  ln -s /etc/shadow leak\nln -s ../../../../../../etc links\n";
    let package = env.package("job").file("train.sh", script);
    let words = [
        "submit",
        "-jobname",
        "worker",
        "-pservers",
        "0",
        "-cpu",
        "20m",
        "-memory",
        "32Mi",
    ];
    let more = ["-entry", "sh train.sh", package.arg()];
    site.run("ada", &[&words[..], &more].concat()).ok();
    let waited = site.run("ada", &["wait", "worker"]);
    let logs = site.run("ada", &["logs", "--raw", "worker"]).ok();
    assert_eq!(waited.code, Some(0), "{waited}\n{logs}");
    logs.prints("65534\n");
    assert_eq!(
        site.run("ada", &["cat", "/pfs/cloud/home/ada/out"]).ok().stdout,
        "seven"
    );
    site.run("ada", &["cat", "/pfs/cloud/home/ada/leak"]).refused(1);
    site.run("ada", &["ls", "/pfs/cloud/home/ada/links"]).refused(1);
    site.run(
        "ada",
        &["cp", arg(&data.join("in")), "/pfs/cloud/home/ada/links/x"],
    )
    .refused(1);
}

#[test]
#[ignore = "needs root"]
fn a_job_that_hides_files_in_an_unreadable_folder_is_stopped_and_the_folder_is_named() {
    let env = TestEnvironment::new();
    let site = site_of(&env, "  quota: {storage: 4Mi}\n");
    let hide = "cd /pfs/cloud/home/ada && mkdir hidden && head -c 6000000 /dev/zero > hidden/much\n\
                chmod 000 hidden && exec sleep 600\n";
    let package = env.package("job").file("train.sh", hide);
    let submit = |name: &'static str, entry: &'static str| {
        let words = ["submit", "-jobname", name, "-pservers", "0", "-cpu", "2"];
        let more = ["-memory", "32Mi", "-entry", entry, package.arg()];
        site.run("ada", &[&words[..], &more].concat())
    };
    submit("hider", "sh train.sh").ok();
    // The first job holds both cores.
    submit("next", "true").ok();
    assert_eq!(site.run("ada", &["wait", "hider"]).code, Some(1));
    let unknown =
        "cannot be compared with the storage quota: the server may not read `/pfs/cloud/home/ada/hidden`";
    site.run("ada", &["why", "hider"])
        .ok()
        .prints(&format!("stopped because its owner's files {unknown}"));
    site.run("ada", &["why", "next"]).ok().prints(&format!(
        "your files {unknown}; no job starts until it is readable or removed"
    ));
    submit("refused", "true")
        .refused(1)
        .says("the server may not read `hidden` in the home of ada")
        .says("paddlectl rm -r");
    site.run("ada", &["rm", "-r", "/pfs/cloud/home/ada/hidden"]).ok();
    site.run("ada", &["wait", "next"]).ok();
}

#[test]
#[ignore = "needs root"]
fn nothing_leads_out_of_a_home_even_if_the_kernel_does_not_separate_users() {
    let env = TestEnvironment::new();
    let site = site(&env);
    site.run("ada", &["mkdir", "/pfs/cloud/home/ada/d"]).ok();
    let home = site.home("ada");
    // All of it belongs to the server's own user: only the service stands in the way.
    let other_home = site.storage().join("home/eve");
    fs::create_dir(&other_home).unwrap();
    fs::write(other_home.join("secret"), "of eve").unwrap();
    for (target, name) in [
        ("../../eve", "up"),
        ("/etc", "etc"),
        ("d/../../eve/secret", "through"),
        ("loop", "loop"),
        ("/proc/self/root/etc", "magic"),
    ] {
        symlink(target, home.join(name)).unwrap();
    }
    for path in [
        "up/secret",
        "up",
        "etc/passwd",
        "through",
        "loop",
        "magic/passwd",
        "d/../../eve/secret",
    ] {
        let path = format!("/pfs/cloud/home/ada/{path}");
        for words in [
            &["cat", &path][..],
            &["stat", "--digest", &path],
            &["ls", "-r", &path],
            &["cp", &path, "/pfs/cloud/home/ada/copy"],
        ] {
            let ran = site.run("ada", words);
            assert!(
                !ran.stdout.contains("of eve") && !ran.stdout.contains("root:"),
                "{ran}"
            );
            if words[0] == "cat" {
                ran.refused(1);
            }
        }
    }
    for path in [
        "/pfs/cloud/home/eve",
        "/pfs/cloud/home/eve/secret",
        "/pfs/cloud/home/*/secret",
    ] {
        site.run("ada", &["cat", path]).refused(1);
    }
    assert_eq!(fs::read_to_string(other_home.join("secret")).unwrap(), "of eve");
    assert_eq!(fs::read_dir(&other_home).unwrap().count(), 1);
}
