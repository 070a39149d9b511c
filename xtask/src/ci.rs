//! `cargo xtask ci`: everything that must pass before a change is merged.
//!
//! People and CI run the same command; `.ci/run` installs what a bare machine lacks.

use std::collections::BTreeSet;
use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use serde_json::Value;

use crate::step::{self, Concurrent, Steps};
use crate::tools::{self, Background};
use crate::workspace::{Workspace, is_installed};
use crate::{chart, no_arguments, spec, test, tidy};

pub fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    no_arguments("ci", args)?;
    // Asked before `compile` replaces the file: afterwards Linux calls it deleted.
    let this_program = env::current_exe()?;
    let mut steps = Steps::default();
    before_this_program(&mut steps);
    let tools = Background::start(workspace);
    steps.run(
        "tidy",
        "each finding says what to do; then `cargo xtask tidy`",
        || tidy::check(workspace),
    );
    steps.run("format", "run `cargo fmt --all`", || {
        step::run(&mut workspace.cargo(&["fmt", "--all", "--check"]))
    });
    scripts(workspace, &mut steps);
    crash_tests_can_run(workspace, &mut steps);
    let workspace = &workspace.with_lints();
    steps.run("compile", "the compiler names the line", || {
        test::compile(workspace)
    });
    steps.run(
        "lints",
        "fix what `compile` printed; `cargo clippy --workspace --all-targets` prints it again",
        || lints(workspace),
    );
    let services = services_and_cluster(workspace, tools, this_program);
    test::all(workspace, &mut steps, &test::Options::beside_services());
    steps.run(
        "openapi.json",
        "run `cargo xtask spec` and commit what it writes",
        || spec::check(workspace),
    );
    let services = services.join().expect("it only starts a program");
    deny(workspace, &mut steps);
    advisories(workspace, &mut steps);
    chart::check(workspace, &mut steps);
    for step in services {
        steps.wait_for(step);
    }
    steps.finish()
}

/// Starts the tests that need storage services or a cluster as soon as the tools are built. They run beside the other
/// tests: all of them often wait, and together they keep the processors busy.
fn services_and_cluster(
    workspace: &Workspace,
    tools: Background,
    this_program: PathBuf,
) -> JoinHandle<[Concurrent; 2]> {
    let workspace = workspace.clone();
    let start = move |title, log, kinds| {
        Concurrent::start(
            title,
            "see its own table above",
            workspace.target().join(log),
            &mut workspace.program(
                &this_program.to_string_lossy(),
                &["test", "--if-available", "--with", kinds],
            ),
        )
    };
    thread::spawn(move || {
        tools.wait();
        [
            start("cluster", "cluster.log", "cluster"),
            start("storage", "storage.log", "ceph,hdfs,s3"),
        ]
    })
}

/// The steps of `.ci/run`, which reports in `PADDLECLOUD_CI_TIMES` when it started and when it had installed
/// everything.
fn before_this_program(steps: &mut Steps) {
    let times = env::var("PADDLECLOUD_CI_TIMES").unwrap_or_default();
    let seconds: Vec<u64> = times
        .split_whitespace()
        .filter_map(|time| time.parse().ok())
        .collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    if let [started, installed] = seconds[..] {
        let installed_at = Duration::from_secs(installed);
        steps.done_before(
            "installs",
            installed_at.saturating_sub(Duration::from_secs(started)),
        );
        steps.done_before("compile xtask", now.saturating_sub(installed_at));
    }
}

/// An error if the compiler or clippy had warnings. They do not stop the compilation, so that one run shows everything
/// that is wrong; cargo kept them and repeats them.
fn lints(workspace: &Workspace) -> Result<()> {
    let messages = step::capture(test::compilation(workspace).arg("--message-format=json"))?;
    match warnings(&String::from_utf8(messages)?) {
        0 => Ok(()),
        n => bail!("the step `compile` printed {n} different warnings"),
    }
}

/// How many different warnings are in cargo's messages. A library is compiled twice, for its tests and for others.
fn warnings(messages: &str) -> usize {
    let different: BTreeSet<String> = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-message" && message["message"]["level"] == "warning")
        .map(|message| message["message"]["rendered"].to_string())
        .collect();
    different.len()
}

/// Crash tests watch what a program writes with strace. Root can install it and trace everything, so there its absence is a
/// failure; elsewhere the tests that need it are listed as not run.
fn crash_tests_can_run(workspace: &Workspace, steps: &mut Steps) {
    let is_root = step::capture(Command::new("id").arg("-u")).is_ok_and(|id| id.trim_ascii() == b"0");
    let mut trace = workspace.program("strace", &["-o", "/dev/null", "true"]);
    if is_root && !succeeds(&mut trace) {
        const FIX: &str = "run `apt install strace`, and permit ptrace";
        steps.run("crash tests under strace", FIX, || {
            bail!("strace is not installed or must not trace here")
        });
    }
}

fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Bans, licenses and sources, which need no network.
fn deny(workspace: &Workspace, steps: &mut Steps) {
    const TITLE: &str = "dependencies";
    if let Err(error) = tools::DENY.install(workspace) {
        steps.skip(TITLE, &format!("{error:#}"));
        return;
    }
    steps.run(
        TITLE,
        "deny.toml gives the reason of each rule; change the dependency, not the rule",
        || {
            let mut deny = workspace.program(&tools::DENY.path(workspace).to_string_lossy(), &["check"]);
            step::run(deny.args(["bans", "licenses", "sources"]))
        },
    );
}

/// Known vulnerabilities and yanked versions. Their database is in a Git repository that not every machine can reach.
fn advisories(workspace: &Workspace, steps: &mut Steps) {
    const TITLE: &str = "advisories";
    let deny = || workspace.program(&tools::DENY.path(workspace).to_string_lossy(), &[]);
    if let Err(error) = tools::DENY.install(workspace) {
        steps.skip(TITLE, &format!("{error:#}"));
        return;
    }
    if !succeeds(deny().args(["fetch", "db"])) {
        steps.skip(TITLE, "the database of RustSec cannot be fetched from github.com");
        return;
    }
    steps.run(
        TITLE,
        "`cargo update -p CRATE` to a version that the advisory names",
        || step::run(deny().args(["check", "--disable-fetch", "advisories"])),
    );
}

/// Every shell script, including that of CI.
fn scripts(workspace: &Workspace, steps: &mut Steps) {
    const TITLE: &str = "shell scripts";
    if !is_installed("shellcheck") {
        steps.skip(
            TITLE,
            "shellcheck is not installed (Debian: `apt install shellcheck`)",
        );
        return;
    }
    steps.run(TITLE, "shellcheck names the line and the reason", || {
        let listed = step::capture(&mut workspace.program("git", &["ls-files", "*.sh", ".ci/run"]))?;
        let listed = String::from_utf8(listed)?;
        step::run(
            workspace
                .program("shellcheck", &["--external-sources"])
                .args(listed.lines()),
        )
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_warnings_of_two_compilations_count_once_and_other_messages_not() {
        let message = |reason: &str, level: &str, text: &str| {
            let message =
                serde_json::json!({"reason": reason, "message": {"level": level, "rendered": text}});
            format!("{message}\n")
        };
        let unused = message("compiler-message", "warning", "unused");
        let messages = [
            &unused,
            &unused,
            &message("compiler-message", "warning", "needless return"),
            &message("compiler-message", "note", "see there"),
            &message("compiler-artifact", "warning", "no message"),
            "not json\n",
        ];
        assert_eq!(warnings(&messages.concat()), 2);
        assert_eq!(warnings(""), 0);
    }
}
