//! Everything a command touches outside itself: environment, output, the time. Tests provide their own.

use std::collections::BTreeMap;

use jiff::Timestamp;
use paddlecloud_connect::Environment;

use crate::commands::pserver::Tool;
use crate::messages::Messages;
use crate::printer::Printer;

/// The surroundings of a command.
pub struct World {
    pub(crate) env: Environment,
    /// Data for programs and people.
    pub(crate) out: Printer,
    /// Messages for people.
    pub(crate) err: Messages,
    pub(crate) now: fn() -> Timestamp,
    /// Only on Linux.
    pub(crate) pserver: Option<Tool>,
}

impl World {
    pub fn of_this_process() -> World {
        let env = Environment::of_this_process();
        World {
            out: Printer::stdout(&env),
            err: Messages::stderr(&env),
            env,
            now: Timestamp::now,
            pserver: None,
        }
    }

    /// A world created by the caller: nothing of this process leaks in. `is_terminal` is what stdout claims to be; then
    /// messages are escaped too.
    pub fn made_of(
        env: BTreeMap<String, String>,
        out: Box<dyn std::io::Write>,
        err: Box<dyn std::io::Write>,
        is_terminal: bool,
        now: fn() -> Timestamp,
    ) -> World {
        World {
            env: env.into(),
            out: Printer::to(out, is_terminal),
            err: Messages::to(err, is_terminal),
            now,
            pserver: None,
        }
    }
}
