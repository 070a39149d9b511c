//! `build_docker.sh`, in both folders and both forms, with a `docker` that records its arguments.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

const PLACES: [&str; 2] = ["tools/build_docker.sh", "docker/build_docker.sh"];

/// Writes its arguments to `calls`, and keeps the folder it was given as `context`.
const STUB: &str = r#"#!/bin/sh
printf '%s\n' "$@" >>"$RECORD/calls"
for last; do :; done
cp -a "$last" "$RECORD/context"
exit "${STUB_EXIT:-0}"
"#;

struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bench = Self { folder };
        let bin = bench.path("bin");
        fs::create_dir(&bin).unwrap();
        fs::create_dir(bench.path("tmp")).unwrap();
        let stub = bin.join("docker");
        fs::write(&stub, STUB).unwrap();
        fs::set_permissions(&stub, fs::Permissions::from_mode(0o755)).unwrap();
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A package with a hidden file, a link and a folder in it.
    fn package(&self) -> PathBuf {
        let package = self.path("my example");
        fs::create_dir_all(package.join("word2vec")).unwrap();
        fs::write(package.join("word2vec/train.py"), "print()").unwrap();
        fs::write(package.join(".hidden"), "too").unwrap();
        symlink("word2vec/train.py", package.join("latest.py")).unwrap();
        package
    }

    fn wheel(&self) -> PathBuf {
        let wheel = self.path("paddlecloud-0.1.0-cp310-abi3-linux_x86_64.whl");
        fs::write(&wheel, "wheel").unwrap();
        wheel
    }

    fn command(&self, place: &str, args: &[&str]) -> Command {
        let mut command = Command::new(checkout().join(place));
        let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
        command
            .args(args)
            .env_clear()
            .env("PATH", path)
            .env("RECORD", self.folder.path())
            .env("TMPDIR", self.path("tmp"))
            .current_dir(self.folder.path());
        command
    }

    fn run(&self, place: &str, args: &[&str]) -> Output {
        self.command(place, args).output().unwrap()
    }

    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.path("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    fn dockerfile(&self) -> String {
        fs::read_to_string(self.path("context/Dockerfile")).unwrap()
    }

    fn assert_nothing_left(&self) {
        assert_eq!(fs::read_dir(self.path("tmp")).unwrap().count(), 0);
    }
}

fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

#[track_caller]
fn assert_refused(output: &Output, code: i32, words: &str) {
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{err}");
    assert!(err.contains(words), "{err}");
    assert!(output.stdout.is_empty());
}

#[test]
fn four_arguments_put_the_package_into_the_image() {
    for place in PLACES {
        let bench = Bench::new();
        let package = bench.package();
        let output = bench.run(
            place,
            &[
                package.to_str().unwrap(),
                "/example",
                "paddlepaddle/paddle",
                "yancey1989/paddle-job",
            ],
        );
        assert!(output.status.success(), "{place}: {output:?}");
        let calls = bench.calls();
        assert_eq!(calls[..3], ["build", "--tag", "yancey1989/paddle-job"], "{place}");
        assert_eq!(
            bench.dockerfile(),
            "FROM paddlepaddle/paddle\nCOPY package /example\nWORKDIR /example\n"
        );
        let copied = bench.path("context/package");
        assert_eq!(
            fs::read_to_string(copied.join("word2vec/train.py")).unwrap(),
            "print()"
        );
        assert!(copied.join(".hidden").exists());
        assert!(copied.join("latest.py").is_symlink());
        bench.assert_nothing_left();
    }
}

#[test]
fn two_arguments_make_an_image_for_packages_to_come() {
    for place in PLACES {
        let bench = Bench::new();
        let program = bench.path("paddlecloud");
        fs::write(&program, "program").unwrap();
        let output = bench
            .command(place, &["registry:5000/paddle@sha256:0123", "me/runtime:1.0"])
            .env("PADDLECLOUD_PROGRAM", &program)
            .env("PADDLECLOUD_WHEEL", bench.wheel())
            .output()
            .unwrap();
        assert!(output.status.success(), "{place}: {output:?}");
        assert_eq!(bench.calls()[..3], ["build", "--tag", "me/runtime:1.0"]);
        let dockerfile = bench.dockerfile();
        for words in [
            "ln -sf paddlecloud start_paddle.py",
            "COPY start.sh /root/start.sh",
            "pip install --no-cache-dir /tmp/paddlecloud-0.1.0-cp310-abi3-linux_x86_64.whl",
        ] {
            assert!(dockerfile.contains(words), "{dockerfile}");
        }
        assert!(
            dockerfile.starts_with("FROM registry:5000/paddle@sha256:0123\nCOPY paddlecloud "),
            "{dockerfile}"
        );
        assert!(
            dockerfile.contains("ln -sf paddlecloud paddle-data"),
            "{dockerfile}"
        );
        assert_eq!(
            fs::read_to_string(bench.path("context/paddlecloud")).unwrap(),
            "program"
        );
        bench.assert_nothing_left();
    }
}

#[test]
fn without_a_program_two_arguments_say_what_comes_out() {
    let bench = Bench::new();
    let output = bench.run(PLACES[1], &["base", "mine"]);
    assert!(output.status.success());
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("mine is base under another name"), "{err}");
    assert_eq!(bench.dockerfile(), "FROM base\n");
}

#[test]
fn the_script_is_found_through_a_link_and_other_programs_can_build() {
    let bench = Bench::new();
    symlink(checkout().join(PLACES[1]), bench.path("build.sh")).unwrap();
    fs::rename(bench.path("bin/docker"), bench.path("bin/podman")).unwrap();
    let mut command = Command::new(bench.path("build.sh"));
    let path = format!("{}:/usr/bin:/bin", bench.path("bin").display());
    command
        .args(["base", "mine"])
        .env("PATH", path)
        .env("RECORD", bench.folder.path())
        .env("TMPDIR", bench.path("tmp"))
        .env("DOCKER", "podman")
        .env_remove("PADDLECLOUD_PROGRAM");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(bench.calls()[0], "build");
}

#[test]
fn nonsense_never_reaches_docker() {
    let bench = Bench::new();
    let package = bench.package();
    let package = package.to_str().unwrap();
    let cases: [(&[&str], i32, &str); 11] = [
        (&[], 2, "usage: "),
        (&["one"], 2, "usage: "),
        (&["a", "b", "c"], 2, "usage: "),
        (
            &["missing", "/example", "base", "mine"],
            1,
            "`missing` is not a folder here",
        ),
        (
            &[package, "example", "base", "mine"],
            2,
            "is not an absolute path",
        ),
        (&[package, "/", "base", "mine"], 2, "is not the name of a folder"),
        (
            &[package, "/a/../b", "base", "mine"],
            2,
            "is not the name of a folder",
        ),
        (&[package, "/a b", "base", "mine"], 2, "characters"),
        (&[package, "/a\nRUN x", "base", "mine"], 2, "characters"),
        (
            &["--privileged", "mine"],
            2,
            "cannot be the name of the base image",
        ),
        (&["base", "mine\nx"], 2, "cannot be the name of the runtime image"),
    ];
    for (args, code, words) in cases {
        assert_refused(&bench.run(PLACES[0], args), code, words);
    }
    let no_file = bench
        .command(PLACES[0], &["base", "mine"])
        .env("PADDLECLOUD_PROGRAM", bench.path("nothing"))
        .output()
        .unwrap();
    assert_refused(&no_file, 1, "there is no file");
    fs::remove_file(bench.path("bin/docker")).unwrap();
    let no_docker = bench
        .command(PLACES[0], &["base", "mine"])
        .env("DOCKER", "docker-that-is-not-there")
        .output()
        .unwrap();
    assert_refused(&no_docker, 1, "is not in PATH");
    assert!(bench.calls().is_empty());
    bench.assert_nothing_left();
}

#[test]
fn a_build_that_fails_fails_the_script_and_leaves_nothing() {
    let bench = Bench::new();
    let output = bench
        .command(PLACES[0], &["base", "mine"])
        .env("STUB_EXIT", "7")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7));
    bench.assert_nothing_left();
}

#[test]
fn shellcheck_finds_nothing() {
    let scripts = PLACES.map(|place| checkout().join(place));
    match Command::new("shellcheck").args(scripts).output() {
        Ok(output) => assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        ),
        Err(_) => eprintln!("skipped: there is no shellcheck on this machine"),
    }
}

/// The real thing, where an engine runs; `scratch` is built on without any network.
#[test]
fn a_real_engine_builds_the_image() {
    let answers = |args: &[&str]| Command::new("docker").args(args).output();
    if !answers(&["info"]).is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no docker engine runs on this machine");
        return;
    }
    let bench = Bench::new();
    let package = bench.package();
    let image = format!("paddlecloud-e2e:{}", std::process::id());
    let output = Command::new(checkout().join(PLACES[0]))
        .args([package.to_str().unwrap(), "/example", "scratch", &image])
        .env_remove("PADDLECLOUD_PROGRAM")
        .output()
        .unwrap();
    let folder = answers(&["image", "inspect", "--format", "{{.Config.WorkingDir}}", &image]).unwrap();
    let _ = answers(&["image", "rm", &image]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&folder.stdout).trim(), "/example");
}
