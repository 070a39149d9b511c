//! Disks that fill up during a transfer: one clear error, nothing half-written, and work continues once there is space.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::{Disk, TestEnvironment, wait_until};

use super::site::Site;
use super::{arg, noise, plant, staged};

const MEGABYTE: u64 = 1 << 20;
const FILE: &str = "/pfs/cloud/home/ada/model";

/// Takes all room there is.
fn fill(disk: &Path) {
    let mut file = fs::File::create(filler(disk)).expect("a new name still fits");
    for piece in [vec![0_u8; 64 << 10], vec![0_u8; 512]] {
        while file.write_all(&piece).is_ok() {}
    }
}

fn make_room(disk: &Path) {
    fs::remove_file(filler(disk)).expect("it was filled");
}

fn filler(disk: &Path) -> PathBuf {
    disk.join("filler")
}

/// The HTTP status of a request that announces a large upload.
fn status_of_a_large_upload(site: &Site<'_>) -> String {
    let body = format!(r#"{{"path":"{FILE}","size":1000000000,"key":"k"}}"#);
    let curl = Command::new("curl")
        .args(["-sS", "-o", "/dev/null", "-w", "%{http_code}"])
        .args(["-u", "ada:secret of ada", "-H", "content-type: application/json"])
        .args(["-d", &body])
        .arg(format!("http://{}/api/v1/pfs/uploads", site.endpoint()))
        .output()
        .expect("there is a curl");
    String::from_utf8_lossy(&curl.stdout).into_owned()
}

#[test]
#[ignore = "needs permission to mount"]
fn a_disk_that_fills_up_in_the_middle_harms_no_file() {
    let env = TestEnvironment::new();
    let disk_at = env.folder("disk");
    let _disk = Disk::mount(&disk_at, 40 * MEGABYTE);
    let settings = format!("storage: {}\n", arg(&disk_at.join("storage")));
    let mut site = Site::with(&env, &[("ada", "")], &settings, &[]);
    let data = env.folder("data");
    plant(&data, &[("old", "the old model"), ("note", "a small file")]);
    fs::write(data.join("new"), noise(80, 24 << 20)).expect("a file can be written");
    for number in 0..100 {
        let name = format!("many/{number}");
        plant(&data, &[(&name, "")]);
        fs::write(data.join(name), noise(number, 100_000)).expect("a file can be written");
    }
    site.run("ada", &["cp", arg(&data.join("old")), FILE]).ok();
    assert_eq!(status_of_a_large_upload(&site), "507");

    let (new, many) = (data.join("new"), data.join("many"));
    for words in [
        vec!["cp", arg(&new), FILE],
        vec!["cp", "-r", arg(&many), "/pfs/cloud/home/ada/"],
    ] {
        let disk = disk_at.clone();
        site.network().after(4 * MEGABYTE, move || fill(&disk));
        let ran = site.run("ada", &words);
        assert_eq!(ran.code, Some(1), "{ran}");
        let ran = ran.says("no space is left");
        assert!(!ran.stderr.contains("panicked"), "{ran}");
        assert_eq!(site.run("ada", &["cat", FILE]).ok().stdout, "the old model");
        assert!(staged(&disk_at).is_empty(), "nothing half-written stays");
        make_room(&disk_at);
    }
    site.run("ada", &["cp", arg(&data.join("note")), "/pfs/cloud/home/ada/"])
        .ok();
    site.run("ada", &["cp", arg(&new), FILE]).ok();
    site.run("ada", &["check", arg(&new), FILE]).ok();
    site.run("ada", &["rm", FILE]).ok();

    let submit = ["submit", "-jobname", "job", "-pservers", "0", "-entry", "true"];
    let submit = [&submit[..], &[arg(&many)]].concat();
    let disk = disk_at.clone();
    site.network().after(4 * MEGABYTE, move || fill(&disk));
    site.run("ada", &submit)
        .refused(1)
        .says("no space is left to write")
        .says("hint: free some space: `paddlectl du`");
    wait_until("nothing half-written stays", || {
        staged(&disk_at).is_empty().then_some(())
    });
    make_room(&disk_at);
    site.run("ada", &submit).ok();
}

#[test]
#[ignore = "needs permission to mount"]
fn a_server_whose_own_disk_is_full_answers_and_recovers() {
    let env = TestEnvironment::new();
    let disk_at = env.folder("server/data");
    let _disk = Disk::mount(&disk_at, 32 * MEGABYTE);
    let mut site = Site::of_ada(&env, "");
    let data = env.folder("data");
    plant(&data, &[("a", "some bytes")]);
    site.run("ada", &["cp", arg(&data.join("a")), FILE]).ok();
    let package = env.package("job").file("train.sh", "echo it runs\n");
    let submit = |name: &'static str| {
        let words = ["submit", "-jobname", name, "-pservers", "0", "-cpu", "20m"];
        [
            &words[..],
            &["-memory", "32Mi", "-entry", "sh train.sh", package.arg()],
        ]
        .concat()
    };

    fill(&disk_at);
    for _ in 0..3 {
        site.run("ada", &["whoami"]).ok();
        site.run("ada", &["get", "jobs"]).ok();
        site.run("ada", &["ls", "/pfs/cloud/home/ada"])
            .ok()
            .prints("model\n");
        assert_eq!(site.run("ada", &["cat", FILE]).ok().stdout, "some bytes");
        site.run("ada", &["cp", arg(&data.join("a")), "/pfs/cloud/home/ada/b"])
            .refused(1)
            .says("space");
        site.run("ada", &submit("refused")).refused(1);
        site.run("ada", &["publish", FILE]).refused(1);
    }
    assert!(staged(&disk_at).is_empty(), "nothing half-written stays");

    make_room(&disk_at);
    site.run("ada", &["cp", arg(&data.join("a")), "/pfs/cloud/home/ada/b"])
        .ok();
    site.run("ada", &submit("again")).ok();
    site.run("ada", &["wait", "again"]).ok();
    site.run("ada", &["logs", "--raw", "again"])
        .ok()
        .prints("it runs\n");
    let listed = site.run("ada", &["get", "jobs", "-a", "-o", "json"]).ok().json();
    assert_eq!(
        listed.as_array().map(Vec::len),
        Some(1),
        "what was refused left no job"
    );

    // Killed on a full disk it starts again, at the latest when there is room.
    fill(&disk_at);
    site.server().killer()();
    make_room(&disk_at);
    site.start_again();
    assert_eq!(site.run("ada", &["cat", FILE]).ok().stdout, "some bytes");
}

/// Not even a folder can be created; freeing space must still work.
#[test]
#[ignore = "needs a loop device"]
fn a_folder_can_be_removed_from_a_completely_full_disk() {
    let env = TestEnvironment::new();
    let disk_at = env.folder("disk");
    let image = env.folder("images").join("ext4");
    let _disk = Disk::ext4(&disk_at, &image, 24 * MEGABYTE);
    let settings = format!("storage: {}\n", arg(&disk_at.join("storage")));
    let site = Site::with(&env, &[("ada", "")], &settings, &[]);
    let data = env.folder("data");
    plant(
        &data,
        &[
            ("old/a/b/c/d", "deep"),
            ("old/a/b/beside", "x"),
            ("old/e/f", "y"),
            ("old/g", "z"),
            ("kept", "stays"),
        ],
    );
    site.run(
        "ada",
        &["cp", "-r", &format!("{}/.", arg(&data)), "/pfs/cloud/home/ada/"],
    )
    .ok();
    fill(&disk_at);
    site.run("ada", &["mkdir", "/pfs/cloud/home/ada/new"])
        .refused(1)
        .says("no space is left");
    site.run("ada", &["rm", "-r", "/pfs/cloud/home/ada/old"]).ok();
    let left = site.run("ada", &["ls", "-a", "/pfs/cloud/home/ada"]).ok();
    assert_eq!(left.stdout, "kept\n");
    site.run("ada", &["mkdir", "/pfs/cloud/home/ada/new"]).ok();
}
