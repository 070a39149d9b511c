//! Turns what a supervisor says into news for the job: the only conversion of an exit that is a file and a message into
//! the one that is stored with the job.

use jiff::Timestamp;
use paddlecloud_core::exit::{self, Exit};
use paddlecloud_core::job::News;
use paddlecloud_core::ports::AttemptKey;

use crate::protocol::{self, Clash, Ending, Phase, State};

/// The news in the first message of a supervisor.
pub fn of_state(state: &State) -> News {
    match state.phase {
        Phase::Waiting => News::Up,
        _ if state.ready => News::Ready,
        _ => News::Started,
    }
}

/// The news of a recorded exit.
pub fn of_exit(exit: protocol::Exit) -> News {
    let (code, signal) = match exit.ending {
        Ending::Code(code) => (Some(code), None),
        Ending::Signal(signal) => (None, Some(signal)),
        Ending::NeverStarted => (None, None),
    };
    News::Exited(Exit {
        code,
        signal,
        oom: exit.oom,
        clash: exit.clash.map(|clash| exit::Clash {
            port: clash.port,
            by: holder(clash),
        }),
        log_end: exit.final_log_offset,
        // Out of memory has its own explanation.
        message: exit.message.filter(|_| !exit.oom),
        stopped: exit.stopped,
        lost_output: exit.dropped_bytes,
        at: Timestamp::from_nanosecond(exit.finished_at.0.into()).ok(),
    })
}

/// Who holds the port: another worker if it is known, or else a process.
fn holder(clash: Clash) -> Option<String> {
    let worker = clash.holder_marker.map(|marker| {
        let name = marker.parse().map(|attempt: AttemptKey| attempt.name());
        format!("worker {}", name.unwrap_or(marker))
    });
    worker.or_else(|| clash.holder_pid.map(|pid| format!("process {pid}")))
}

#[cfg(test)]
mod tests {
    use paddlecloud_core::names::JobId;

    use super::*;
    use crate::protocol::UnixNanos;

    fn exit() -> protocol::Exit {
        protocol::Exit {
            ending: Ending::Code(1),
            oom: false,
            started_at: None,
            finished_at: UnixNanos(1_000_000_000),
            duration_ms: 0,
            final_log_offset: 7,
            dropped_bytes: 8,
            clash: None,
            message: Some("why".into()),
            stopped: Some(true),
        }
    }

    #[test]
    fn an_exit_keeps_what_the_supervisor_recorded() {
        let expected = Exit {
            log_end: 7,
            message: Some("why".into()),
            stopped: Some(true),
            lost_output: 8,
            at: Some(Timestamp::from_second(1).unwrap()),
            ..Exit::with_code(1)
        };
        assert_eq!(of_exit(exit()), News::Exited(expected.clone()));
        let killed = protocol::Exit {
            ending: Ending::Signal(9),
            oom: true,
            ..exit()
        };
        let expected = Exit {
            code: None,
            signal: Some(9),
            oom: true,
            message: None,
            ..expected
        };
        assert_eq!(of_exit(killed), News::Exited(expected), "memory explains it");
    }

    #[test]
    fn a_clash_names_the_other_worker_or_its_process() {
        let by = |holder_marker: Option<String>, holder_pid| {
            let clash = Some(Clash {
                port: 7164,
                holder_pid,
                holder_marker,
            });
            match of_exit(protocol::Exit { clash, ..exit() }) {
                News::Exited(exit) => exit.clash.unwrap().by,
                other => panic!("{other:?}"),
            }
        };
        let marker = format!("{}.trainer-1.2", JobId::new(1, 2));
        assert_eq!(by(Some(marker), Some(42)).as_deref(), Some("worker trainer-1.2"));
        assert_eq!(by(None, Some(42)).as_deref(), Some("process 42"));
        assert_eq!(by(None, None), None);
        let foreign = by(Some("not ours".into()), None);
        assert_eq!(foreign.as_deref(), Some("worker not ours"));
    }

    #[test]
    fn a_state_tells_the_furthest_step() {
        let news = |phase, ready| {
            of_state(&State {
                marker: String::new(),
                phase,
                pid: None,
                started_at: None,
                ready,
                log_offset: 0,
                dropped_bytes: 0,
            })
        };
        assert_eq!(news(Phase::Waiting, false), News::Up);
        assert_eq!(news(Phase::Running, false), News::Started);
        assert_eq!(news(Phase::Running, true), News::Ready);
        assert_eq!(news(Phase::Ending, false), News::Started);
    }
}
