//! Full and read-only disks: reported in one sentence, nothing lost, and work continues where it can.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use e2e::{Disk, TestEnvironment, wait_until};

const MEGABYTE: u64 = 1 << 20;

#[test]
#[ignore = "needs permission to mount"]
fn a_package_that_does_not_fit_the_disk_is_refused_and_the_next_one_runs() {
    let env = TestEnvironment::new();
    let _disk = Disk::mount(&env.home().join(".paddle"), 24 * MEGABYTE);
    let big = env
        .package("big")
        .file("train.sh", "echo big\n")
        .file("data", vec![7; 64 << 20]);
    let submit = [
        "submit",
        "-jobname",
        "big",
        "-pservers",
        "0",
        "-entry",
        "sh train.sh",
    ];
    env.paddlectl(&[&submit[..], &[big.arg()]].concat())
        .refused(1)
        .says("space");
    assert!(env.jobs().is_empty(), "what was refused left no job");

    let small = env.package("small").file("train.sh", "echo small\n");
    env.submit("small", &small, &["-entry", "sh train.sh", "-f"]);
    env.paddlectl(&["logs", "--raw", "small"]).ok().prints("small\n");
    env.paddlectl(&["server", "stop"]).ok();
}

#[test]
#[ignore = "needs permission to mount"]
fn an_unwritable_home_is_explained() {
    let env = TestEnvironment::new();
    let disk = Disk::mount(&env.home().join(".paddle"), MEGABYTE);
    disk.make_read_only();
    env.paddlectl(&["get", "jobs"]).refused(3).says(".paddle");
    assert!(env.processes().is_empty(), "no server runs");
}

#[test]
#[ignore = "needs permission to mount"]
fn why_says_how_much_output_a_full_disk_lost() {
    let env = TestEnvironment::new();
    let _disk = Disk::mount(&env.home().join(".paddle"), 30 * MEGABYTE);
    let package = env
        .package("loud")
        .file("train.sh", "head -c 60000000 /dev/zero | tr '\\0' x\n");
    env.submit("loud", &package, &["-entry", "sh train.sh"]);
    env.paddlectl(&["wait", "loud"]).ok();
    let why = env.paddlectl(&["why", "loud"]).ok().stdout;
    assert!(
        why.contains("of its output could not be stored and is lost"),
        "{why}"
    );
    env.paddlectl(&["server", "stop"]).ok();
}

/// Writes until there is no room left.
fn fill(path: &Path) {
    let mut file = File::create(path).expect("a file can still be made");
    while file.write_all(&[0; 1024]).is_ok() {}
}

#[test]
#[ignore = "needs permission to mount"]
fn on_a_full_disk_jobs_can_be_killed_and_new_jobs_are_refused() {
    let env = TestEnvironment::new();
    let folder = env.home().join(".paddle");
    let _disk = Disk::mount(&folder, 24 * MEGABYTE);
    let package = env.package("sleeper").file("train.sh", "echo up; sleep 1000\n");
    env.submit("sleeper", &package, &["-entry", "sh train.sh"]);
    env.wait_for_status("sleeper", "Running");
    let old = env.package("old").file("train.sh", "echo old\n");
    env.submit("old", &old, &["-entry", "sh train.sh", "-f"]);
    let stone = folder.join("stone");
    fill(&stone);
    env.paddlectl(&["kill", "-rm", "old"]).ok();
    env.paddlectl(&["kill", "sleeper"]).ok();
    env.wait_for_status("sleeper", "Killed");
    // Whatever room the end of the jobs has made.
    fill(&folder.join("pebble"));
    let submit = [
        "submit",
        "-jobname",
        "more",
        "-pservers",
        "0",
        "-entry",
        "sh train.sh",
        old.arg(),
    ];
    env.paddlectl(&submit).refused(1).says("full");
    // The result of the last check is reused for a while.
    let reply = wait_until("monitoring sees it", || {
        Some(readiness(&folder)).filter(|reply| reply.contains("\"code\":507"))
    });
    assert!(reply.contains("`paddlectl prune --all --outputs`"), "{reply}");
    std::fs::remove_file(folder.join("pebble")).unwrap();
    std::fs::remove_file(stone).unwrap();
    wait_until("the server is ready again", || {
        readiness(&folder).contains("\"code\":200").then_some(())
    });
    env.submit("more", &old, &["-entry", "sh train.sh", "-f"]);
    env.paddlectl(&["server", "stop"]).ok();
    assert_eq!(
        env.status("sleeper"),
        "Killed",
        "what was acknowledged is still there"
    );
    env.paddlectl(&["server", "stop"]).ok();
}

/// The reply of the embedded server's `/readyz`.
fn readiness(folder: &Path) -> String {
    let socket = folder.join("local/server.sock");
    let reply = Command::new("curl")
        .args(["-sS", "--unix-socket", socket.to_str().expect("a path in UTF-8")])
        .arg("http://localhost/readyz")
        .output();
    String::from_utf8_lossy(&reply.expect("there is a curl").stdout).into_owned()
}
