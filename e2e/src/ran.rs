//! A command that has ended: its output and exit code, with checks that explain themselves.

use std::fmt;
use std::process::Output;

use serde_json::Value;

/// A finished command.
#[derive(Debug)]
pub struct Ran {
    pub line: String,
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub(crate) fn new(line: String, output: Output) -> Self {
        Self {
            line,
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// It must have succeeded.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self}");
        self
    }

    /// It must have failed with this exit code, in the form of every error: nothing on stdout, one line `error: …`
    /// first, then hints.
    #[track_caller]
    pub fn refused(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self}");
        assert_eq!(self.stdout, "", "data on stdout although it failed\n{self}");
        let errors = self
            .stderr
            .lines()
            .filter(|line| line.starts_with("error: "))
            .count();
        assert_eq!(errors, 1, "not exactly one error line\n{self}");
        assert!(!self.stderr.contains("panicked"), "{self}");
        self
    }

    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "stderr lacks {text:?}\n{self}");
        self
    }

    #[track_caller]
    pub fn prints(self, text: &str) -> Self {
        assert!(self.stdout.contains(text), "stdout lacks {text:?}\n{self}");
        self
    }

    /// stdout as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("stdout is not JSON: {error}\n{self}"))
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self
            .code
            .map_or("a signal".to_owned(), |code| format!("exit code {code}"));
        writeln!(f, "$ {}\nended with {code}", self.line)?;
        write!(f, "--- stdout\n{}\n--- stderr\n{}", self.stdout, self.stderr)
    }
}
