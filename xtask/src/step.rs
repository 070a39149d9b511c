//! One step of a task: prints what it does, how long it took, and how to fix it if it fails.
//!
//! A step also says how much of the machine's processors it left idle: that is the time a run could save.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Runs steps one after the other and records their results.
pub struct Steps {
    started: Instant,
    ended: Vec<Ended>,
}

/// A step that runs at the same time as others. Its output goes to a file and is printed when it ends.
pub struct Concurrent {
    title: &'static str,
    fix: &'static str,
    log: PathBuf,
    /// Waits for it and returns how long it took.
    ended: JoinHandle<(Duration, Result<()>)>,
}

struct Ended {
    title: String,
    took: Duration,
    /// In percent; `None` where the system does not count it.
    idle: Option<u64>,
    /// Whether it ended before `Steps` began.
    before: bool,
    outcome: Outcome,
}

enum Outcome {
    Passed,
    Skipped(String),
    Failed { fix: String },
}

impl Default for Steps {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            ended: Vec::new(),
        }
    }
}

impl Steps {
    /// Runs one step. A failure is printed with `fix` and recorded; the following steps still run, so that one run
    /// shows everything that is wrong.
    pub fn run(&mut self, title: &str, fix: &str, body: impl FnOnce() -> Result<()>) {
        eprintln!("\n== {title}");
        let (started, before) = (Instant::now(), ProcessorTime::now());
        let result = body();
        let took = started.elapsed();
        let idle = before.and_then(|before| ProcessorTime::now()?.idle_percent_since(&before));
        self.end(title, fix, took, idle, result);
    }

    /// Waits for a concurrent step, prints its output and records its result. Lines of the output that say what was not
    /// tested, or which tests are unstable, are recorded too.
    pub fn wait_for(&mut self, step: Concurrent) {
        let (took, result) = step.ended.join().expect("it only waits for a program");
        eprintln!("\n== {}", step.title);
        let output = String::from_utf8_lossy(&fs::read(&step.log).unwrap_or_default()).into_owned();
        eprint!("{output}");
        self.end(step.title, step.fix, took, None, result);
        let skipped = output.lines().filter_map(|line| line.strip_prefix(NOT_TESTED));
        for (title, why) in skipped.filter_map(|line| line.split_once(": ")) {
            self.skip(title, why);
        }
        let unstable = output.lines().filter_map(|line| line.strip_prefix(UNSTABLE));
        unstable.map(str::to_owned).for_each(passed_on_second_run);
    }

    fn end(&mut self, title: &str, fix: &str, took: Duration, idle: Option<u64>, result: Result<()>) {
        let outcome = match result {
            Ok(()) => {
                eprintln!("-- {title}: ok ({})", in_words(took));
                Outcome::Passed
            }
            Err(error) => {
                eprintln!("-- {title}: failed ({}): {error:#}", in_words(took));
                eprintln!("   to fix it: {fix}");
                Outcome::Failed { fix: fix.to_owned() }
            }
        };
        self.ended.push(Ended {
            title: title.to_owned(),
            took,
            idle,
            before: false,
            outcome,
        });
    }

    /// Records work that was done before this program ran.
    pub fn done_before(&mut self, title: &str, took: Duration) {
        self.ended.push(Ended {
            title: title.to_owned(),
            took,
            idle: None,
            before: true,
            outcome: Outcome::Passed,
        });
    }

    /// Records a step that cannot run on this machine.
    pub fn skip(&mut self, title: &str, why: &str) {
        eprintln!("\n== {title}: skipped, {why}");
        let outcome = Outcome::Skipped(why.to_owned());
        self.ended.push(Ended {
            title: title.to_owned(),
            took: Duration::ZERO,
            idle: None,
            before: false,
            outcome,
        });
    }

    /// Prints the results of all steps; an error if one of them failed.
    pub fn finish(self) -> Result<()> {
        eprint!("\n{}{}{}", self.summary(), self.not_tried(), unstable());
        let failed = self
            .ended
            .iter()
            .filter(|step| matches!(step.outcome, Outcome::Failed { .. }))
            .count();
        match failed {
            0 => Ok(()),
            1 => bail!("one step failed"),
            n => bail!("{n} steps failed"),
        }
    }

    /// What a successful run did not test, each with its reason; empty if nothing was skipped.
    fn not_tried(&self) -> String {
        let mut text = String::new();
        for step in &self.ended {
            if let Outcome::Skipped(why) = &step.outcome {
                writeln!(text, "{NOT_TESTED}{}: {why}", step.title).expect("a string takes any text");
            }
        }
        match text.is_empty() {
            true => text,
            false => format!("\n{text}"),
        }
    }

    fn summary(&self) -> String {
        let width = self.ended.iter().map(|step| step.title.len()).max().unwrap_or(0);
        let mut text = String::new();
        for step in &self.ended {
            let end = match &step.outcome {
                Outcome::Passed => format!("ok       {:>7}{}", in_words(step.took), step.idle_in_words()),
                Outcome::Skipped(why) => format!("skipped  {why}"),
                Outcome::Failed { fix } => format!("FAILED   {:>7}  fix: {fix}", in_words(step.took)),
            };
            writeln!(text, "{:width$}  {end}", step.title).expect("a string takes any text");
        }
        let before: Duration = self
            .ended
            .iter()
            .filter(|step| step.before)
            .map(|step| step.took)
            .sum();
        let total = before + self.started.elapsed();
        writeln!(text, "{:width$}           {:>7}", "total", in_words(total))
            .expect("a string takes any text");
        text
    }
}

/// Begins a line about a step that was skipped.
const NOT_TESTED: &str = "NOT TESTED HERE: ";
/// Begins a line about a test that passed only on its second run.
const UNSTABLE: &str = "FAILED FIRST, THEN PASSED ALONE: ";

/// Tests of this process and of its concurrent steps that passed only on their second run.
static SECOND_RUN: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Concurrent {
    /// Starts `command`; its output goes to the file `log`.
    pub fn start(title: &'static str, fix: &'static str, log: PathBuf, command: &mut Command) -> Self {
        eprintln!("$ {} >{} &", shown(command), log.display());
        let (started, child) = (Instant::now(), spawn_into(&log, command));
        let ended = thread::spawn(move || {
            let status = child.and_then(|mut child| Ok(child.wait()?));
            let result = status.and_then(|status| match status.success() {
                true => Ok(()),
                false => bail!("it ended with {status}"),
            });
            (started.elapsed(), result)
        });
        Self {
            title,
            fix,
            log,
            ended,
        }
    }
}

fn unstable() -> String {
    let tests = SECOND_RUN.lock().expect("nobody panics with it");
    tests.iter().map(|test| format!("{UNSTABLE}{test}\n")).collect()
}

fn spawn_into(log: &PathBuf, command: &mut Command) -> Result<Child> {
    let file = File::create(log).with_context(|| format!("cannot create `{}`", log.display()))?;
    command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file);
    command
        .spawn()
        .with_context(|| format!("cannot start `{}`", shown(command)))
}

impl Ended {
    /// Empty for a step that ended immediately: the kernel counts in hundredths of a second.
    fn idle_in_words(&self) -> String {
        match self.idle {
            Some(idle) if self.took >= Duration::from_secs(10) => format!("  {idle:>2}% idle"),
            _ => String::new(),
        }
    }
}

/// What the processors of this machine did since it started, in the kernel's ticks.
#[derive(Debug, PartialEq, Eq)]
struct ProcessorTime {
    idle: u64,
    all: u64,
}

impl ProcessorTime {
    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line: user, nice, system, idle, waiting for a disk, interrupts of two kinds, stolen.
    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line
            .split_whitespace()
            .take(8)
            .map(|number| number.parse().ok())
            .collect::<Option<_>>()?;
        Some(Self {
            idle: ticks.get(3)? + ticks.get(4)?,
            all: ticks.iter().sum(),
        })
    }

    fn idle_percent_since(&self, before: &Self) -> Option<u64> {
        let idle = self.idle.checked_sub(before.idle)?;
        (idle * 100).checked_div(self.all.checked_sub(before.all)?)
    }
}

/// Runs a command with this terminal; the error names the command.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = announce(command);
    let status = command
        .status()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}

/// Prints a command as a person would type it, and returns that.
pub fn announce(command: &Command) -> String {
    let shown = shown(command);
    eprintln!("$ {shown}");
    shown
}

/// Records a test that failed when it ran beside others and passed alone. The end of the run lists it.
pub fn passed_on_second_run(test: String) {
    SECOND_RUN.lock().expect("nobody panics with it").push(test);
}

/// Runs a command and returns its stdout.
pub fn capture(command: &mut Command) -> Result<Vec<u8>> {
    let shown = shown(command);
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        bail!("`{shown}` ended with {}", output.status);
    }
    Ok(output.stdout)
}

/// A command as a person would type it.
fn shown(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let name = program.rsplit(['/', '\\']).next().unwrap_or(&program).to_owned();
    let mut words = vec![name];
    words.extend(command.get_args().map(|arg| quoted(&arg.to_string_lossy())));
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("{word:?}")
    }
}

fn in_words(took: Duration) -> String {
    let seconds = took.as_secs();
    if seconds >= 60 {
        format!("{}m{:02}s", seconds / 60, seconds % 60)
    } else {
        format!("{:.1}s", took.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn a_failed_step_does_not_keep_the_next_from_running() {
        let mut steps = Steps::default();
        let mut ran = false;
        steps.run("first", "fix it", || Err(anyhow!("broken")));
        steps.run("second", "nothing", || {
            ran = true;
            Ok(())
        });
        assert!(ran);
        assert_eq!(steps.finish().unwrap_err().to_string(), "one step failed");
    }

    #[test]
    fn the_summary_says_how_to_fix_a_failure() {
        let mut steps = Steps::default();
        steps.run("format", "run `cargo fmt --all`", || Err(anyhow!("differs")));
        steps.skip("deny", "cargo-deny is not installed");
        let summary = steps.summary();
        assert!(summary.contains("fix: run `cargo fmt --all`"), "{summary}");
        assert!(
            summary.contains("skipped  cargo-deny is not installed"),
            "{summary}"
        );
    }

    #[test]
    fn a_concurrent_step_is_recorded_with_its_result_and_with_what_it_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let run = |name, script| {
            let mut steps = Steps::default();
            let mut command = Command::new("sh");
            let log = folder.path().join(name);
            steps.wait_for(Concurrent::start(
                "storage",
                "run it alone",
                log,
                command.args(["-c", script]),
            ));
            steps
        };
        let steps = run("passes", "echo 'NOT TESTED HERE: s3: it is not installed'");
        assert_eq!(steps.not_tried(), "\nNOT TESTED HERE: s3: it is not installed\n");
        assert!(steps.finish().is_ok());
        assert!(run("fails", "exit 3").finish().is_err());
    }

    #[test]
    fn the_summary_counts_the_time_before_and_adds_everything_up() {
        let mut steps = Steps::default();
        steps.done_before("installs", Duration::from_secs(61));
        steps.done_before("compile xtask", Duration::from_secs(30));
        assert_eq!(
            steps.summary(),
            "installs       ok         1m01s\n\
             compile xtask  ok         30.0s\n\
             total                     1m31s\n"
        );
    }

    #[test]
    fn idle_time_is_read_from_the_kernels_counters() {
        let at = |line: &str| ProcessorTime::parse(line).unwrap();
        let before = at("cpu  100 0 100 700 100 0 0 0 5 5\ncpu0 1 2 3\n");
        let after = at("cpu  250 0 100 740 110 0 0 0 9 9\n");
        assert_eq!(after.idle_percent_since(&before), Some(25));
        assert_eq!(before.idle_percent_since(&before), None, "no time has passed");
        assert_eq!(ProcessorTime::parse("intr 1 2"), None);
    }

    #[test]
    fn a_skipped_step_is_not_a_failure_and_is_listed_at_the_end() {
        let mut steps = Steps::default();
        steps.run("tidy", "nothing", || Ok(()));
        assert_eq!(steps.not_tried(), "");
        steps.skip("deny", "cargo-deny is not installed");
        assert_eq!(
            steps.not_tried(),
            "\nNOT TESTED HERE: deny: cargo-deny is not installed\n"
        );
        assert!(steps.finish().is_ok());
    }

    #[test]
    fn a_command_is_shown_as_typed() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["test", "-p", "xtask", "a b"]);
        assert_eq!(shown(&command), "cargo test -p xtask \"a b\"");
    }

    #[test]
    fn long_times_are_shown_in_minutes() {
        assert_eq!(in_words(Duration::from_millis(1_250)), "1.2s");
        assert_eq!(in_words(Duration::from_secs(125)), "2m05s");
    }
}
