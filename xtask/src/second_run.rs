//! Runs Rust tests, and repeats alone the few that failed.
//!
//! Several suites share two processors, so a test can fail because another one kept it from running for seconds. A test
//! that fails twice fails the step. One that passes the second time is listed at the end of the run, to be fixed.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::Command;

use anyhow::{Context as _, Result, anyhow};

use crate::step;
use crate::workspace::EVERYTHING;

/// If more tests fail, something is broken, and a second run would only take time.
const MOST_REPEATED: usize = 5;

/// Runs a `cargo test` command of [`Workspace::cargo_test`](crate::workspace::Workspace::cargo_test). Returns how many
/// tests it ran.
pub fn test(tests: &mut Command) -> Result<usize> {
    let (result, read) = run_and_read(tests)?;
    let (ran, failed) = (read.ran, read.targets);
    let Err(first) = result else {
        return Ok(ran);
    };
    let count: usize = failed.iter().map(|target| target.tests.len()).sum();
    let can_repeat = failed.iter().all(|target| !target.tests.is_empty());
    if count == 0 || count > MOST_REPEATED || !can_repeat {
        return Err(first);
    }
    for target in &failed {
        step::run(&mut target.again(tests))?;
    }
    for test in failed.into_iter().flat_map(|target| target.tests) {
        step::passed_on_second_run(test);
    }
    Ok(ran)
}

/// Runs the command, passes its output on, and reads it.
fn run_and_read(tests: &mut Command) -> Result<(Result<()>, Output)> {
    let (output, input) = io::pipe().context("cannot create a pipe")?;
    tests.stdout(input.try_clone()?).stderr(input);
    tests.env("CARGO_TERM_COLOR", "never");
    let shown = step::announce(tests);
    let mut child = tests.spawn().with_context(|| format!("cannot start `{shown}`"))?;
    // The command keeps its ends of the pipe; while they are open, the output has no end.
    tests.stdout(io::stdout()).stderr(io::stderr());
    let mut read = Output::default();
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        io::stdout().write_all(&line)?;
        read.line(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    let result = match child.wait()? {
        status if status.success() => Ok(()),
        status => Err(anyhow!("`{shown}` ended with {status}")),
    };
    Ok((result, read))
}

/// A test program in which tests failed.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    /// How cargo selects it: `--test files`, `--lib`.
    selection: Vec<String>,
    tests: Vec<String>,
}

impl Target {
    /// Only the failed tests, one after the other, with the environment of the first run.
    fn again(&self, first: &Command) -> Command {
        let mut command = Command::new(first.get_program());
        command.arg("test").args(EVERYTHING).args(&self.selection);
        command
            .args(["--", "--include-ignored", "--exact", "--test-threads=1"])
            .args(&self.tests);
        if let Some(folder) = first.get_current_dir() {
            command.current_dir(folder);
        }
        for (name, value) in first.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }
}

/// Reads the output of `cargo test`: each test program lists its failures, then cargo says how to select that program.
#[derive(Default)]
struct Output {
    /// How many tests passed or failed.
    ran: usize,
    /// The list of the current program; `None` outside of it.
    listed: Option<Vec<String>>,
    targets: Vec<Target>,
}

impl Output {
    fn line(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.ran += ran(counts);
        }
        if line == "failures:" {
            // The first of two such lines precedes the output of the tests, the second one their names.
            self.listed = Some(Vec::new());
        } else if let Some(selection) = line
            .strip_prefix("error: test failed, to rerun pass `")
            .and_then(|rest| rest.strip_suffix('`'))
        {
            self.targets.push(Target {
                selection: without_package(selection),
                tests: self.listed.take().unwrap_or_default(),
            });
        } else if let (Some(listed), Some(name)) = (&mut self.listed, line.strip_prefix("    ")) {
            listed.push(name.to_owned());
        }
    }
}

/// Counts of `ok. 5 passed; 0 failed; 3 ignored; …` that are of tests which ran.
fn ran(counts: &str) -> usize {
    let parts = counts.split([';', '.']).map(str::trim);
    let numbers = parts.filter_map(|part| {
        part.strip_suffix(" passed")
            .or_else(|| part.strip_suffix(" failed"))
    });
    numbers.filter_map(|number| number.parse::<usize>().ok()).sum()
}

/// Cargo compiles a package alone with other features than the whole workspace, so the package is left out.
fn without_package(selection: &str) -> Vec<String> {
    let mut words = selection.split_whitespace();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "-p" => drop(words.next()),
            word => kept.push(word.to_owned()),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
     Running tests/files/main.rs (target/debug/deps/files-3259cc)
test breaking::slow ... FAILED
test breaking::fast ... ok

failures:

---- breaking::slow stdout ----
thread 'breaking::slow' panicked
    at a line of a backtrace

failures:
    breaking::slow

test result: FAILED. 66 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out
error: test failed, to rerun pass `-p paddlecloud-server --test files`
     Running unittests src/lib.rs (target/debug/deps/core-1)
error: test failed, to rerun pass `-p paddlecloud-core --lib`
";

    fn read(output: &str) -> Output {
        let mut read = Output::default();
        output.lines().for_each(|line| read.line(line));
        read
    }

    fn target(selection: &[&str], tests: &[&str]) -> Target {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Target {
            selection: owned(selection),
            tests: owned(tests),
        }
    }

    #[test]
    fn failed_tests_are_known_by_program_and_name() {
        let expected = [
            target(&["--test", "files"], &["breaking::slow"]),
            target(&["--lib"], &[]),
        ];
        assert_eq!(
            read(OUTPUT).targets,
            expected,
            "the second program crashed before it listed anything"
        );
    }

    #[test]
    fn tests_that_passed_or_failed_have_run() {
        let ignored =
            "test result: ok. 0 passed; 0 failed; 9 ignored; 0 measured; 1 filtered out; finished in 0.00s";
        assert_eq!(read(&format!("{OUTPUT}{ignored}\n")).ran, 67);
    }

    #[test]
    fn a_second_run_has_the_environment_of_the_first() {
        let mut first = Command::new("cargo");
        first.args(["test", "--no-fail-fast"]).env("KUBECONFIG", "there");
        let again = target(&["--test", "files"], &["breaking::slow"]).again(&first);
        let args: Vec<_> = again.get_args().map(|arg| arg.to_string_lossy()).collect();
        assert_eq!(
            args[args.len() - 7..],
            [
                "--test",
                "files",
                "--",
                "--include-ignored",
                "--exact",
                "--test-threads=1",
                "breaking::slow"
            ]
        );
        assert!(again.get_envs().any(|(name, _)| name == "KUBECONFIG"));
    }
}
