//! Passes a command on: to the next `paddle` in `PATH`, which PaddlePaddle's wheel installs, or to Python.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};

/// Replaces this process with the other `paddle`; returns only on failure.
pub fn to_next_paddle(args: &[OsString]) -> ExitCode {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = std::env::current_exe().ok();
    match next_paddle(&path, own.as_deref()) {
        Some(program) => run(&program, args),
        None => {
            let command = args
                .first()
                .map(|word| word.to_string_lossy().into_owned())
                .unwrap_or_default();
            eprintln!("error: `{command}` is not a command of this `paddle`, and PATH has no other `paddle`");
            eprintln!(
                "hint: `paddle help` lists the commands; `pip install paddlepaddle` installs PaddlePaddle's own `paddle`"
            );
            ExitCode::from(2)
        }
    }
}

/// Replaces this process with the trainer of v1 configurations, a module of the wheel `paddlecloud`.
pub fn to_v1_trainer(args: &[OsString]) -> ExitCode {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let python = ["python", "python3"]
        .into_iter()
        .find(|name| std::env::split_paths(&path).any(|folder| folder.join(name).is_file()))
        .unwrap_or("python");
    if !has_package(python) {
        eprintln!(
            "error: `paddle train` needs the Python package `paddlecloud`, which `{python}` does not have"
        );
        eprintln!(
            "hint: install `paddlecloud` and `paddlepaddle` for it, or run the job with a Python that has both"
        );
        return ExitCode::FAILURE;
    }
    let mut words: Vec<OsString> = vec!["-m".into(), "paddlecloud.v1.train".into()];
    words.extend_from_slice(args);
    run(Path::new(python), &words)
}

/// Whether this Python finds our package; also true if it cannot say, because then its own error is better.
fn has_package(python: &str) -> bool {
    const ASK: &str =
        "import importlib.util, sys; sys.exit(not importlib.util.find_spec('paddlecloud') and 75)";
    let asked = std::process::Command::new(python).args(["-c", ASK]).status();
    !is_missing(asked)
}

fn is_missing(asked: io::Result<ExitStatus>) -> bool {
    asked.ok().and_then(|status| status.code()) == Some(75)
}

/// The first `paddle` in `PATH` that is a different file than ours.
fn next_paddle(path: &std::ffi::OsStr, own: Option<&Path>) -> Option<PathBuf> {
    let own = own.and_then(|own| own.canonicalize().ok());
    std::env::split_paths(path)
        .map(|folder| folder.join("paddle"))
        .find(|candidate| {
            candidate
                .canonicalize()
                .is_ok_and(|real| real.is_file() && Some(&real) != own.as_ref())
        })
}

#[cfg(unix)]
fn run(program: &Path, args: &[OsString]) -> ExitCode {
    use std::os::unix::process::CommandExt;
    let error = std::process::Command::new(program).args(args).exec();
    eprintln!("error: cannot run `{}`: {error}", program.display());
    ExitCode::from(126)
}

#[cfg(not(unix))]
fn run(program: &Path, args: &[OsString]) -> ExitCode {
    match std::process::Command::new(program).args(args).status() {
        Ok(status) => ExitCode::from(
            status
                .code()
                .and_then(|code| u8::try_from(code).ok())
                .unwrap_or(1),
        ),
        Err(error) => {
            eprintln!("error: cannot run `{}`: {error}", program.display());
            ExitCode::from(126)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // No program is written and run here: while another test starts a process, Linux refuses to run a file just written.
    #[cfg(unix)]
    #[test]
    fn only_exit_code_75_means_that_the_package_is_missing() {
        use std::os::unix::process::ExitStatusExt;
        let exited = |code: i32| is_missing(Ok(ExitStatus::from_raw(code << 8)));
        assert_eq!([exited(0), exited(75), exited(1)], [false, true, false]);
        assert!(!is_missing(Ok(ExitStatus::from_raw(9))), "it was killed");
        assert!(has_package("/no/such/python"));
    }

    #[test]
    fn our_own_file_is_skipped_even_behind_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::create_dir_all(&ours).unwrap();
        std::fs::create_dir_all(&theirs).unwrap();
        let own = folder.path().join("paddlecloud");
        std::fs::write(&own, "x").unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(&own, ours.join("paddle")).unwrap();
        std::fs::write(theirs.join("paddle"), "y").unwrap();
        let path = std::env::join_paths([&ours, &theirs]).unwrap();
        assert_eq!(next_paddle(&path, Some(&own)), Some(theirs.join("paddle")));
        assert_eq!(next_paddle(ours.as_os_str(), Some(&own)), None);
    }
}
