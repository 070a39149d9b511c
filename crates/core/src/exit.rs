//! How a worker's program exited, and an explanation for people.
//!
//! The job's state machine decides what an exit means for the job.

use std::fmt::Write;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::quantity::Bytes;

/// The end of one attempt as the engine recorded it, after the last byte of its log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Exit {
    /// The exit code of the program. Neither code nor signal: the exit was not observed.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The kernel killed one of its processes because it reached its memory limit.
    #[serde(default)]
    pub oom: bool,
    /// It failed while another process held one of its ports.
    #[serde(default)]
    pub clash: Option<Clash>,
    /// Length of the log in bytes at its exit. Nothing is added later.
    #[serde(default)]
    pub log_end: u64,
    /// The engine's explanation, for example why the program could not be started.
    #[serde(default)]
    pub message: Option<String>,
    /// Bytes of its output that could not be stored, for example on a full disk.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost_output: u64,
    /// Whether it had been asked to stop when it exited; `None` if the engine does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<bool>,
    /// When it exited, as seen by the engine; the server may learn of it much later.
    #[serde(default)]
    pub at: Option<Timestamp>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for a reference.
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A port that another program held on all addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clash {
    pub port: u16,
    /// The holder, if known: a worker's name or a process.
    pub by: Option<String>,
}

impl Exit {
    /// An exit with a code.
    pub fn with_code(code: i32) -> Exit {
        Exit {
            code: Some(code),
            ..Exit::default()
        }
    }

    /// An exit by a signal.
    pub fn by_signal(signal: i32) -> Exit {
        Exit {
            signal: Some(signal),
            ..Exit::default()
        }
    }

    /// An exit that was not observed; `why` says what is known.
    pub fn unseen(why: impl Into<String>) -> Exit {
        Exit {
            message: Some(why.into()),
            ..Exit::default()
        }
    }

    /// Code 0 and no contradicting information.
    pub fn is_success(&self) -> bool {
        self.code == Some(0) && self.signal.is_none() && !self.oom
    }
}

/// Explains an exit in a sentence. `memory` is the worker's limit.
pub fn in_words(exit: &Exit, memory: Bytes) -> String {
    let mut words = end_in_words(exit, memory);
    if let Some(lost) = lost_in_words(exit) {
        let _ = write!(words, "; {lost}");
    }
    words
}

/// A sentence about output that is missing in the log, if any.
pub fn lost_in_words(exit: &Exit) -> Option<String> {
    (exit.lost_output > 0).then(|| lost_bytes_in_words(exit.lost_output))
}

/// The same for a number of bytes.
pub fn lost_bytes_in_words(lost: u64) -> String {
    let bytes = Bytes::new(lost).readable();
    format!("{bytes} of its output could not be stored and is lost: is the disk full?")
}

fn end_in_words(exit: &Exit, memory: Bytes) -> String {
    let mut words = match (exit.oom, exit.signal, exit.code) {
        // The kernel killed one of its processes, and another one ended the worker well: that says nothing.
        (true, None, Some(0)) => format!(
            "out of memory: the worker used more than its {}",
            memory.readable()
        ),
        (true, _, _) => format!(
            "out of memory: the worker used more than its {} (exit {})",
            memory.readable(),
            shell_code(exit).unwrap_or(137)
        ),
        // The engine's message says more than the signal: who sent it.
        (false, Some(9), _) if exit.clash.is_none() && exit.message.is_some() => {
            return format!("{} (signal 9, SIGKILL)", unseen_in_words(exit));
        }
        (false, Some(signal), _) => signal_in_words(signal),
        (false, None, Some(code)) => code_in_words(code),
        (false, None, None) => return unseen_in_words(exit),
    };
    if let Some(clash) = &exit.clash {
        add_clash(&mut words, clash);
    }
    if let Some(message) = &exit.message {
        let _ = write!(words, "; {message}");
    }
    words
}

fn unseen_in_words(exit: &Exit) -> String {
    exit.message
        .clone()
        .unwrap_or_else(|| "its end was not observed".to_owned())
}

fn add_clash(words: &mut String, clash: &Clash) {
    let port = clash.port;
    let _ = match &clash.by {
        Some(by) => write!(words, "; port {port} is held on all addresses by {by}"),
        None => write!(words, "; port {port} is held on all addresses by another program"),
    };
}

/// The number a shell would show: the code, or 128 plus the signal.
fn shell_code(exit: &Exit) -> Option<i32> {
    exit.signal.map(|signal| 128 + signal).or(exit.code)
}

fn code_in_words(code: i32) -> String {
    match code {
        126 => "exit code 126: the command cannot be executed".to_owned(),
        127 => "exit code 127: command not found".to_owned(),
        // A shell between us and the program turns a signal into 128 plus its number.
        129..=192 => match known_signal(code - 128) {
            Some((name, what)) => format!("{what} (exit {code}, {name})"),
            None => format!("exit code {code}"),
        },
        _ => format!("exit code {code}"),
    }
}

fn signal_in_words(signal: i32) -> String {
    match known_signal(signal) {
        Some(("SIGKILL", _)) => "killed by signal 9 (SIGKILL)".to_owned(),
        Some((name, what)) => format!("{what} (signal {signal}, {name})"),
        None => format!("ended by signal {signal}"),
    }
}

fn known_signal(signal: i32) -> Option<(&'static str, &'static str)> {
    Some(match signal {
        1 => ("SIGHUP", "hung up"),
        2 => ("SIGINT", "interrupted"),
        3 => ("SIGQUIT", "quit"),
        4 => (
            "SIGILL",
            "illegal instruction: the program was built for another processor",
        ),
        5 => ("SIGTRAP", "trace trap"),
        6 => ("SIGABRT", "aborted: the program stopped itself after an error"),
        7 => (
            "SIGBUS",
            "bus error: a mapped file shrank or shared memory ran out",
        ),
        8 => (
            "SIGFPE",
            "arithmetic error, for example an integer division by zero",
        ),
        9 => ("SIGKILL", "killed"),
        11 => ("SIGSEGV", "segmentation fault"),
        13 => ("SIGPIPE", "broken pipe: wrote to a closed connection"),
        14 => ("SIGALRM", "its own alarm went off"),
        15 => ("SIGTERM", "terminated"),
        24 => ("SIGXCPU", "used more processor time than allowed"),
        25 => ("SIGXFSZ", "wrote a file larger than allowed"),
        31 => ("SIGSYS", "made a forbidden system call"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(exit: Exit) -> String {
        in_words(&exit, Bytes::mib(1024))
    }

    #[test]
    fn common_exit_codes_and_signals_are_explained() {
        let ends = [
            Exit {
                oom: true,
                ..Exit::by_signal(9)
            },
            Exit {
                oom: true,
                ..Exit::with_code(1)
            },
            Exit {
                oom: true,
                ..Exit::with_code(0)
            },
            Exit::by_signal(11),
            Exit::by_signal(9),
            Exit {
                message: Some("killed after its grace period of 3s".into()),
                ..Exit::by_signal(9)
            },
            Exit::by_signal(15),
            Exit::by_signal(8),
            Exit::by_signal(6),
            Exit::by_signal(40),
            Exit::with_code(137),
            Exit::with_code(139),
            Exit::with_code(136),
            Exit::with_code(134),
            Exit::with_code(143),
            Exit::with_code(127),
            Exit::with_code(126),
            Exit::with_code(1),
            Exit::with_code(200),
            Exit::unseen("its supervisor is gone"),
            Exit::default(),
        ];
        let explained: Vec<String> = ends.into_iter().map(words).collect();
        insta::assert_snapshot!(explained.join("\n"), @r"
        out of memory: the worker used more than its 1 GiB (exit 137)
        out of memory: the worker used more than its 1 GiB (exit 1)
        out of memory: the worker used more than its 1 GiB
        segmentation fault (signal 11, SIGSEGV)
        killed by signal 9 (SIGKILL)
        killed after its grace period of 3s (signal 9, SIGKILL)
        terminated (signal 15, SIGTERM)
        arithmetic error, for example an integer division by zero (signal 8, SIGFPE)
        aborted: the program stopped itself after an error (signal 6, SIGABRT)
        ended by signal 40
        killed (exit 137, SIGKILL)
        segmentation fault (exit 139, SIGSEGV)
        arithmetic error, for example an integer division by zero (exit 136, SIGFPE)
        aborted: the program stopped itself after an error (exit 134, SIGABRT)
        terminated (exit 143, SIGTERM)
        exit code 127: command not found
        exit code 126: the command cannot be executed
        exit code 1
        exit code 200
        its supervisor is gone
        its end was not observed
        ");
    }

    #[test]
    fn lost_output_is_reported_even_on_success() {
        let exit = Exit {
            lost_output: 4096,
            ..Exit::with_code(0)
        };
        assert_eq!(
            words(exit),
            "exit code 0; 4 KiB of its output could not be stored and is lost: is the disk full?"
        );
    }

    #[test]
    fn a_clash_names_the_port_and_its_holder() {
        let clash = Clash {
            port: 7164,
            by: Some("process 42 (nginx)".into()),
        };
        let exit = Exit {
            clash: Some(clash),
            ..Exit::with_code(1)
        };
        assert_eq!(
            words(exit),
            "exit code 1; port 7164 is held on all addresses by process 42 (nginx)"
        );
    }

    #[test]
    fn code_zero_with_an_out_of_memory_child_is_not_a_success() {
        assert!(Exit::with_code(0).is_success());
        assert!(
            !Exit {
                oom: true,
                ..Exit::with_code(0)
            }
            .is_success()
        );
        assert!(!Exit::default().is_success());
    }
}
