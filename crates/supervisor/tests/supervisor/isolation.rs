//! What a worker sees: its own root, host name and processes, and otherwise everything of the machine.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use paddlecloud_worker::protocol::{Bind, Command, Ending, PrivateFile};

use crate::harness::{Attempt, Mode, modes, private_modes};

fn bind(source: PathBuf, target: &str, read_only: bool) -> Bind {
    Bind {
        source,
        target: target.into(),
        read_only,
    }
}

/// A folder of the attempt's user beside the attempt's own files.
fn storage(mode: &Mode) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    mode.give(dir.path());
    dir
}

#[test]
fn host_name_resolves_to_the_workers_address() {
    for mode in private_modes() {
        let program = "/usr/bin/python3 -c 'import socket as s; n = s.gethostname(); print(n, s.gethostbyname(n), s.gethostbyname(\"job-pserver-9\"), s.gethostbyname(\"localhost\"))'";
        let attempt = Attempt::new(&mode, program)
            .with(|plan| plan.hosts = vec![("job-pserver-9".into(), [127, 9, 9, 9].into())]);
        let exit = attempt.run();
        let (name, address) = (&attempt.plan.worker, attempt.plan.address);
        assert_eq!(
            attempt.text(),
            format!("{name} {address} 127.9.9.9 127.0.0.1\n"),
            "{exit:?}"
        );
    }
}

#[test]
fn a_name_too_long_for_a_host_still_resolves() {
    for mode in private_modes() {
        let program = "/usr/bin/python3 -c 'import socket as s; print(s.gethostbyname(s.gethostname()))'";
        let attempt = Attempt::new(&mode, program)
            .with(|plan| plan.worker = format!("{}-trainer-3s4nz", "j".repeat(63)));
        attempt.run();
        assert_eq!(
            attempt.text(),
            format!("{}\n", attempt.plan.address),
            "{attempt:?}"
        );
    }
}

/// Root in a container without namespaces.
#[test]
#[ignore = "needs root"]
fn without_namespaces_every_worker_has_its_own_trainer_id() {
    let paths = ["/trainer_id", "/trainer_count"];
    let existing = paths.map(|path| fs::symlink_metadata(path).is_ok());
    for mode in modes()
        .iter()
        .filter(|mode| mode.isolation.namespaces.is_none() && mode.uid.is_none())
    {
        // Both exist at the same time, and the file is read by another program.
        let command = "cat /trainer_id /trainer_count; cat < /trainer_id";
        let attempts: Vec<Attempt> = [0, 1]
            .map(|id| {
                let contents = [format!("{id}\n"), "2\n".to_owned()];
                let attempt = Attempt::new(mode, command).with(|plan| {
                    plan.wait_for_go = true;
                    let file = |(path, contents): (&str, String)| PrivateFile {
                        path: path.into(),
                        contents,
                    };
                    plan.files = paths.into_iter().zip(contents).map(file).collect();
                });
                attempt.start();
                attempt
            })
            .into();
        for attempt in &attempts {
            attempt.connect().0.send(&Command::Go { lines: Vec::new() });
        }
        for (id, attempt) in attempts.iter().enumerate() {
            assert_eq!(attempt.exit().ending, Ending::Code(0), "{attempt:?}");
            assert_eq!(attempt.text(), format!("{id}\n2\n{id}\n"), "{attempt:?}");
        }
    }
    assert!(
        paths.iter().all(|path| !PathBuf::from(path).exists()),
        "only workers have them"
    );
    for (path, _) in paths.iter().zip(existing).filter(|(_, existed)| !existed) {
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn storage_and_private_files_are_where_the_plan_says() {
    for mode in private_modes() {
        let storage = storage(&mode);
        fs::write(storage.path().join("data"), "from storage\n").unwrap();
        let command = "cat data /trainer_id /pfs/public/note && echo written > result && cat result";
        let attempt = Attempt::new(&mode, command).with(|plan| {
            plan.binds = vec![bind(storage.path().to_owned(), "/pfs/local/home/me", false)];
            plan.workdir = "/pfs/local/home/me".into();
            plan.files = vec![
                PrivateFile {
                    path: "/trainer_id".into(),
                    contents: "3\n".into(),
                },
                PrivateFile {
                    path: "/pfs/public/note".into(),
                    contents: "a note\n".into(),
                },
            ];
        });
        assert_eq!(
            attempt.run().ending,
            Ending::Code(0),
            "{attempt:?} {}",
            attempt.text()
        );
        assert_eq!(attempt.text(), "from storage\n3\na note\nwritten\n");
        let result = storage.path().join("result");
        assert_eq!(fs::read_to_string(&result).unwrap(), "written\n");
        assert_eq!(fs::metadata(result).unwrap().uid(), mode.user());
        assert!(!PathBuf::from("/pfs/local").exists() && !PathBuf::from("/trainer_id").exists());
    }
}

#[test]
fn the_root_can_be_written_and_is_the_workers_own() {
    for mode in private_modes() {
        let attempt = Attempt::new(
            &mode,
            "echo mine > /paddlecloud-test.list && cat /paddlecloud-test.list",
        );
        assert_eq!(
            attempt.run().ending,
            Ending::Code(0),
            "{attempt:?} {}",
            attempt.text()
        );
        assert!(!PathBuf::from("/paddlecloud-test.list").exists());
    }
}

#[test]
fn a_read_only_bind_refuses_writes_at_every_depth() {
    for mode in private_modes() {
        let storage = storage(&mode);
        fs::create_dir(storage.path().join("sub")).unwrap();
        mode.give(&storage.path().join("sub"));
        let command =
            "touch /pfs/ro/a; touch /pfs/ro/sub/b; mount -o remount,bind,rw /pfs/ro 2>/dev/null; ls /pfs/ro";
        let attempt = Attempt::new(&mode, command)
            .with(|plan| plan.binds = vec![bind(storage.path().to_owned(), "/pfs/ro", true)]);
        attempt.run();
        let text = attempt.text();
        assert_eq!(
            text.matches("Read-only file system").count(),
            2,
            "{attempt:?} {text}"
        );
        assert_eq!(fs::read_dir(storage.path().join("sub")).unwrap().count(), 0);
    }
}

#[test]
fn a_nested_bind_overrides_the_outer_one() {
    for mode in private_modes() {
        let (home, package) = (storage(&mode), storage(&mode));
        fs::write(package.path().join("train.py"), "code\n").unwrap();
        let attempt =
            Attempt::new(&mode, "cat /pfs/home/job/train.py && touch /pfs/home/kept").with(|plan| {
                plan.binds = vec![
                    bind(package.path().to_owned(), "/pfs/home/job", true),
                    bind(home.path().to_owned(), "/pfs/home", false),
                ];
            });
        assert_eq!(
            attempt.run().ending,
            Ending::Code(0),
            "{attempt:?} {}",
            attempt.text()
        );
        assert!(home.path().join("kept").exists());
        assert_eq!(
            fs::read_dir(home.path().join("job")).unwrap().count(),
            0,
            "only the mount point"
        );
    }
}

#[test]
fn a_bind_below_a_system_folder_leaves_no_trace_there() {
    for mode in private_modes() {
        let storage = storage(&mode);
        fs::write(storage.path().join("here"), "yes\n").unwrap();
        let command = "cat /usr/share/paddlecloud-test/deep/here && ls /usr/share > /dev/null && test -d /usr/share/doc && uname > /dev/null";
        let attempt = Attempt::new(&mode, command).with(|plan| {
            plan.binds = vec![bind(
                storage.path().to_owned(),
                "/usr/share/paddlecloud-test/deep",
                false,
            )];
        });
        assert_eq!(
            attempt.run().ending,
            Ending::Code(0),
            "{attempt:?} {}",
            attempt.text()
        );
        assert!(!PathBuf::from("/usr/share/paddlecloud-test").exists());
    }
}

#[test]
fn the_worker_keeps_its_user_and_gains_no_capabilities() {
    for mode in private_modes() {
        let user = mode.user();
        let attempt = Attempt::new(&mode, "id -u; id -g; grep CapEff /proc/self/status");
        attempt.run();
        let text = attempt.text();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[..2], [user.to_string(), user.to_string()], "{attempt:?}");
        if user != 0 {
            assert_eq!(
                lines[2], "CapEff:\t0000000000000000",
                "no power comes with the namespace"
            );
        }
    }
}

#[test]
fn other_processes_are_hidden_and_the_old_root_is_unmounted() {
    for mode in private_modes()
        .into_iter()
        .filter(|mode| mode.isolation.namespaces.unwrap().pid)
    {
        let attempt = Attempt::new(
            &mode,
            "ls /proc | grep -c '^[0-9]'; grep -c ' / / ' /proc/self/mountinfo",
        );
        attempt.run();
        let text = attempt.text();
        let count: u32 = text.lines().next().unwrap().parse().unwrap();
        assert!(count <= 5, "init, shell, ls and grep: {text}");
        assert_eq!(text.lines().nth(1), Some("1"), "{text}");
    }
}

#[test]
fn a_source_that_is_missing_is_named() {
    for mode in private_modes() {
        let attempt = Attempt::new(&mode, "true")
            .with(|plan| plan.binds = vec![bind("/no/such/storage".into(), "/pfs/local", false)]);
        let exit = attempt.run();
        assert_eq!(exit.ending, Ending::NeverStarted);
        let message =
            "cannot show `/no/such/storage` at `/pfs/local`: No such file or directory (os error 2)";
        assert_eq!(exit.message.as_deref(), Some(message));
        assert_eq!(attempt.text(), format!("paddlecloud: {message}\n"));
    }
}

#[test]
fn a_target_that_climbs_is_refused() {
    for mode in private_modes() {
        let attempt = Attempt::new(&mode, "true")
            .with(|plan| plan.binds = vec![bind("/tmp".into(), "/pfs/../etc", false)]);
        assert_eq!(attempt.run().ending, Ending::NeverStarted);
    }
}

#[test]
fn writes_below_pfs_outside_binds_are_refused() {
    for mode in private_modes() {
        let (home, public) = (storage(&mode), storage(&mode));
        let command = "cd /pfs; for place in /pfs/foo /pfs/local/foo /pfs/local/home/other /pfs/local/public/x; \
                       do mkdir $place 2>&1 | grep -c 'Read-only file system'; done; \
                       echo kept > /pfs/local/home/me/result; cat /pfs/local/user/me/result; echo a > /own.list";
        let attempt = Attempt::new(&mode, command).with(|plan| {
            plan.binds = vec![
                bind(home.path().to_owned(), "/pfs/local/home/me", false),
                bind(home.path().to_owned(), "/pfs/local/user/me", false),
                bind(public.path().to_owned(), "/pfs/local/public", true),
            ];
        });
        assert_eq!(
            attempt.run().ending,
            Ending::Code(0),
            "{attempt:?} {}",
            attempt.text()
        );
        assert_eq!(attempt.text(), "1\n1\n1\n1\nkept\n", "{attempt:?}");
        assert_eq!(fs::read_to_string(home.path().join("result")).unwrap(), "kept\n");
    }
}

#[test]
fn shared_memory_is_the_workers_own_and_no_larger_than_its_limit() {
    let outside = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    for mode in private_modes() {
        let program = "import ctypes, multiprocessing as m\n\
                       with m.Pool(2) as pool: print(sum(pool.map(abs, [-1, -2])))\n\
                       ctypes.CDLL(None).shmget(77, 4096, 0o1600)\n\
                       print(len(open(\"/proc/sysvipc/shm\").readlines()) - 1)";
        let command = format!(
            "ls /dev/shm; /usr/bin/python3 -c '{program}'; \
             head -c 40M /dev/zero > /dev/shm/much 2>/dev/null || echo full; stat -c %s /dev/shm/much"
        );
        let attempt = Attempt::new(&mode, &command)
            .with(|plan| plan.limits.memory_bytes = Some(24 << 20))
            .with(|plan| plan.isolation.memory = None);
        attempt.run();
        let limit = 24 << 20;
        assert_eq!(attempt.text(), format!("3\n1\nfull\n{limit}\n"), "{attempt:?}");
        let mine = fs::read_to_string("/proc/sysvipc/shm").unwrap();
        assert!(
            !mine
                .lines()
                .any(|line| line.split_whitespace().next() == Some("77")),
            "{mine}"
        );
        assert!(!PathBuf::from("/dev/shm/much").exists());
    }
    drop(outside);
}
