//! `cargo xtask ci`: everything that must pass before a change is merged.
//!
//! People and CI run this same command; what a bare machine lacks is installed by `.ci/run`.

use anyhow::Result;

use crate::services::{self, Absent, Service};
use crate::step::{self, Steps};
use crate::workspace::{Workspace, is_installed};
use crate::{no_arguments, spec, test, tidy};

pub fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    no_arguments("ci", args)?;
    let mut steps = Steps::default();
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
        "run `cargo clippy --workspace --all-targets` and mend what it names",
        || {
            let args = [
                "clippy",
                "--workspace",
                "--all-targets",
                "--locked",
                "--",
                "-D",
                "warnings",
            ];
            step::run(&mut workspace.cargo(&args))
        },
    );
    deny(workspace, &mut steps);
    scripts(workspace, &mut steps);
    steps.run(
        "openapi.json",
        "run `cargo xtask spec` and commit what it writes",
        || spec::check(workspace),
    );
    test::all(workspace, &mut steps, &test::Options::default());
    services::test(workspace, &mut steps, &Service::ALL, Absent::Skipped);
    steps.finish()
}

/// Bans, licenses and sources. Advisories need a network and belong to the release workflow.
///
/// Building cargo-deny takes minutes, so it is used where it is installed; `.ci/run` installs it.
fn deny(workspace: &Workspace, steps: &mut Steps) {
    const TITLE: &str = "dependencies";
    if !is_installed("cargo-deny") {
        steps.skip(
            TITLE,
            "cargo-deny is not installed (`cargo install --locked cargo-deny`)",
        );
        return;
    }
    steps.run(
        TITLE,
        "deny.toml gives the reason of each rule; change the dependency, not the rule",
        || step::run(&mut workspace.cargo(&["deny", "check", "bans", "licenses", "sources"])),
    );
}

/// Every shell script, that of CI included.
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
