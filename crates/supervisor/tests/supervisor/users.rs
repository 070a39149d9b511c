//! Workers that belong to another system user than their supervisor: only their own privileges apply, and links they
//! plant mislead nothing.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use paddlecloud_worker::protocol::{Bind, Ending, PrivateFile};

use crate::harness::{Attempt, Mode, handles, mapped_modes, wait_gone};

fn private_modes() -> impl Iterator<Item = Mode> {
    mapped_modes()
        .into_iter()
        .filter(|mode| mode.isolation.namespaces.is_some())
}

/// A folder of the worker's user inside one that only root can enter, as the server keeps homes.
struct Home(tempfile::TempDir);

impl Home {
    fn new(mode: &Mode) -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        fs::create_dir(home.path()).unwrap();
        mode.give(&home.path());
        home
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("home")
    }

    fn make(&self, mode: &Mode, folder: &str) {
        let mut path = self.path();
        for part in Path::new(folder) {
            path.push(part);
            fs::create_dir(&path).unwrap();
            mode.give(&path);
        }
    }

    fn bind(&self) -> Bind {
        bind(&self.path(), "/pfs/local/home/me")
    }
}

fn bind(source: &Path, target: &str) -> Bind {
    Bind {
        source: source.to_owned(),
        target: target.into(),
        read_only: false,
    }
}

/// Open to all, but in a folder that only root can enter.
fn secret() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("open")).unwrap();
    fs::write(dir.path().join("open/file"), "secret\n").unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    dir
}

#[test]
#[ignore = "needs root"]
fn the_worker_is_its_user_and_cannot_become_more() {
    for mode in mapped_modes() {
        let status = "grep -E '^(Groups|NoNewPrivs|CapPrm|CapEff|CapAmb)' /proc/self/status";
        let attempt = Attempt::new(&mode, &format!("id -ru; id -u; id -rg; id -g; {status}"));
        attempt.run();
        let user = mode.user();
        let none = "0".repeat(16);
        let expected = format!(
            "{user}\n{user}\n{user}\n{user}\nGroups:\t{user} \nCapPrm:\t{none}\nCapEff:\t{none}\nCapAmb:\t{none}\nNoNewPrivs:\t1\n"
        );
        assert_eq!(attempt.text(), expected, "{attempt:?}");
    }
}

#[test]
#[ignore = "needs root"]
fn files_of_other_users_are_not_readable() {
    for mode in mapped_modes() {
        let secret = secret();
        let command = format!("cat {}/open/file", secret.path().display());
        let attempt = Attempt::new(&mode, &command);
        assert_eq!(attempt.run().ending, Ending::Code(1), "{attempt:?}");
        assert!(attempt.text().contains("Permission denied"), "{}", attempt.text());
    }
}

#[test]
#[ignore = "needs root"]
fn a_hidden_folder_is_empty_and_binds_from_it_are_shown() {
    for mode in private_modes() {
        let home = Home::new(&mode);
        fs::set_permissions(home.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(home.path().join("note"), "mine\n").unwrap();
        let secret = secret();
        let unreachable = secret.path().join("open");
        let storage = home.0.path().display();
        let command = format!("ls -A {storage}; touch {storage}/x; cat /pfs/local/home/me/note");
        let attempt = Attempt::new(&mode, &command).with(|plan| {
            plan.binds = vec![home.bind()];
            plan.hidden = vec![home.0.path().to_owned(), unreachable.clone(), "/pfs".into()];
        });
        attempt.run();
        let text = attempt.text();
        assert!(text.starts_with("touch: ") && text.ends_with("mine\n"), "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(unreachable.join("file").exists());
    }
}

#[test]
#[ignore = "needs root"]
fn the_root_and_the_private_files_are_the_workers_own() {
    for mode in private_modes() {
        let home = Home::new(&mode);
        let command = "cat /trainer_id && echo 7 > /trainer_id && echo a > /train.list && echo b > result \
                       && cat /trainer_id /train.list && stat -c %u /train.list / && echo done > /dev/stderr";
        let attempt = Attempt::new(&mode, command).with(|plan| {
            plan.binds = vec![home.bind()];
            plan.workdir = "/pfs/local/home/me".into();
            plan.files = vec![PrivateFile {
                path: "/trainer_id".into(),
                contents: "3\n".into(),
            }];
        });
        attempt.run();
        let user = mode.user();
        assert_eq!(
            attempt.text(),
            format!("3\n7\na\n{user}\n{user}\ndone\n"),
            "{attempt:?}"
        );
        assert_eq!(fs::metadata(home.path().join("result")).unwrap().uid(), user);
        assert!(!Path::new("/train.list").exists());
    }
}

#[test]
#[ignore = "needs root"]
fn a_folder_the_user_may_not_enter_is_not_worked_in() {
    for mode in mapped_modes() {
        let secret = secret();
        let attempt = Attempt::new(&mode, "cat file").with(|plan| plan.workdir = secret.path().join("open"));
        let exit = attempt.run();
        assert_eq!(exit.ending, Ending::Code(126), "{attempt:?}");
        assert!(exit.message.unwrap().contains("Permission denied"));
    }
}

#[test]
#[ignore = "needs root"]
fn a_link_in_place_of_a_folder_is_not_shown() {
    for mode in private_modes() {
        let (home, secret) = (Home::new(&mode), secret());
        symlink(secret.path().join("open"), home.path().join("latest")).unwrap();
        let attempt = Attempt::new(&mode, "cat /pfs/latest/file").with(|plan| {
            plan.binds = vec![home.bind(), bind(&home.path().join("latest"), "/pfs/latest")];
        });
        let exit = attempt.run();
        assert_eq!(
            exit.ending,
            Ending::NeverStarted,
            "{attempt:?} {}",
            attempt.text()
        );
        assert!(!attempt.text().contains("secret"));
    }
}

#[test]
#[ignore = "needs root"]
fn a_mount_point_is_never_made_where_the_user_could_not() {
    for mode in private_modes() {
        let (home, secret) = (Home::new(&mode), secret());
        home.make(&mode, "own");
        symlink(secret.path(), home.path().join("trap")).unwrap();
        let attempt = Attempt::new(&mode, "true").with(|plan| {
            let nested = bind(&home.path().join("own"), "/pfs/local/home/me/trap/made");
            plan.binds = vec![home.bind(), nested];
        });
        assert_eq!(attempt.run().ending, Ending::NeverStarted, "{attempt:?}");
        assert!(!secret.path().join("made").exists());
    }
}

#[test]
#[ignore = "needs root"]
fn the_plain_log_is_the_users_and_lies_in_their_home() {
    for mode in mapped_modes() {
        let home = Home::new(&mode);
        home.make(&mode, "output/node_0");
        let path = home.path().join("output/node_0/train.log");
        let attempt = Attempt::new(&mode, "echo trained").with(|plan| {
            plan.binds = vec![home.bind()];
            plan.plain_log = Some(path.clone());
        });
        attempt.run();
        assert_eq!(fs::read_to_string(&path).unwrap(), "trained\n", "{attempt:?}");
        assert_eq!(fs::metadata(&path).unwrap().uid(), mode.user());
    }
}

#[test]
#[ignore = "needs root"]
fn a_link_or_pipe_in_place_of_the_plain_log_changes_no_other_file() {
    for mode in mapped_modes() {
        let (home, secret) = (Home::new(&mode), secret());
        home.make(&mode, "output");
        symlink(secret.path().join("open/file"), home.path().join("file.log")).unwrap();
        symlink(secret.path(), home.path().join("folder")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, home.path().join("fifo.log"), 0o666.into()).unwrap();
        for trap in ["file.log", "folder/made.log", "fifo.log"] {
            let attempt = Attempt::new(&mode, "echo trained").with(|plan| {
                plan.binds = vec![home.bind()];
                plan.plain_log = Some(home.path().join(trap));
            });
            attempt.start();
            assert_eq!(attempt.exit().ending, Ending::Code(0), "{attempt:?}");
            assert_eq!(attempt.text(), "trained\n", "the log proper has it");
            assert!(attempt.troubles().contains("cannot write"), "{attempt:?}");
        }
        assert_eq!(
            fs::read_to_string(secret.path().join("open/file")).unwrap(),
            "secret\n"
        );
        assert!(!secret.path().join("made.log").exists());
    }
}

#[test]
#[ignore = "needs root"]
fn the_worker_of_a_lost_supervisor_is_killed() {
    for mode in private_modes().filter(|mode| mode.isolation.namespaces.is_some_and(|found| found.pid)) {
        let attempt = Attempt::new(&mode, "trap '' TERM; echo up; while :; do sleep 0.01; done");
        attempt.start();
        let (mut client, _) = attempt.connect();
        client.until_logged(&attempt, "up\n");
        let worker = handles(&attempt.processes());
        assert!(!worker.is_empty());
        rustix::process::kill_process(attempt.supervisor(), rustix::process::Signal::KILL).unwrap();
        worker.iter().for_each(wait_gone);
        paddlecloud_supervisor::sweep(&attempt.plan.marker).unwrap();
    }
}

#[test]
#[ignore = "needs root"]
fn without_root_no_other_user_can_be_run_as() {
    let user = mapped_modes().remove(0).run_as.expect("they are mapped");
    for mode in crate::harness::modes()
        .into_iter()
        .filter(|mode| mode.uid.is_some())
    {
        let attempt = Attempt::new(&mode, "echo never").with(|plan| plan.run_as = Some(user.clone()));
        let exit = attempt.run();
        assert_ne!(exit.ending, Ending::Code(0), "{attempt:?} {exit:?}");
        assert!(!attempt.text().contains("never"), "{}", attempt.text());
    }
}
