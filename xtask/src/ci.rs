//! `cargo xtask ci`: everything that must pass before a change is merged.
//!
//! People and CI run the same command; `.ci/run` installs what a bare machine lacks.

use anyhow::Result;

use crate::services::{self, Absent, Service};
use crate::step::{self, Steps};
use crate::tools::{self, Background};
use crate::workspace::{EVERYTHING, Workspace, is_installed};
use crate::{cluster, no_arguments, spec, test, tidy};

pub fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    no_arguments("ci", args)?;
    let mut steps = Steps::default();
    let tools = Background::start(workspace);
    steps.run(
        "tidy",
        "each finding says what to do; then `cargo xtask tidy`",
        || tidy::check(workspace),
    );
    steps.run("format", "run `cargo fmt --all`", || {
        step::run(&mut workspace.cargo(&["fmt", "--all", "--check"]))
    });
    steps.run(
        "lints",
        "run `cargo clippy --workspace --all-targets` and fix what it reports",
        || {
            let mut clippy = workspace.cargo(&["clippy", "--all-targets"]);
            step::run(clippy.args(EVERYTHING).args(["--", "-D", "warnings"]))
        },
    );
    scripts(workspace, &mut steps);
    test::all(workspace, &mut steps, &test::Options::default());
    steps.run(
        "openapi.json",
        "run `cargo xtask spec` and commit what it writes",
        || spec::check(workspace),
    );
    tools.wait();
    deny(workspace, &mut steps);
    services::test(workspace, &mut steps, &Service::ALL, Absent::Skipped);
    cluster::test(workspace, &mut steps, Absent::Skipped);
    steps.finish()
}

/// Bans, licenses and sources. Advisories need a network and belong to the release workflow.
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
