//! Starting, waiting, stopping, and losing a supervisor.

use std::fs;

use paddlecloud_supervisor::{Swept, is_alive, sweep, take_place};
use paddlecloud_worker::protocol::{Command, Ending, Exit, MARKER_VARIABLE, Phase, Report, files};
use rustix::process::{Signal, kill_process};

use crate::harness::{Attempt, handles, modes, wait_gone};

const STOP: Command = Command::Stop { grace_ms: None };

#[test]
fn a_worker_runs_and_its_end_is_recorded() {
    for mode in modes() {
        let attempt = Attempt::new(&mode, "echo hello; exit 7");
        let exit = attempt.run();
        assert_eq!((exit.ending, exit.oom), (Ending::Code(7), false), "{attempt:?}");
        assert_eq!(attempt.text(), "hello\n");
        assert_eq!(exit.final_log_offset, 6);
        assert_eq!(exit.message, None);
        assert!(exit.started_at.unwrap() <= exit.finished_at);
    }
}

#[test]
fn the_environment_is_exactly_the_plans() {
    for mode in modes() {
        let attempt = Attempt::new(&mode, "exec env");
        attempt.run();
        let marker = format!("{MARKER_VARIABLE}={}", attempt.plan.marker);
        let text = attempt.text();
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            [marker.as_str(), "PATH=/usr/bin:/bin", "PWD=/"].map(|line| line),
            "{attempt:?}"
        );
    }
}

#[test]
fn a_signal_that_kills_the_program_is_its_end() {
    for mode in modes() {
        let exit = Attempt::new(&mode, "kill -SEGV $$").run();
        assert_eq!(exit.ending, Ending::Signal(11), "{mode:?}");
    }
}

#[test]
fn a_worker_behind_the_gate_starts_at_go_after_its_preamble() {
    for mode in modes() {
        let attempt = Attempt::new(&mode, "echo program").with(|plan| plan.wait_for_go = true);
        attempt.start();
        let (mut client, state) = attempt.connect();
        assert_eq!(
            (state.phase, state.started_at, state.log_offset),
            (Phase::Waiting, None, 0)
        );
        client.send(&Command::Go {
            lines: vec!["one".into(), "two".into()],
        });
        client.send(&Command::Go {
            lines: vec!["ignored".into()],
        });
        client.until(|report| matches!(report, Report::Started { .. }).then_some(()));
        let exit = client.until(|report| {
            if let Report::Exited(exit) = report {
                Some(exit)
            } else {
                None
            }
        });
        assert_eq!(client.next(), None);
        assert_eq!(exit.ending, Ending::Code(0));
        assert_eq!(attempt.text(), "one\ntwo\nprogram\n", "{attempt:?}");
        attempt.assert_nothing_left();
    }
}

#[test]
fn a_stop_before_go_ends_an_attempt_that_never_started() {
    for mode in modes() {
        let attempt = Attempt::new(&mode, "echo never").with(|plan| plan.wait_for_go = true);
        attempt.start();
        attempt.connect().0.send(&STOP);
        let exit = attempt.exit();
        assert_eq!(exit.ending, Ending::NeverStarted, "{attempt:?}");
        assert_eq!(exit.message.as_deref(), Some("stopped before it was started"));
        assert_eq!(attempt.text(), "");
        attempt.assert_nothing_left();
    }
}

#[test]
fn a_stop_reaches_the_whole_tree_and_waits_for_its_last_output() {
    for mode in modes() {
        let child = "sh -c 'trap \"echo saved; exit 0\" TERM; echo child; while :; do sleep 0.01; done' & ";
        let attempt = Attempt::new(&mode, &format!("{child} wait; wait"));
        attempt.start();
        let (mut client, _) = attempt.connect();
        client.until_logged(&attempt, "child\n");
        client.send(&STOP);
        client.send(&STOP);
        let exit = attempt.exit();
        assert_eq!(
            (exit.ending, exit.stopped),
            (Ending::Code(0), Some(true)),
            "{attempt:?}"
        );
        let text = attempt.text();
        assert!(
            text.contains("saved\n"),
            "the child outlives its shell, within the grace period: {text}"
        );
        attempt.assert_nothing_left();
    }
}

#[test]
fn a_worker_that_ignores_the_signal_is_killed_after_the_grace_period() {
    for mode in modes() {
        let attempt = Attempt::new(&mode, "trap '' TERM; echo deaf; while :; do sleep 0.01; done");
        attempt.start();
        let (mut client, _) = attempt.connect();
        client.until_logged(&attempt, "deaf\n");
        client.send(&STOP);
        client.send(&Command::Stop { grace_ms: Some(20) });
        let exit = attempt.exit();
        assert_eq!(exit.ending, Ending::Signal(9), "{attempt:?}");
        assert_eq!(
            exit.message.as_deref(),
            Some("killed after its grace period of 20ms")
        );
        attempt.assert_nothing_left();
    }
}

#[test]
fn a_stopped_program_behind_a_shell_reports_its_own_exit_code() {
    for mode in modes() {
        // A handler would race: Python does not see a signal that arrives just before it falls asleep.
        let program = "python3 -c 'import signal, sys\nsignal.pthread_sigmask(signal.SIG_BLOCK, {15})\nprint(\"up\", flush=True)\nsignal.sigwait({15})\nsys.exit(3)'";
        let attempt = Attempt::new(&mode, &format!("true; {program}; echo never"));
        attempt.start();
        let (mut client, _) = attempt.connect();
        client.until_logged(&attempt, "up\n");
        client.send(&STOP);
        let exit = attempt.exit();
        assert_eq!(
            (exit.ending, exit.stopped),
            (Ending::Code(3), Some(true)),
            "{attempt:?}"
        );
        assert_eq!((attempt.text().as_str(), exit.message), ("up\n", None));
        attempt.assert_nothing_left();
    }
}

#[test]
fn a_supervisor_whose_folder_is_removed_ends_its_worker_and_itself() {
    for mode in modes() {
        let attempt = Attempt::new(&mode, "trap '' TERM; echo up; sleep 1000; sleep 1000");
        attempt.start();
        let (mut client, _) = attempt.connect();
        client.until_logged(&attempt, "up\n");
        let supervisor = handles(&[attempt.supervisor()]);
        let tree = handles(&attempt.processes());
        fs::remove_dir_all(attempt.dir()).unwrap();
        drop(client);
        supervisor.iter().chain(&tree).for_each(wait_gone);
        assert_eq!(attempt.processes(), []);
        assert_eq!(attempt.cgroups(), Vec::<std::path::PathBuf>::new(), "{attempt:?}");
    }
}

#[test]
fn no_process_outlives_the_program() {
    for mode in modes() {
        let attempt = Attempt::new(&mode, "setsid sleep 1000 & (setsid sleep 1000 &) ; echo done");
        let exit = attempt.run();
        assert_eq!(exit.ending, Ending::Code(0), "{attempt:?}");
        assert_eq!(attempt.text(), "done\n");
    }
}

#[test]
fn a_reconnecting_server_learns_everything_from_the_state() {
    for mode in modes() {
        let attempt = Attempt::new(&mode, "echo early; read line < /dev/null; sleep 1000");
        attempt.start();
        let (mut first, _) = attempt.connect();
        first.until_logged(&attempt, "early\n");
        drop(first);
        // A line may be in the log a moment before its writer is known to be running.
        let started = std::time::Instant::now();
        let connections = std::iter::repeat_with(|| attempt.connect());
        let mut connections = connections.take_while(|_| started.elapsed().as_secs() < 60);
        let known = connections.find(|(_, state)| state.ready);
        let (mut second, state) = known.expect("a worker without ports is ready when it runs");
        assert_eq!((state.phase, state.log_offset), (Phase::Running, 6));
        assert_eq!(state.marker, attempt.plan.marker);
        second.send(&STOP);
        attempt.exit();
        attempt.assert_nothing_left();
    }
}

#[test]
fn killing_the_supervisor_ends_a_tree_that_keeps_forking() {
    for mode in modes() {
        let bomb = "fork() { while :; do (sleep 0.05; sleep 1000) & sleep 0.02; done; }; fork & fork & fork & echo up; wait";
        let attempt = Attempt::new(&mode, bomb);
        attempt.start();
        let (mut client, state) = attempt.connect();
        client.until_logged(&attempt, "up\n");
        let init = handles(&[rustix::process::Pid::from_raw(state.pid.unwrap() as i32).unwrap()]);
        let tree = handles(&attempt.processes());
        assert!(tree.len() >= 3, "{attempt:?}");
        let supervisor = handles(&[attempt.supervisor()]);
        kill_process(attempt.supervisor(), Signal::KILL).unwrap();
        supervisor.iter().chain(&init).chain(&tree).for_each(wait_gone);
        assert_eq!(attempt.processes(), [], "{attempt:?}");
        assert_eq!(
            Exit::load(attempt.dir()).unwrap(),
            None,
            "the attempt counts as lost"
        );
        assert!(!is_alive(attempt.dir()));
        assert_eq!(attempt.text(), "up\n", "what was captured stays");
        let groups = attempt.cgroups().len();
        assert_eq!(
            sweep(&attempt.plan.marker).unwrap(),
            Swept {
                processes: 0,
                cgroups: groups
            }
        );
    }
}

#[test]
fn a_sweep_ends_processes_left_by_a_killed_supervisor_and_init() {
    let mode = modes().remove(1);
    assert_eq!(mode.name, "bare");
    let attempt = Attempt::new(&mode, "setsid sleep 1000 & echo up; exec sleep 1000");
    attempt.start();
    let (mut client, state) = attempt.connect();
    client.until_logged(&attempt, "up\n");
    let tree = handles(&attempt.processes());
    // Stopped, init cannot clean up before it is killed too.
    let init = rustix::process::Pid::from_raw(state.pid.unwrap() as i32).unwrap();
    kill_process(init, Signal::STOP).unwrap();
    kill_process(attempt.supervisor(), Signal::KILL).unwrap();
    kill_process(init, Signal::KILL).unwrap();
    assert_eq!(tree.len(), 2);
    assert_eq!(sweep(&attempt.plan.marker).unwrap().processes, 2);
    tree.iter().for_each(wait_gone);
}

#[test]
fn killing_init_ends_the_worker_and_is_recorded() {
    for mode in modes() {
        let attempt = Attempt::new(&mode, "setsid sleep 1000 & echo up; sleep 1000");
        attempt.start();
        let (mut client, state) = attempt.connect();
        client.until_logged(&attempt, "up\n");
        kill_process(
            rustix::process::Pid::from_raw(state.pid.unwrap() as i32).unwrap(),
            Signal::KILL,
        )
        .unwrap();
        let exit = attempt.exit();
        assert_eq!(exit.ending, Ending::Signal(9), "{attempt:?}");
        assert_eq!(
            exit.message.as_deref(),
            Some("the worker's first process was killed")
        );
        attempt.assert_nothing_left();
    }
}

#[test]
fn a_missing_working_folder_is_reported_and_logged() {
    for mode in modes() {
        let attempt = Attempt::new(&mode, "true").with(|plan| plan.workdir = "/no/such/folder".into());
        let exit = attempt.run();
        assert_eq!(exit.ending, Ending::Code(127), "{attempt:?}");
        let message = exit.message.unwrap();
        assert_eq!(
            message,
            "cannot enter the working folder `/no/such/folder`: No such file or directory (os error 2)"
        );
        assert_eq!(attempt.text(), format!("paddlecloud: {message}\n"));
    }
}

#[test]
fn a_working_folder_that_is_a_file_cannot_be_entered() {
    for mode in modes() {
        let attempt = Attempt::new(&mode, "true").with(|plan| plan.workdir = "/etc/passwd".into());
        assert_eq!(attempt.run().ending, Ending::Code(127), "{attempt:?}");
    }
}

#[test]
fn an_attempt_has_one_supervisor_and_is_run_once() {
    for mode in modes() {
        let attempt = Attempt::new(&mode, "sleep 1000");
        attempt.start();
        assert_eq!(
            attempt.try_start(),
            Err("error: this attempt already has a supervisor\n".into())
        );
        attempt.connect().0.send(&STOP);
        attempt.exit();
        assert_eq!(
            attempt.try_start(),
            Err("error: this attempt has already ended\n".into())
        );
    }
}

#[test]
fn a_supervisor_is_alive_before_it_has_written_its_pid() {
    let attempt = Attempt::new(&modes()[0], "sleep 1000");
    attempt.start();
    let pid = attempt.dir().join(files::PID);
    let text = fs::read_to_string(&pid).unwrap();
    fs::write(&pid, "").unwrap();
    assert!(is_alive(attempt.dir()), "as in the moment before it writes");
    assert!(take_place(attempt.dir()).unwrap().is_none());
    fs::write(&pid, text).unwrap();
    attempt.connect().0.send(&STOP);
    attempt.exit();
}

#[test]
fn no_supervisor_starts_while_another_process_holds_its_lock() {
    let attempt = Attempt::new(&modes()[0], "true");
    attempt.plan.store(attempt.dir()).unwrap();
    let place = take_place(attempt.dir()).unwrap().expect("nobody is there yet");
    assert!(is_alive(attempt.dir()));
    let taken = "error: this attempt already has a supervisor\n";
    assert_eq!(attempt.try_start(), Err(taken.into()));
    drop(place);
    // A process that another test is just starting has the lock too, until it becomes its program.
    let started = std::time::Instant::now();
    while is_alive(attempt.dir()) {
        assert!(started.elapsed().as_secs() < 60, "nobody has its place any more");
        std::thread::yield_now();
    }
    assert_eq!(attempt.run().ending, Ending::Code(0));
}

#[test]
fn a_lost_attempt_is_not_continued() {
    let attempt = Attempt::new(&modes()[0], "echo up; exec sleep 1000");
    attempt.start();
    attempt.connect().0.until_logged(&attempt, "up\n");
    let tree = handles(&[attempt.processes(), vec![attempt.supervisor()]].concat());
    kill_process(attempt.supervisor(), Signal::KILL).unwrap();
    tree.iter().for_each(wait_gone);
    let message = "error: this attempt was lost; a new attempt needs its own folder\n";
    assert_eq!(attempt.try_start(), Err(message.into()));
    assert_eq!(attempt.text(), "up\n");
}

#[test]
fn a_marker_with_a_path_is_refused() {
    let mut attempt = Attempt::new(&modes()[0], "true");
    let good = std::mem::replace(&mut attempt.plan.marker, "../escape".into());
    let refusal = attempt.try_start();
    attempt.plan.marker = good;
    assert_eq!(
        refusal,
        Err("error: `../escape` is not a valid marker: use letters, digits, `-`, `_` and `.`\n".into())
    );
}

#[test]
fn a_folder_without_a_plan_is_refused() {
    let attempt = Attempt::new(&modes()[0], "true");
    std::fs::create_dir(attempt.dir().join(files::PLAN)).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_paddlecloud-supervise"))
        .arg(attempt.dir())
        .output()
        .unwrap();
    assert!(!output.status.success());
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.starts_with("error: cannot read `") && message.ends_with("(os error 21)\n"),
        "{message}"
    );
}

#[test]
fn a_long_path_to_the_folder_works() {
    let outer = Attempt::new(&modes()[0], "echo far");
    let far = outer.dir().join("x".repeat(120));
    std::fs::create_dir(&far).unwrap();
    outer.plan.store(&far).unwrap();
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_paddlecloud-supervise"))
        .arg(&far)
        .status();
    assert!(status.unwrap().success());
    if let Ok(mut stream) = paddlecloud_supervisor::connect(&far) {
        // A connection that is not accepted yet when the supervisor exits sees a reset instead of an end.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    }
    assert_eq!(Exit::load(&far).unwrap().unwrap().ending, Ending::Code(0));
}
