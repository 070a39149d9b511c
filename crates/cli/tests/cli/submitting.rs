//! Submitting a package: collected, compared, sent, started.

use std::sync::atomic::{AtomicBool, Ordering};

use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::jobs::PackageReply;
use paddlecloud_pfs::Digest;
use serde_json::json;

use crate::scripted::{Server, server, server_with};
use crate::shell::Shell;

fn shell_with_package(endpoint: &str) -> (Shell, String) {
    let shell = Shell::at(endpoint);
    shell.write("word_emb/train.py", "print('hello')");
    shell.write("word_emb/data/big.bin", &"x".repeat(11_000_000));
    shell.write("word_emb/.gitignore", "*.pyc\n");
    shell.write("word_emb/train.pyc", "left out");
    let folder = shell.home().join("word_emb").to_str().unwrap().to_owned();
    (shell, folder)
}

#[test]
fn a_submit_says_what_it_does_and_what_to_type_next() {
    let server = server();
    let (shell, folder) = shell_with_package(&server.endpoint);
    let words = [
        "submit",
        "-p",
        "2",
        "-pservers",
        "1",
        "-jobname",
        "w",
        &folder,
        "--",
        "python",
        "train.py",
        "--lr",
        "a b",
    ];
    let outcome = shell.run(&words);
    insta::assert_snapshot!("submit", outcome.story(&shell));
    let body: serde_json::Value = serde_json::from_slice(&server.bodies("POST /api/v1/jobs")[0]).unwrap();
    assert_eq!(body["entry"], "python train.py --lr 'a b'");
    assert!(
        body.get("shell_env").is_none(),
        "a remote server gets nothing of the shell"
    );
}

#[test]
fn a_virtual_environment_in_the_package_is_not_sent() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    shell.write("pkg/train.py", "print()");
    shell.write("pkg/.venv/pyvenv.cfg", "home = /usr/bin");
    shell.write("pkg/.venv/lib/site.py", "");
    shell.write("pkg/__pycache__/train.pyc", "");
    let folder = shell.home().join("pkg");
    let bin = folder.join(".venv/bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink("/usr/bin/python3", bin.join("python")).unwrap();
    let submit = |entry: &str| shell.run(&["submit", folder.to_str().unwrap(), "-entry", entry]);
    let taken = submit("python train.py");
    assert_eq!(taken.code, 0, "{}", taken.err);
    let notes: Vec<&str> = taken
        .err
        .lines()
        .filter(|line| line.contains("uploaded"))
        .collect();
    let expected = "note: not uploaded: the virtual environment `.venv`, the cache `__pycache__`; \
                    `.paddleignore` can include them (`!FOLDER`)";
    assert_eq!(notes, [expected]);

    for entry in [".venv/bin/python train.py", "python .venv/lib/site.py"] {
        let refused = submit(entry);
        assert_eq!(refused.code, 1, "{}", refused.err);
        assert!(
            refused.err.contains(
                "hint: the virtual environment `.venv` is not uploaded; activate it and write `python`\n"
            ),
            "{}",
            refused.err
        );
    }
}

#[test]
fn a_home_and_credentials_are_not_sent() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    shell.write("train.py", "");
    let home = shell.home().to_str().unwrap();
    let refused = shell.run(&["submit", home, "-entry", "python train.py"]);
    insta::assert_snapshot!(refused.story(&shell), @r"
    exit 1
    --- stdout
    --- stderr
    1 trainer (1 cpu, 1Gi), 1 parameter server (1 cpu, 1Gi)
      runs `python train.py`
    error: cannot use `HOME` as a package: it is your home folder
    hint: put the program into a folder of its own, and submit that folder
    ");

    shell.write("pkg/train.py", "");
    shell.write("pkg/.env", "PASSWORD=1");
    shell.write("pkg/deploy/key.py", "-----BEGIN OPENSSH PRIVATE KEY-----\n");
    let folder = shell.home().join("pkg");
    let submit = |entry: &str| shell.run(&["submit", folder.to_str().unwrap(), "-entry", entry]);
    let taken = submit("python train.py");
    assert_eq!(taken.code, 0, "{}", taken.err);
    let note = "note: not uploaded, because passwords or keys may be inside: `.env`, the private key `deploy/key.py`; \
                `!FILE` in `.paddleignore` includes one, but a stored secret (`paddlectl secret set`) is safer\n";
    assert!(taken.err.contains(note), "{}", taken.err);
    let hint =
        "hint: `deploy/key.py` may hold passwords or keys; `!deploy/key.py` in `.paddleignore` includes it\n";
    let refused = submit("python deploy/key.py");
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains(hint), "{}", refused.err);
}

#[test]
fn a_script_is_told_that_a_package_has_many_files() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    shell.write("pkg/train.py", "");
    for file in 0..10_000 {
        shell.write(&format!("pkg/{file}"), "");
    }
    let folder = shell.home().join("pkg");
    let taken = shell.run(&["submit", folder.to_str().unwrap(), "-entry", "python train.py"]);
    assert_eq!(taken.code, 0, "{}", taken.err);
    assert!(
        taken
            .err
            .contains("note: the package has 0 bytes in 10001 files\n"),
        "{}",
        taken.err
    );
    assert!(taken.err.contains("upload data with `cp`"), "{}", taken.err);
}

/// A server that has all files of the package except its program, until that is sent.
fn server_without_package() -> Server {
    let sent = AtomicBool::new(false);
    server_with(move |line| {
        if line.starts_with("PUT /api/v1/pfs/pack") {
            sent.store(true, Ordering::SeqCst);
        }
        let has_it = sent.load(Ordering::SeqCst);
        match line {
            "POST /api/v1/jobs" if !has_it => {
                let refused = ErrorBody::new(ErrorName::PackageMissing, "the package was not uploaded");
                Some((409, serde_json::to_string(&refused).unwrap()))
            }
            "POST /api/v1/packages" if !has_it => {
                let missing = [Digest::of(b"print('hello')").to_string()];
                let folder = "/pfs/dc1/home/me/.paddlecloud/packages/x";
                let reply = json!({"id": "x", "folder": folder, "missing": missing, "stored": false});
                Some((200, json!({"code": 200, "msg": reply}).to_string()))
            }
            _ => None,
        }
    })
}

#[test]
fn the_server_is_asked_before_anything_is_sent() {
    let server = server_without_package();
    let (shell, folder) = shell_with_package(&server.endpoint);
    let outcome = shell.run(&["submit", &folder, "-entry", "python train.py"]);
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    let lines = server.lines();
    let routes: Vec<&str> = lines.iter().filter_map(|line| line.split('?').next()).collect();
    assert_eq!(
        routes,
        [
            "POST /api/v1/jobs",
            "POST /api/v1/packages",
            "PUT /api/v1/pfs/pack",
            "POST /api/v1/packages",
            "POST /api/v1/jobs",
            "GET /api/v1/jobs/j_01jd2m3n4p5q6r/why"
        ]
    );
}

/// The files of a small package, which the server lacks until the pack came.
fn server_that_reads_lists() -> Server {
    let sent = AtomicBool::new(false);
    server_with(move |line| {
        if line.starts_with("PUT /api/v1/pfs/pack") {
            sent.store(true, Ordering::SeqCst);
        }
        let lacks_it = line == "POST /api/v1/jobs" && !sent.load(Ordering::SeqCst);
        lacks_it.then(program_is_missing)
    })
}

/// The reply to a list: the program is lacking.
fn program_is_missing() -> (u16, String) {
    let refused = ErrorBody::new(ErrorName::PackageMissing, "the package was not uploaded");
    let missing = refused.with_package(PackageReply {
        id: "x".to_owned(),
        folder: "/pfs/dc1/home/me/.paddlecloud/packages/x".to_owned(),
        missing: vec![Digest::of(b"print('hello')").to_string()],
        stored: false,
    });
    (409, serde_json::to_string(&missing).unwrap())
}

#[test]
fn a_small_package_is_listed_in_the_submit() {
    let server = server_that_reads_lists();
    let shell = Shell::at(&server.endpoint);
    shell.write("small/train.py", "print('hello')");
    let folder = shell.home().join("small").to_str().unwrap().to_owned();
    let outcome = shell.run(&["submit", &folder, "-entry", "python train.py"]);
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    assert_eq!(
        outcome.err.matches("Uploading package").count(),
        1,
        "{}",
        outcome.err
    );
    let lines = server.lines();
    let routes: Vec<&str> = lines.iter().filter_map(|line| line.split('?').next()).collect();
    assert_eq!(
        routes,
        [
            "POST /api/v1/jobs",
            "PUT /api/v1/pfs/pack",
            "POST /api/v1/jobs",
            "GET /api/v1/jobs/j_01jd2m3n4p5q6r/why"
        ]
    );
    let asked = server.bodies("POST /api/v1/jobs");
    assert_eq!(asked[0], asked[1]);
    let planned = shell.run(&["submit", "-dry-run", &folder, "-entry", "python train.py"]);
    assert_eq!(planned.code, 0, "{}", planned.err);
    let body: serde_json::Value = serde_json::from_slice(&server.bodies("POST /api/v1/jobs")[2]).unwrap();
    assert_eq!(body.get("package_list"), None, "a dry run sends nothing");
}

#[test]
fn a_list_that_would_make_the_request_large_is_announced_by_itself() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    let listed = |files: usize| {
        for file in 0..files {
            shell.write(&format!("many/{file}.py"), "");
        }
        let folder = shell.home().join("many").to_str().unwrap().to_owned();
        let outcome = shell.run(&["submit", &folder, "-entry", "python 0.py"]);
        assert_eq!(outcome.code, 0, "{}", outcome.err);
        let body = server.bodies("POST /api/v1/jobs").pop().unwrap();
        let request: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert!(body.len() <= paddlecloud_api::SMALL_BODY, "{}", body.len());
        request.get("package_list").is_some()
    };
    assert!(listed(100));
    assert!(!listed(1000));
}

#[test]
fn a_package_that_is_lacking_after_it_was_sent_is_not_sent_for_ever() {
    let server = server_with(|line| (line == "POST /api/v1/jobs").then(program_is_missing));
    let shell = Shell::at(&server.endpoint);
    shell.write("small/train.py", "print('hello')");
    let folder = shell.home().join("small").to_str().unwrap().to_owned();
    let outcome = shell.run(&["submit", &folder, "-entry", "python train.py"]);
    assert_eq!(outcome.code, 1);
    assert!(outcome.err.contains("its files change"), "{}", outcome.err);
}

#[test]
fn only_missing_files_are_sent() {
    let server = server_without_package();
    let (shell, folder) = shell_with_package(&server.endpoint);
    assert_eq!(
        shell.run(&["submit", &folder, "-entry", "python train.py"]).code,
        0
    );
    let puts = server.bodies("PUT /api/v1/pfs/pack");
    assert_eq!(puts.len(), 1);
    assert!(puts[0].len() < 10_000, "{} bytes were sent", puts[0].len());
}

#[test]
fn a_package_the_server_has_is_not_sent_at_all() {
    let server = server();
    let (shell, folder) = shell_with_package(&server.endpoint);
    assert_eq!(
        shell.run(&["submit", &folder, "-entry", "python train.py"]).code,
        0
    );
    assert_eq!(
        server.lines(),
        ["POST /api/v1/jobs", "GET /api/v1/jobs/j_01jd2m3n4p5q6r/why"]
    );
}

#[test]
fn the_job_is_data_only_when_asked_for() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    let line = "submit -entry ./train /pfs/dc1/home/me/pkg";
    assert_eq!(shell.line(line).out, "");
    assert_eq!(shell.line(&format!("{line} -o name")).out, "paddle-cluster-job\n");
    let json: serde_json::Value = serde_json::from_str(&shell.line(&format!("{line} -o json")).out).unwrap();
    assert_eq!(json["id"], "j_01jd2m3n4p5q6r");
}

#[test]
fn a_followed_submit_ends_as_the_job_does() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    let outcome = shell.line("submit -f -entry ./train /pfs/dc1/home/me/pkg");
    assert_eq!(outcome.code, 1);
    assert!(
        outcome.out.contains("trainer-0 | pass 0, cost 1.5\n"),
        "{}",
        outcome.out
    );
}

#[test]
fn a_run_again_can_be_followed_too() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    let outcome = shell.line("rerun -f last");
    assert_eq!(outcome.code, 1, "as the job ends");
    assert!(outcome.out.contains("pass 0, cost 1.5"), "{}", outcome.out);
}

#[test]
fn a_topology_given_with_an_entry_says_which_one_runs() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    let words = [
        "submit",
        "-t",
        "conf.py",
        "-entry",
        "python a.py",
        "/pfs/dc1/home/me/pkg",
    ];
    let outcome = shell.run(&words);
    assert_eq!(outcome.code, 0);
    assert!(
        outcome
            .err
            .contains("note: `-topology conf.py` overrides the entry; `python a.py` is not run\n"),
        "{}",
        outcome.err
    );
}

#[test]
fn bare_paddle_train_needs_its_configuration_in_the_package() {
    let server = server();
    let (shell, folder) = shell_with_package(&server.endpoint);
    for entry in [
        &[][..],
        &["-entry", "paddle train"],
        &["--", "paddle", "train", "--x"],
    ] {
        let outcome = shell.run(&[&["submit", &folder], entry].concat());
        assert_eq!(outcome.code, 1, "{}", outcome.err);
        for expected in [
            "there is no `trainer_config.py` in the package",
            "-entry 'python train.py'",
        ] {
            assert!(outcome.err.contains(expected), "{expected}: {}", outcome.err);
        }
    }
    assert_eq!(server.lines(), [""; 0], "nothing was sent");
    assert_eq!(
        shell.run(&["submit", &folder, "-t", "train.py"]).code,
        0,
        "as the client design types it"
    );
    std::fs::write(std::path::Path::new(&folder).join("trainer_config.py"), "").unwrap();
    let outcome = shell.run(&["submit", &folder]);
    assert_eq!(outcome.code, 0, "{}", outcome.err);
}

#[test]
fn a_missing_name_is_not_invented() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    let outcome = shell.line("submit -entry ./train /pfs/dc1/home/me/pkg");
    assert!(outcome.err.starts_with("1 trainer ("), "{}", outcome.err);
    let dry = shell.line("submit --dry-run -entry ./train /pfs/dc1/home/me/pkg");
    assert!(
        dry.err.contains("would be named paddle-cluster-job\n"),
        "{}",
        dry.err
    );
}

#[cfg(target_os = "linux")]
#[test]
fn missing_features_of_the_machine_are_mentioned_once_per_start() {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    let shell = Shell::new();
    let pid = Arc::new(AtomicU32::new(7));
    let served_pid = pid.clone();
    let _server = crate::scripted::embedded_server(shell.home(), move |line| {
        let (_, body) = crate::scripted::usual(line);
        let mut body: serde_json::Value = serde_json::from_slice(&body).ok()?;
        match line {
            "GET /api/v1/server" => body["msg"]["pid"] = served_pid.load(Ordering::Relaxed).into(),
            "POST /api/v1/jobs" => {
                let general = "memory is watched, not limited, because of cgroups";
                body["notes"] = serde_json::json!([general, "10 cores requested, 2 in total"]);
            }
            _ => return None,
        }
        Some((200, body.to_string()))
    });
    let notes = || {
        let outcome = shell.line("submit -image i");
        assert_eq!(outcome.code, 0, "{}", outcome.err);
        let notes = outcome.err.lines().filter(|line| line.starts_with("note: "));
        let notes = notes.filter(|line| !line.contains("waits for"));
        notes.map(str::to_owned).collect::<Vec<_>>()
    };
    let first = notes();
    assert_eq!(first.len(), 2, "{first:?}");
    assert_eq!(first[0], "note: 10 cores requested, 2 in total");
    assert!(first[1].contains("`paddlectl server status`"), "{first:?}");
    assert_eq!(notes(), first[..1], "told once");
    pid.store(8, Ordering::Relaxed);
    assert_eq!(notes(), first, "and again after the next start");
}

#[test]
fn a_dry_run_uploads_nothing() {
    let server = server();
    let (shell, folder) = shell_with_package(&server.endpoint);
    assert_eq!(
        shell
            .run(&["submit", "--dry-run", &folder, "-entry", "python train.py"])
            .code,
        0
    );
    let bodies = server.bodies("POST /api/v1/jobs");
    let body: serde_json::Value = serde_json::from_slice(&bodies[0]).unwrap();
    assert_eq!(body["dry_run"], true);
    assert!(!server.lines().iter().any(|line| line.contains("packages")));
}

#[test]
fn a_folder_whose_name_no_job_can_have_is_noted() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    let file = shell.write("训练/train.py", "print()");
    let folder = file.parent().unwrap().to_str().unwrap();
    let outcome = shell.run(&["submit", "-entry", "python train.py", folder]);
    let note = "`训练` contains no character that a job name may have: the job is named `job`; choose another name with `-jobname`";
    assert!(outcome.err.contains(note), "{}", outcome.err);
    let named = shell.run(&["submit", "-jobname", "w", "-entry", "python train.py", folder]);
    assert!(!named.err.contains("训练` has none"), "{}", named.err);
}
