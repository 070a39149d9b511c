//! What a user may store: shown, counted exactly, refused while writing, and found when a job wrote it.

use std::fs;
use std::path::Path;

use e2e::{Background, TestEnvironment, wait_until};

use super::site::Site;
use super::{arg, noise, plant, staged};

#[test]
fn a_quota_refuses_an_upload_and_reports_the_usage() {
    let env = TestEnvironment::new();
    let site = Site::of_ada(&env, "  quota: {storage: 1Mi}\n");
    let data = env.folder("data");
    fs::write(data.join("big"), noise(7, 3 << 20)).unwrap();
    plant(&data, &[("small", "1")]);
    let big = data.join("big");
    site.run("ada", &["cp", arg(&big), "/pfs/cloud/home/ada/big"])
        .refused(1)
        .says("0 bytes of 1 MiB are used");
    site.run("ada", &["stat", "/pfs/cloud/home/ada/big"]).refused(1);
    site.run("ada", &["cp", arg(&data.join("small")), "/pfs/cloud/home/ada/"])
        .ok();
    site.run("ada", &["du"]).ok().says("quota: ");
}

#[test]
fn limit_and_use_of_bytes_and_files_are_shown() {
    let env = TestEnvironment::new();
    let site = Site::of_ada(&env, "  quota: {storage: 1Mi, files: 10}\n");
    let data = env.folder("data");
    fs::write(data.join("a"), vec![1; 300 << 10]).unwrap();
    plant(&data, &[("b", "")]);
    site.run("ada", &["cp", "-r", arg(&data), "/pfs/cloud/home/ada/"])
        .ok();
    let quota = site.run("ada", &["get", "quota"]).ok();
    let row = |name: &str| {
        let found = quota.stdout.lines().find(|line| line.starts_with(name));
        found
            .unwrap_or_else(|| panic!("no row {name}: {quota}"))
            .to_owned()
    };
    assert_eq!(row("storage\t"), "storage\t1Mi\t300Ki\t0\t-");
    assert_eq!(row("files\t"), "files\t10\t2\t-\t-");
    site.run("ada", &["du"])
        .ok()
        .says("quota: 300 KiB of 1 MiB, 2 of 10 files");
}

#[test]
fn an_upload_that_is_dropped_in_flight_is_restarted() {
    let env = TestEnvironment::new();
    let site = Site::of_ada(&env, "");
    let file = env.folder("data").join("big");
    fs::write(&file, noise(7, 20 << 20)).unwrap();
    let path = "/pfs/cloud/home/ada/big";
    let client = start_upload(&site, &file, path);
    site.run("ada", &["pfs", "uploads", "--drop", path]).ok();
    let (status, lines) = client.end();
    assert!(status.success(), "{lines:?}");
    let kept = site.storage().join("home/ada/big");
    assert_eq!(fs::read(kept).unwrap(), fs::read(file).unwrap());
}

/// Begins to send a file, slowly; a part of it has arrived.
fn start_upload(site: &Site<'_>, file: &Path, path: &str) -> Background {
    let words = ["cp", "--bwlimit", "2Mi", "--transfers", "1", arg(file), path];
    let client = site.spawn("ada", &words);
    site.wait_for_part("ada", &[]);
    client
}

fn start_and_kill_upload(site: &Site<'_>, file: &Path, path: &str) {
    let client = start_upload(site, file, path);
    client.killer()();
    drop(client.end());
}

/// The row of `get quota` that is called so.
fn quota_row(site: &Site<'_>, name: &str) -> Option<String> {
    let quota = site.run("ada", &["get", "quota"]).ok().stdout;
    let row = quota.lines().find(|line| line.starts_with(&format!("{name}\t")));
    row.map(str::to_owned)
}

#[test]
fn an_unfinished_upload_counts_until_it_is_completed_or_dropped() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "  quota: {storage: 32Mi}\n");
    let data = env.folder("data");
    let (file, other) = (data.join("big"), data.join("other"));
    fs::write(&file, noise(5, 20 << 20)).unwrap();
    fs::write(&other, noise(6, 20 << 20)).unwrap();
    let path = "/pfs/cloud/home/ada/big";
    start_and_kill_upload(&site, &file, path);
    for _ in 0..2 {
        assert_eq!(
            quota_row(&site, "storage").as_deref(),
            Some("storage\t32Mi\t20Mi\t20Mi\t-")
        );
        assert_eq!(
            quota_row(&site, "unfinished uploads").as_deref(),
            Some("unfinished uploads\t32Mi\t20Mi\t-\t-")
        );
        site.run("ada", &["cp", arg(&other), "/pfs/cloud/home/ada/other"])
            .refused(1)
            .says("20 MiB of 32 MiB are used")
            .says("unfinished uploads");
        site.run("ada", &["du"])
            .ok()
            .says("unfinished uploads: 1 with 21.0 MB; `paddlectl pfs uploads` shows them");
        site.server().killer()();
        site.start_again();
    }

    // Its space was reserved, so it resumes.
    site.run("ada", &["cp", arg(&file), path]).ok();
    assert_eq!(
        quota_row(&site, "storage").as_deref(),
        Some("storage\t32Mi\t20Mi\t0\t-")
    );
    assert_eq!(quota_row(&site, "unfinished uploads"), None);

    site.run("ada", &["rm", path]).ok();
    start_and_kill_upload(&site, &file, path);
    site.server().killer()();
    site.start_again();
    site.run("ada", &["pfs", "uploads"]).ok().prints(path);
    site.run("ada", &["pfs", "uploads", "--drop"])
        .refused(2)
        .says("--all");
    site.run("ada", &["pfs", "uploads", "--drop", "/pfs/cloud/home/ada/none"])
        .refused(1);
    site.run("ada", &["pfs", "uploads", "--drop", path])
        .ok()
        .says("1 upload dropped, 21.0 MB freed");
    assert_eq!(site.run("ada", &["pfs", "uploads"]).ok().stdout, "");
    assert!(staged(site.storage()).is_empty(), "nothing of it stays");
    site.run("ada", &["cp", arg(&other), "/pfs/cloud/home/ada/other"])
        .ok();
}

#[test]
fn a_killed_upload_is_removed_when_the_changed_file_is_sent() {
    let env = TestEnvironment::new();
    let site = Site::of_ada(&env, "  quota: {storage: 64Mi}\n");
    let file = env.folder("data").join("big");
    let mut content = noise(11, 12 << 20);
    fs::write(&file, &content).unwrap();
    let path = "/pfs/cloud/home/ada/big";
    start_and_kill_upload(&site, &file, path);
    content[77] ^= 1;
    fs::write(&file, &content).unwrap();
    site.run("ada", &["cp", arg(&file), path]).ok();
    wait_until("nothing of the first state may stay", || {
        let known = site.run("ada", &["pfs", "uploads"]).ok().stdout;
        known.is_empty().then_some(())
    });
    assert_eq!(
        quota_row(&site, "storage").as_deref(),
        Some("storage\t64Mi\t12Mi\t0\t-")
    );
    assert!(staged(site.storage()).is_empty(), "nothing of it stays");
    assert!(fs::read(site.home("ada").join("big")).unwrap() == content);
}

#[test]
fn an_upload_that_exceeds_the_quota_leaves_nothing_half_written() {
    let env = TestEnvironment::new();
    let site = Site::of_ada(&env, "  quota: {storage: 4Mi, files: 1000}\n");
    let data = env.folder("data");
    plant(&data, &[("old", "the old one")]);
    site.run("ada", &["cp", arg(&data.join("old")), "/pfs/cloud/home/ada/f"])
        .ok();
    // Each fits, all together do not.
    let many = env.folder("many");
    for number in 0..10 {
        fs::write(many.join(number.to_string()), noise(number, 1 << 20)).unwrap();
    }
    let ran = site.run("ada", &["cp", "-r", arg(&many), "/pfs/cloud/home/ada/many"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    let ran = ran.says("of 4 MiB are used");
    assert!(!ran.stderr.contains("panicked"), "{ran}");
    fs::write(data.join("new"), noise(99, 5 << 20)).unwrap();
    site.run("ada", &["cp", arg(&data.join("new")), "/pfs/cloud/home/ada/f"])
        .refused(1);
    assert_eq!(
        site.run("ada", &["cat", "/pfs/cloud/home/ada/f"]).ok().stdout,
        "the old one"
    );
    assert!(staged(site.storage()).is_empty(), "nothing half-written stays");
    let stored = site.run("ada", &["du", "-o", "json"]).ok().json();
    let bytes = stored[0]["bytes"].as_u64().expect("a number");
    assert!(bytes <= 4 << 20, "{bytes} bytes are stored");

    site.run("ada", &["rm", "-r", "/pfs/cloud/home/ada/many"]).ok();
    let one = many.join("0");
    site.run("ada", &["cp", arg(&one), "/pfs/cloud/home/ada/one"])
        .ok();
}

#[test]
fn a_new_version_needs_space_in_addition_to_the_old_one() {
    let env = TestEnvironment::new();
    let site = Site::of_ada(&env, "  quota: {storage: 3Mi, files: 3}\n");
    let file = env.folder("data").join("large");
    let path = "/pfs/cloud/home/ada/large";
    let cp = |seed: u64| {
        fs::write(&file, noise(seed, 2 << 20)).unwrap();
        site.run("ada", &["cp", arg(&file), path])
    };
    cp(1).ok();
    cp(2).refused(1).says("2 MiB of 3 MiB are used");
    let stored = fs::read(site.home("ada").join("large")).unwrap();
    assert!(stored == noise(1, 2 << 20), "it stays as it was");
    assert!(staged(site.storage()).is_empty(), "nothing half-written stays");
    site.run("ada", &["rm", path]).ok();
    cp(2).ok();
}

#[test]
fn files_that_a_job_hides_in_the_staging_folder_count() {
    let env = TestEnvironment::new();
    let site = Site::of_ada(&env, "  quota: {storage: 4Mi}\n");
    let write = "mkdir -p /pfs/cloud/home/ada/.pfs-staging/stash\n\
                 head -c 6000000 /dev/zero > /pfs/cloud/home/ada/.pfs-staging/stash/x\n";
    let package = env.package("job").file("train.sh", write);
    let words = ["submit", "-jobname", "hider", "-pservers", "0", "-cpu", "20m"];
    let more = ["-memory", "32Mi", "-entry", "sh train.sh", package.arg()];
    site.run("ada", &[&words[..], &more].concat()).ok();
    site.run("ada", &["wait", "hider"]).ok();
    assert!(site.home("ada").join(".pfs-staging/stash/x").exists());
    let stored = site.run("ada", &["du", "-o", "json"]).ok().json();
    let shown = stored[0]["bytes"].as_u64().expect("a number");
    assert!(shown < 6_000_000, "it is not among the files: {shown}");
    let data = env.folder("data");
    plant(&data, &[("a", "1")]);
    let file = data.join("a");
    let counted = quota_row(&site, "storage").expect("a row");
    assert!(counted.starts_with("storage\t4Mi\t60"), "{counted}");
    site.run("ada", &["cp", arg(&file), "/pfs/cloud/home/ada/a"])
        .refused(1)
        .says("of 4 MiB are used");
    fs::remove_dir_all(site.home("ada").join(".pfs-staging/stash")).unwrap();
    // What was measured a moment ago is believed for some seconds.
    wait_until("what is gone must not count any more", || {
        let ran = site.run("ada", &["cp", arg(&file), "/pfs/cloud/home/ada/a"]);
        (ran.code == Some(0)).then_some(())
    });
}

#[test]
fn a_job_over_quota_blocks_writes_and_submits_until_space_is_freed() {
    let env = TestEnvironment::new();
    let site = Site::of_ada(&env, "  quota: {storage: 4Mi}\n");
    let write = "head -c 6000000 /dev/zero > /pfs/cloud/home/ada/too-much\n";
    let package = env.package("job").file("train.sh", write);
    let submit = |name: &'static str| {
        let words = ["submit", "-jobname", name, "-pservers", "0", "-cpu", "20m"];
        [
            &words[..],
            &["-memory", "32Mi", "-entry", "sh train.sh", package.arg()],
        ]
        .concat()
    };
    site.run("ada", &submit("writer")).ok();
    site.run("ada", &["wait", "writer"]).ok();
    let quota = site.run("ada", &["get", "quota"]).ok().stdout;
    let row = quota.lines().find(|line| line.starts_with("storage\t4Mi\t"));
    assert!(row.is_some(), "{quota}");

    let data = env.folder("data");
    plant(&data, &[("a", "1")]);
    let file = data.join("a");
    let upload = ["cp", arg(&file), "/pfs/cloud/home/ada/a"];
    // What was measured a moment ago is believed for some seconds.
    let refused = wait_until("the job's writing must be found", || {
        Some(site.run("ada", &upload)).filter(|ran| ran.code == Some(1))
    });
    let refused = refused.refused(1).says("of 4 MiB are used");
    assert!(refused.stderr.contains("hint: "), "{refused}");
    site.run("ada", &submit("refused"))
        .refused(1)
        .says("of 4 MiB are used");

    site.run("ada", &["rm", "/pfs/cloud/home/ada/too-much"]).ok();
    site.run("ada", &upload).ok();
    site.run("ada", &submit("again")).ok();
    site.run("ada", &["wait", "again"]).ok();
}

#[test]
fn a_job_that_writes_above_the_limit_is_stopped_and_none_starts_until_files_are_removed() {
    let env = TestEnvironment::new();
    let site = Site::of_ada(&env, "  quota: {storage: 4Mi}\n");
    let write = "until [ -e /pfs/cloud/home/ada/go ]; do sleep 0.1; done\n\
                 head -c 6000000 /dev/zero > /pfs/cloud/home/ada/too-much\n\
                 exec sleep 600\n";
    let package = env.package("job").file("train.sh", write);
    let submit = |name: &'static str, entry: &'static str| {
        let words = ["submit", "-jobname", name, "-pservers", "0", "-cpu", "2"];
        let more = ["-memory", "32Mi", "-entry", entry, package.arg()];
        site.run("ada", &[&words[..], &more].concat()).ok();
    };
    submit("writer", "sh train.sh");
    // The first job holds both cores.
    submit("next", "true");
    fs::write(site.home("ada").join("go"), "").unwrap();
    assert_eq!(site.run("ada", &["wait", "writer"]).code, Some(1));
    site.run("ada", &["why", "writer"])
        .ok()
        .prints("stopped because its owner's files exceed the storage quota: 5.7 MiB of 4 MiB in use");
    site.run("ada", &["why", "next"]).ok().prints(
        "your files exceed the storage quota: 5.7 MiB of 4 MiB in use; no job starts until enough is removed",
    );
    site.run("ada", &["rm", "/pfs/cloud/home/ada/too-much"]).ok();
    site.run("ada", &["wait", "next"]).ok();
}

#[test]
fn waiting_jobs_of_a_user_above_the_limit_still_wait_after_a_restart() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "  quota: {storage: 4Mi}\n");
    let package = env.package("job").file("train.sh", "exec sleep 600\n");
    let submit = |name: &'static str| {
        let words = ["submit", "-jobname", name, "-pservers", "0", "-cpu", "2"];
        let more = ["-memory", "32Mi", "-entry", "sh train.sh", package.arg()];
        site.run("ada", &[&words[..], &more].concat()).ok();
    };
    submit("first");
    submit("next");
    site.server().killer()();
    fs::write(site.home("ada").join("too-much"), noise(1, 6_000_000)).unwrap();
    site.start_again();
    assert_eq!(site.run("ada", &["wait", "first"]).code, Some(1));
    site.run("ada", &["why", "next"])
        .ok()
        .prints("your files exceed the storage quota: 5.7 MiB of 4 MiB in use");
}

#[test]
fn pruned_outputs_free_quota_immediately() {
    let env = TestEnvironment::new();
    let site = Site::of_ada(&env, "  quota: {storage: 4Mi}\n");
    let write = "head -c 6000000 /dev/zero > output/too-much\n";
    let package = env.package("job").file("train.sh", write);
    let submit = |name: &'static str| {
        let words = ["submit", "-jobname", name, "-pservers", "0", "-cpu", "20m"];
        [
            &words[..],
            &["-memory", "32Mi", "-entry", "sh train.sh", package.arg()],
        ]
        .concat()
    };
    site.run("ada", &submit("writer")).ok();
    site.run("ada", &["wait", "writer"]).ok();
    // Measures the home, so that the next request relies on it.
    site.run("ada", &["get", "quota"]).ok();
    site.run("ada", &submit("refused"))
        .refused(1)
        .says("of 4 MiB are used");
    site.run("ada", &["prune", "--all", "--outputs"]).ok();
    site.run("ada", &submit("again")).ok();
    site.run("ada", &["wait", "again"]).ok();
}

#[test]
fn a_dry_run_of_prune_reports_how_much_would_be_freed() {
    let env = TestEnvironment::new();
    for (name, seed) in [("first", 1), ("second", 2)] {
        // Another version under the same name: what the first run used is nobody's any more.
        let package = env
            .package("job")
            .file("train.sh", "echo done\n")
            .file("data", noise(seed, 1 << 20));
        env.submit(name, &package, &["-entry", "sh train.sh"]);
        env.paddlectl(&["wait", name]).ok();
    }
    let prune = |more: &[&str]| {
        let words = [&["prune", "--all", "-o", "json"], more].concat();
        let reply = env.paddlectl(&words).ok().json();
        (
            reply["removed"].clone(),
            reply["bytes"].as_u64().expect("a number"),
        )
    };
    let (jobs, bytes) = prune(&["--dry-run"]);
    assert!(bytes > 1 << 20, "{bytes} bytes");
    assert_eq!(jobs.as_array().map(Vec::len), Some(2));
    assert_eq!(env.jobs().len(), 2, "nothing was removed");
    assert_eq!(prune(&[]), (jobs, bytes), "what was foreseen happened");
    assert_eq!(env.jobs().len(), 0);
}
