//! What tests need of a machine: the words of `#[ignore = "needs …"]`, how to see whether it is here, and how to get it.
//!
//! Such a test runs where all it needs is here, and must pass there. Runs that find nothing out about the machine
//! (`cargo test`) show it as ignored.

mod sources;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use anyhow::Result;

pub use self::sources::{Ignored, ambiguous_name, functions, in_text, in_workspace};
use crate::second_run;
use crate::workspace::Workspace;

/// Something that not every machine has.
#[derive(Debug)]
pub struct Need {
    /// As it is written in a reason.
    pub word: &'static str,
    /// A shell command, run in the root, that succeeds where it is here. `None`: a step of its own starts it.
    probe: Option<&'static str>,
    /// How to get it.
    how: &'static str,
}

pub const CLUSTER: &str = "a Kubernetes cluster";
pub const CEPHFS: &str = "CephFS";
pub const HDFS: &str = "HDFS";
pub const S3: &str = "S3";

const fn need(word: &'static str, probe: &'static str, how: &'static str) -> Need {
    Need {
        word,
        probe: Some(probe),
        how,
    }
}

const fn started(word: &'static str, how: &'static str) -> Need {
    Need {
        word,
        probe: None,
        how,
    }
}

/// Every word that may follow `needs`.
const NEEDS: &[Need] = &[
    need("root", "[ $(id -u) = 0 ]", "run it as root"),
    need(
        "permission to mount",
        "unshare --mount mount -t tmpfs none /tmp",
        "run it as root, where mounting is permitted",
    ),
    need(
        "a loop device",
        "image=$(mktemp) && trap 'rm $image' EXIT && truncate -s 8M $image && mkfs.ext4 -q -F $image && unshare --mount mount -o loop $image /tmp",
        "run it as root, with loop devices",
    ),
    need(
        "xfs",
        "image=$(mktemp) && trap 'rm $image' EXIT && truncate -s 320M $image && mkfs.xfs -q $image && unshare --mount mount -o loop $image /tmp",
        "`apt install xfsprogs`, as root and with loop devices",
    ),
    need(
        "user namespaces",
        "unshare --map-root-user --mount true",
        "permit user namespaces",
    ),
    need(
        "a memory control group",
        "cd /sys/fs/cgroup/memory || cd /sys/fs/cgroup; group=paddlecloud-probe-$$; mkdir $group || exit
         ls $group/memory.limit_in_bytes || ls $group/memory.max; found=$?; rmdir $group; exit $found",
        "run it as root, where control groups can be created",
    ),
    need(
        "full isolation",
        "bash -c 'exec -a paddlecloud-supervise $PROGRAM --probe' | grep -F '\"degraded\":[]'",
        "`paddlectl server status` names what this machine does not permit",
    ),
    need("IPv6", "[ -e /proc/net/if_inet6 ]", "switch IPv6 on"),
    need(
        "12 GiB of disk",
        "[ $(df --output=avail -B1 ${TMPDIR:-/tmp} | tail -n 1) -ge 12884901888 ]",
        "free some below TMPDIR",
    ),
    need(
        "PostgreSQL",
        "ls /usr/lib/postgresql/1[567]/bin/initdb /usr/bin/initdb | grep initdb",
        "`apt install postgresql`",
    ),
    need(
        "strace",
        "strace -o /dev/null true",
        "`apt install strace`, and permit ptrace",
    ),
    need("shellcheck", "command -v shellcheck", "`apt install shellcheck`"),
    need("buildah", "ls /usr/bin/buildah", "`apt install buildah`"),
    need("busybox", "ls /bin/busybox", "`apt install busybox-static`"),
    need(
        "docker-registry",
        "command -v docker-registry",
        "`apt install docker-registry`",
    ),
    need("ctr", "command -v ctr", "`apt install containerd`"),
    need("Python", "command -v python3", "`apt install python3-venv`"),
    need(
        "Python 3.11",
        "python3 -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'",
        "the images of the tests have it, and workers read this machine's packages",
    ),
    need(
        "Python packages",
        "bash crates/py/tests/environment.sh bare --packages",
        "`pip` must find a package index",
    ),
    need(
        "PaddlePaddle",
        "bash crates/py/tests/environment.sh paddle --packages",
        "`pip` must find paddlepaddle in a package index",
    ),
    need(
        "torch",
        "/usr/bin/python3 -c 'import torch'",
        "`apt install python3-torch`",
    ),
    need(
        "schemathesis",
        "bash e2e/schemathesis.sh",
        "`pip` must find schemathesis in a package index",
    ),
    need(
        "oidc-provider",
        "bash e2e/oidc/install.sh",
        "`apt install npm`, which must find oidc-provider in a package index",
    ),
    need(
        "the original's RecordIO files",
        "[ -n \"$PADDLECLOUD_RECORDIO_VECTORS\" ]",
        "PADDLECLOUD_RECORDIO_VECTORS names their folder",
    ),
    need(
        "the original RecordIO",
        "[ -n \"$PADDLECLOUD_RECORDIO_ORIGINAL_PYTHON\" ]",
        "PADDLECLOUD_RECORDIO_ORIGINAL_PYTHON names a Python with recordio 0.1.7",
    ),
    started(CLUSTER, "`cargo xtask test --with cluster`"),
    need(
        "a second node",
        "[ -n \"$PADDLECLOUD_CLUSTER_NODE\" ]",
        "PADDLECLOUD_CLUSTER_NODE names a program that adds and removes nodes",
    ),
    started(CEPHFS, "`cargo xtask test --with ceph`"),
    started(HDFS, "`cargo xtask test --with hdfs`"),
    started(S3, "`cargo xtask test --with s3`"),
];

impl Need {
    pub fn named(word: &str) -> Option<&'static Need> {
        NEEDS.iter().find(|need| need.word == word)
    }

    /// Whether it is here before any step starts it. `path` is where programs are looked for.
    fn is_here(&self, workspace: &Workspace, path: Option<&str>) -> bool {
        let Some(probe) = self.probe else { return false };
        let mut shell = workspace.program("sh", &["-c", probe]);
        shell.env("PROGRAM", workspace.built_program());
        if let Some(path) = path {
            shell.env("PATH", path);
        }
        succeeds(&mut shell)
    }
}

fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// What the tests of a run need and this machine lacks.
#[derive(Debug, Default)]
pub struct Lacks(Vec<&'static str>);

impl Lacks {
    /// Looks for whatever these tests need. Takes minutes where packages are installed for it.
    pub fn find<'a>(
        workspace: &Workspace,
        path: Option<&str>,
        tests: impl IntoIterator<Item = &'a Ignored>,
    ) -> Lacks {
        let needed: BTreeMap<&str, &Need> = tests
            .into_iter()
            .flat_map(|test| &test.needs)
            .map(|need| (need.word, *need))
            .collect();
        let lacking = needed.into_values().filter(|need| !need.is_here(workspace, path));
        Lacks(lacking.map(|need| need.word).collect())
    }

    /// The same after a step has started this.
    pub fn but(mut self, started: &str) -> Lacks {
        self.0.retain(|word| *word != started);
        self
    }

    pub fn nothing_of(&self, test: &Ignored) -> bool {
        !test.needs.iter().any(|need| self.0.contains(&need.word))
    }

    /// What to report: how many tests need something, and how to get it. Without those that need something of `elsewhere`:
    /// a step of its own starts it and reports.
    pub fn report<'a>(&self, tests: impl IntoIterator<Item = &'a Ignored>, elsewhere: &[&str]) -> NotRun {
        let mut counts: BTreeMap<&str, (usize, &Need)> = BTreeMap::new();
        for test in tests {
            let is_elsewhere = elsewhere.iter().any(|word| test.has(word));
            let lacking = test.needs.iter().filter(|need| self.0.contains(&need.word));
            for need in lacking.filter(|_| !is_elsewhere) {
                counts.entry(need.word).or_insert((0, need)).0 += 1;
            }
        }
        let title = |word, count| match count {
            1 => format!("1 test that needs {word}"),
            count => format!("{count} tests that need {word}"),
        };
        counts
            .into_iter()
            .map(|(word, (count, need))| (title(word, count), need.how))
            .collect()
    }
}

/// Arguments of a test program that runs all tests but these. A test that no list names runs, and fails where something
/// is missing.
pub fn all_but<'a>(tests: impl IntoIterator<Item = &'a Ignored>) -> Vec<String> {
    let skipped = tests
        .into_iter()
        .flat_map(|test| ["--skip".to_owned(), test.name.clone()]);
    ["--include-ignored".to_owned()]
        .into_iter()
        .chain(skipped)
        .collect()
}

/// Tests that did not run, and how to get what they need.
pub type NotRun = Vec<(String, &'static str)>;

/// Runs the tests that need something which was just started. Those that need something else that is missing are added to
/// `not_run`. `path` is where programs are looked for.
pub fn run_kind(
    workspace: &Workspace,
    started: &str,
    path: Option<&str>,
    not_run: &mut NotRun,
    environment: impl FnOnce(&mut Command),
) -> Result<()> {
    let mut tests = in_workspace(workspace)?;
    tests.retain(|test| test.has(started));
    let lacks = Lacks::find(workspace, path, &tests).but(started);
    not_run.extend(lacks.report(&tests, &[]));
    tests.retain(|test| lacks.nothing_of(test));
    run_only(workspace, &tests, environment)
}

/// Runs these tests and no others. An error if one of the names is not that of a test.
fn run_only(workspace: &Workspace, tests: &[Ignored], environment: impl FnOnce(&mut Command)) -> Result<()> {
    if tests.is_empty() {
        return Ok(());
    }
    let mut programs: Vec<Vec<&str>> = tests.iter().map(|test| test.program()).collect();
    programs.sort_unstable();
    programs.dedup();
    let mut command = workspace.cargo_test(&[&["--no-fail-fast"], &programs.concat()[..]].concat());
    command.args(["--", "--ignored"]);
    command.args(tests.iter().map(|test| &test.name));
    environment(&mut command);
    let ran = second_run::test(&mut command)?;
    anyhow::ensure!(
        ran == tests.len(),
        "{ran} tests ran instead of {}: compare the names that this command was given with those it printed",
        tests.len()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(name: &str, reason: &str) -> Ignored {
        let text = format!("#[ignore = \"{reason}\"]\nfn {name}() {{}}\n");
        in_text("e2e/tests/e2e/a.rs", &text).unwrap().remove(0)
    }

    #[test]
    fn every_word_is_there_once_and_can_be_listed() {
        for need in NEEDS {
            assert_eq!(NEEDS.iter().filter(|other| other.word == need.word).count(), 1);
            assert!(
                !need.word.contains(", ") && !need.word.contains(" and "),
                "{need:?}"
            );
        }
    }

    #[test]
    fn a_test_runs_only_where_all_it_needs_is_here() {
        let lacks = Lacks(vec!["strace", CLUSTER]);
        assert!(lacks.nothing_of(&test("a", "needs root")));
        assert!(!lacks.nothing_of(&test("a", "needs root and strace")));
        assert!(!lacks.nothing_of(&test("a", "needs a Kubernetes cluster")));
        assert!(
            lacks
                .but(CLUSTER)
                .nothing_of(&test("a", "needs a Kubernetes cluster"))
        );
    }

    #[test]
    fn what_is_missing_is_reported_with_the_number_of_tests_and_not_twice() {
        let tests = [
            test("a", "needs strace"),
            test("b", "needs root and strace"),
            test("c", "needs root"),
            test("d", "needs a Kubernetes cluster and a second node"),
        ];
        let lacks = Lacks(vec!["strace", "a second node", CLUSTER]);
        let strace = (
            "2 tests that need strace".to_owned(),
            "`apt install strace`, and permit ptrace",
        );
        assert_eq!(lacks.report(&tests, &[CLUSTER]), [strace]);
        let lacks = lacks.but(CLUSTER);
        assert_eq!(
            lacks.report(&tests[3..], &[])[0].0,
            "1 test that needs a second node"
        );
    }

    #[test]
    fn tests_are_skipped_by_name_and_every_other_one_runs() {
        let tests = [test("one_fact", "needs root"), test("another_fact", "needs root")];
        assert_eq!(
            all_but(&tests),
            [
                "--include-ignored",
                "--skip",
                "one_fact",
                "--skip",
                "another_fact"
            ]
        );
    }
}
