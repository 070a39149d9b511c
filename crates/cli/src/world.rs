//! Everything a command touches outside itself: environment, output, the time. Tests bring their own.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;

use crate::messages::Messages;
use crate::printer::Printer;

/// What a command finds around it.
pub struct World {
    pub(crate) env: BTreeMap<String, String>,
    /// Data for programs and people.
    pub(crate) out: Printer,
    /// Words for people.
    pub(crate) err: Messages,
    pub(crate) now: fn() -> Timestamp,
}

impl World {
    pub fn of_this_process() -> World {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let env: BTreeMap<String, String> = std::env::vars_os().filter_map(text).collect();
        World {
            out: Printer::stdout(&env),
            err: Messages::stderr(&env),
            env,
            now: Timestamp::now,
        }
    }

    /// A world of the caller's making: nothing of this process leaks in. `is_terminal` is what stdout claims to be.
    pub fn made_of(
        env: BTreeMap<String, String>,
        out: Box<dyn std::io::Write>,
        err: Box<dyn std::io::Write>,
        is_terminal: bool,
        now: fn() -> Timestamp,
    ) -> World {
        World {
            env,
            out: Printer::to(out, is_terminal),
            err: Messages::to(err),
            now,
        }
    }

    /// An environment variable that is set and not empty.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.env
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Where configuration, tokens and the embedded server's data live.
    pub fn paddle_home(&self) -> Option<PathBuf> {
        if let Some(folder) = self.var("PADDLECLOUD_HOME") {
            return std::path::absolute(folder).ok();
        }
        let home = self.var(if cfg!(windows) { "USERPROFILE" } else { "HOME" })?;
        Some(PathBuf::from(home).join(".paddle"))
    }
}
