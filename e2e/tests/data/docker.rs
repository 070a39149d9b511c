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
        let dockerfile = bench.dockerfile();
        assert!(
            dockerfile.starts_with("FROM paddlecloud/server:0.1.0 AS program\nFROM paddlepaddle/paddle\n"),
            "{dockerfile}"
        );
        assert!(
            dockerfile.ends_with("\nCOPY package /example\nWORKDIR /example\n"),
            "{dockerfile}"
        );
        for file in ["install.sh", "start.sh"] {
            assert!(dockerfile.contains(&format!("COPY {file} ")), "{dockerfile}");
            let (sent, ours) = (
                bench.path("context").join(file),
                checkout().join("deploy/images/runtime").join(file),
            );
            assert_eq!(fs::read(sent).unwrap(), fs::read(ours).unwrap());
        }
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
fn two_arguments_build_an_image_without_a_package() {
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
        assert!(
            dockerfile.starts_with(
                "FROM scratch AS program\nCOPY paddlecloud /usr/local/bin/paddlecloud\nCOPY wheels \
                 /usr/share/paddlecloud\nFROM registry:5000/paddle@sha256:0123\n"
            ),
            "{dockerfile}"
        );
        assert!(dockerfile.ends_with("\nWORKDIR /\n"), "{dockerfile}");
        let wheel = bench
            .path("context/wheels")
            .join(bench.wheel().file_name().unwrap());
        assert_eq!(fs::read_to_string(wheel).unwrap(), "wheel");
        assert_eq!(
            fs::read_to_string(bench.path("context/paddlecloud")).unwrap(),
            "program"
        );
        bench.assert_nothing_left();
    }
}

#[test]
fn the_program_may_come_from_another_image() {
    let bench = Bench::new();
    let output = bench
        .command(PLACES[1], &["base", "mine"])
        .env("PADDLECLOUD_IMAGE", "registry.example.org/server:2")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let dockerfile = bench.dockerfile();
    assert!(
        dockerfile.starts_with("FROM registry.example.org/server:2 AS program\nFROM base\n"),
        "{dockerfile}"
    );
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
fn invalid_arguments_never_reach_docker() {
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
    let only_wheel = bench
        .command(PLACES[0], &["base", "mine"])
        .env("PADDLECLOUD_WHEEL", bench.wheel())
        .output()
        .unwrap();
    assert_refused(&only_wheel, 2, "needs PADDLECLOUD_PROGRAM");
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
fn a_failed_build_fails_the_script_and_leaves_nothing() {
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
#[ignore = "needs shellcheck"]
fn shellcheck_finds_nothing() {
    let scripts = [
        "deploy/images/runtime/install.sh",
        "deploy/images/runtime/start.sh",
    ];
    let scripts = PLACES.iter().chain(&scripts).map(|place| checkout().join(place));
    let output = Command::new("shellcheck").args(scripts).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

/// A base image of this machine's static busybox: nothing is pulled.
const BUSYBOX: &str = "FROM scratch\nCOPY busybox /bin/busybox\nCOPY busybox /bin/sh\n\
                       RUN [\"/bin/busybox\", \"--install\", \"/bin\"]\nRUN mkdir -p /root /tmp /usr/local\n";

/// The real thing, with Debian's `buildah` in the place of `docker`: it needs no daemon.
#[test]
#[ignore = "needs root, buildah and busybox"]
fn a_real_builder_builds_the_image_and_its_names_lead_to_the_program() {
    let bench = Bench::new();
    let buildah = format!(
        "/usr/bin/buildah --storage-driver vfs --root {0}/images --runroot {0}/run",
        bench.folder.path().display()
    );
    let docker =
        format!("#!/bin/sh\ncommand=$1\nshift\nexec {buildah} \"$command\" --isolation chroot \"$@\"\n");
    fs::write(bench.path("bin/docker"), docker).unwrap();
    let sh = |line: &str| {
        let output = Command::new("sh").args(["-c", line]).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let base = bench.path("base");
    fs::create_dir(&base).unwrap();
    fs::copy("/bin/busybox", base.join("busybox")).unwrap();
    fs::write(base.join("Dockerfile"), BUSYBOX).unwrap();
    sh(&format!(
        "{buildah} build --isolation chroot --quiet --tag base {}",
        base.display()
    ));
    // Any static program does to see that it is reached.
    let output = bench
        .command(
            PLACES[0],
            &[
                bench.package().to_str().unwrap(),
                "/example",
                "localhost/base",
                "job",
            ],
        )
        .env("PADDLECLOUD_PROGRAM", "/bin/busybox")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let container = sh(&format!("{buildah} from --quiet localhost/job"));
    let inside = "pwd; cat word2vec/train.py; ls -l /usr/local/bin; test -x /root/start.sh && ls -ld /root";
    let said = sh(&format!(
        "{buildah} run --isolation chroot {} -- sh -c '{inside}'",
        container.trim()
    ));
    sh(&format!(
        "{buildah} rm --all >/dev/null; {buildah} rmi --all --force >/dev/null"
    ));
    assert!(said.starts_with("/example\nprint()"), "{said}");
    for name in [
        "paddle",
        "paddle-data",
        "paddle_k8s",
        "paddlectl",
        "paddlecloud-server",
        "start_paddle.py",
    ] {
        assert!(
            said.contains(&format!(" {name} -> ../lib/paddlecloud/paddlecloud")),
            "{said}"
        );
    }
    assert!(said.contains("drwxr-xr-x"), "{said}");
}
