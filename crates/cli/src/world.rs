//! Everything a command touches outside itself: environment, output, the time. Tests bring their own.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;

use crate::messages::Messages;
use crate::printer::Printer;

/// What a command finds around it.
pub struct World {
    pub env: BTreeMap<String, String>,
    /// Data for programs and people.
    pub out: Printer,
    /// Words for people.
    pub err: Messages,
    pub now: fn() -> Timestamp,
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
