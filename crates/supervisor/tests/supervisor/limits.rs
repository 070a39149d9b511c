//! Memory and cpu, by control groups and without.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use paddlecloud_worker::protocol::{Command, Ending, Isolation};

use crate::harness::{Attempt, Mode, modes};

const MEMORY: u64 = 48 << 20;
const HUNGRY: &str = "/usr/bin/python3 -c 'x = b\"x\" * (200 << 20); import time; time.sleep(1000)'";

fn grouped() -> Vec<Mode> {
    modes()
        .into_iter()
        .filter(|mode| mode.isolation.memory.is_some() && mode.isolation.cpu.is_some())
        .collect()
}

fn limited(mode: &Mode, command: &str) -> Attempt {
    Attempt::new(mode, command).with(|plan| plan.limits.memory_bytes = Some(MEMORY))
}

#[test]
fn a_worker_that_takes_too_much_memory_ends_as_out_of_memory() {
    for mode in modes() {
        let exit = limited(&mode, &format!("exec {HUNGRY}")).run();
        assert_eq!((exit.ending, exit.oom), (Ending::Signal(9), true), "{mode:?}");
        assert_eq!(
            exit.message.as_deref(),
            Some("out of memory: the worker needed more than its 50331648 bytes")
        );
    }
}

#[test]
fn a_child_that_runs_out_of_memory_ends_the_attempt_too() {
    for mode in modes() {
        let attempt = limited(
            &mode,
            &format!("{HUNGRY} & wait $!; echo survived; exec sleep 1000"),
        );
        let exit = attempt.run();
        assert!(exit.oom, "{attempt:?} {exit:?}");
    }
}

#[test]
fn a_worker_within_its_memory_is_left_alone() {
    for mode in modes() {
        let command = "/usr/bin/python3 -c 'x = b\"x\" * (8 << 20); print(len(x))'";
        let attempt = limited(&mode, command);
        let exit = attempt.run();
        assert_eq!((exit.ending, exit.oom), (Ending::Code(0), false), "{attempt:?}");
        assert_eq!(attempt.text(), "8388608\n");
    }
}

#[test]
fn the_worker_is_in_its_groups_and_they_carry_the_limits() {
    for mode in grouped() {
        let attempt = Attempt::new(&mode, "cat /proc/self/cgroup; echo up; exec sleep 1000").with(|plan| {
            plan.limits.cpu_millis = Some(1500);
            plan.limits.memory_bytes = Some(MEMORY);
        });
        attempt.start();
        let (mut client, _) = attempt.connect();
        client.until_logged(&attempt, "up\n");
        let groups = attempt.cgroups();
        assert!(!groups.is_empty());
        for group in &groups {
            let mode = fs::metadata(group.parent().unwrap())
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o711, "names of other users' jobs cannot be listed");
        }
        let name = format!("/paddlecloud/{}", attempt.plan.marker);
        assert_eq!(
            attempt
                .text()
                .lines()
                .filter(|line| line.ends_with(&name))
                .count(),
            groups.len()
        );
        let read = |file: &str| {
            groups
                .iter()
                .find_map(|group| fs::read_to_string(group.join(file)).ok())
        };
        let quota = read("cpu.cfs_quota_us").or_else(|| read("cpu.max")).unwrap();
        assert!(quota.starts_with("150000"), "{quota}");
        let memory = read("memory.limit_in_bytes")
            .or_else(|| read("memory.max"))
            .unwrap();
        assert_eq!(memory.trim(), MEMORY.to_string());
        client.send(&Command::Stop { grace_ms: None });
        attempt.exit();
        attempt.assert_nothing_left();
    }
}

#[test]
fn a_worker_that_starts_processes_without_end_is_stopped_by_its_limit() {
    let bomb = "/usr/bin/python3 -c '
import os, sys
started = 0
try:
    while started < 200:
        if os.fork() == 0:
            os.execvp(\"sleep\", [\"sleep\", \"1000\"])
        started += 1
except BlockingIOError:
    pass
print(started < 30)'";
    for mode in grouped().into_iter().filter(|mode| mode.isolation.pids.is_some()) {
        let attempt = Attempt::new(&mode, bomb).with(|plan| plan.limits.processes = Some(30));
        attempt.run();
        assert_eq!(attempt.text(), "True\n", "{attempt:?}");
        attempt.assert_nothing_left();
    }
}

/// Processes that ignore SIGTERM and use all the processor time they get. With 30,000 of them the machine froze.
const BOMB: &str = "exec /usr/bin/python3 -c '
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(\"up\", flush=True)
while True:
    try:
        os.fork()
    except OSError:
        pass'";
const MOST_OF_BOMB: u64 = 1500;
const GRACE: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(5);

/// Init shares the bomb's limit on processor time, so it took minutes to get its turn.
#[test]
fn a_fork_bomb_is_gone_soon_after_its_grace_period() {
    for mode in grouped().into_iter().filter(|mode| mode.isolation.pids.is_some()) {
        let attempt = Attempt::new(&mode, BOMB).with(|plan| {
            plan.limits.cpu_millis = Some(1000);
            plan.limits.processes = Some(MOST_OF_BOMB);
        });
        let started = Instant::now();
        attempt.start();
        let (mut client, _) = attempt.connect();
        client.until_logged(&attempt, "up\n");
        let is_full = |group: &PathBuf| {
            let count = fs::read_to_string(group.join("pids.current")).unwrap_or_default();
            count.trim().parse().is_ok_and(|count: u64| count >= MOST_OF_BOMB)
        };
        while !attempt.cgroups().iter().any(is_full) {
            std::thread::yield_now();
        }
        // An emulated machine is slow, but exiting takes it less time than forking.
        let limit = LIMIT.max(started.elapsed());
        let stopped = Instant::now();
        let grace_ms = Some(GRACE.as_millis() as u64);
        client.send(&Command::Stop { grace_ms });
        let exit = attempt.exit();
        let took = stopped.elapsed();
        assert_eq!(exit.ending, Ending::Signal(9), "{attempt:?}");
        assert!(took < GRACE + limit, "{attempt:?} took {took:?}");
        eprintln!("{}: {took:?} with a grace period of {GRACE:?}", mode.name);
        attempt.assert_nothing_left();
    }
}

#[test]
fn without_groups_the_worker_keeps_to_whole_cores() {
    let program = "/usr/bin/python3 -c 'import os; print(len(os.sched_getaffinity(0)))'";
    for mode in modes().into_iter().filter(|mode| mode.isolation.cpu.is_none()) {
        let attempt = Attempt::new(&mode, program).with(|plan| plan.limits.cpu_millis = Some(500));
        attempt.run();
        assert_eq!(attempt.text(), "1\n", "{attempt:?}");
    }
}

#[test]
fn a_failure_to_create_a_group_is_reported() {
    let mut mode = modes().remove(0);
    let parent = paddlecloud_worker::protocol::CgroupParent {
        version: paddlecloud_worker::protocol::CgroupVersion::V1,
        path: "/no/such/hierarchy".into(),
    };
    mode.isolation = Isolation {
        memory: Some(parent),
        ..mode.isolation
    };
    let exit = limited(&mode, "true").run();
    assert_eq!(exit.ending, Ending::NeverStarted);
    assert!(
        exit.message
            .unwrap()
            .starts_with("cannot create control group `/no/such/hierarchy/test-")
    );
}

#[test]
fn every_missing_feature_is_described() {
    for mode in modes().into_iter().filter(|mode| !mode.name.contains("bare")) {
        let isolation = &mode.isolation;
        let has_pids = isolation.namespaces.is_some_and(|namespaces| namespaces.pid);
        let lacks = [
            !has_pids,
            isolation.cpu.is_none(),
            isolation.memory.is_none(),
            isolation.pids.is_none(),
        ];
        assert_eq!(
            isolation.degraded.len(),
            lacks.iter().filter(|lack| **lack).count(),
            "{isolation:?}"
        );
    }
}
