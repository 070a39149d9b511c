//! Invalid input of every kind gets one clear sentence and the right exit code, and nothing is lost.

use std::fs;
use std::path::{Path, PathBuf};

use e2e::{Gate, Package, TestEnvironment};

fn good(env: &TestEnvironment) -> Package {
    env.package("good").file("train.sh", "echo fine\n")
}

/// Submits with these flags; whatever is wrong with them, no job may come of it.
#[track_caller]
fn refuse_submit(flags: &[&str], code: i32, says: &str) {
    let env = TestEnvironment::new();
    let package = good(&env);
    let args = [&["submit", "-entry", "sh train.sh"], flags, &[package.arg()]].concat();
    env.paddlectl(&args).refused(code).says(says);
    assert!(env.jobs().is_empty(), "a refused submit leaves no job");
}

#[test]
fn an_invalid_number_of_trainers_is_refused() {
    refuse_submit(&["-parallelism", "0"], 2, "parallelism");
    refuse_submit(&["-parallelism", "-1"], 2, "parallelism");
    refuse_submit(&["-parallelism", "1000000"], 2, "parallelism");
    refuse_submit(&["-parallelism", "many"], 2, "parallelism");
}

#[test]
fn malformed_amounts_are_refused() {
    refuse_submit(&["-memory", "1X"], 2, "1X");
    refuse_submit(&["-cpu", "fast"], 2, "fast");
    refuse_submit(&["-psmemory", "-5Gi"], 2, "-5Gi");
    refuse_submit(
        &["-disk", "1Mi"],
        2,
        "`-disk` must be at least 256 MiB, not 1 MiB",
    );
}

#[test]
fn invalid_job_names_are_refused_with_a_reason() {
    refuse_submit(&["-jobname", "my_job"], 2, "my-job");
    refuse_submit(&["-jobname", &"x".repeat(300)], 2, "63");
    refuse_submit(&["-jobname", "last"], 2, "last");
    refuse_submit(&["-jobname", ""], 2, "name");
}

#[test]
fn a_request_for_more_gpus_than_exist_is_refused() {
    refuse_submit(&["-gpu", "1000"], 1, "GPU");
}

#[test]
fn an_unknown_flag_or_command_suggests_the_nearest() {
    let env = TestEnvironment::new();
    env.paddlectl(&["submit", "-paralelism", "2", "x"])
        .refused(2)
        .says("parallelism");
    env.paddlectl(&["submitt"]).refused(2).says("submit");
    assert!(env.processes().is_empty(), "usage errors start no server");
}

#[test]
fn an_unusable_package_is_refused() {
    let env = TestEnvironment::new();
    let empty = env.package("empty");
    env.paddlectl(&["submit", "-entry", "sh train.sh", empty.arg()])
        .refused(1)
        .says("empty");
    let other = env.package("other").file("readme.txt", "no program here\n");
    env.paddlectl(&["submit", "-entry", "python train.py", other.arg()])
        .refused(1)
        .says("train.py");
    env.paddlectl(&["submit", "-entry", "sh train.sh", "./nowhere"])
        .refused(1)
        .says("nowhere");
    assert!(env.jobs().is_empty());
}

#[test]
fn an_unknown_job_is_named() {
    let env = TestEnvironment::new();
    for command in ["logs", "kill", "describe", "why", "wait", "rerun"] {
        env.paddlectl(&[command, "ghost"]).refused(1).says("ghost");
    }
}

#[test]
fn an_unusable_configuration_is_explained() {
    let env = TestEnvironment::new();
    let config = env.home().join(".paddle/config");
    fs::create_dir_all(&config).unwrap();
    env.paddlectl(&["get", "jobs"]).refused(1).says("is a folder");

    fs::remove_dir(&config).unwrap();
    let placeholder = "datacenters:\n- name: dc\n  username: [your user name]\n  endpoint: http://x\ncurrent-datacenter: dc\n";
    fs::write(&config, placeholder).unwrap();
    env.paddlectl(&["get", "jobs"]).refused(1).says("placeholder");

    fs::write(&config, "datacenters: [\n").unwrap();
    env.paddlectl(&["get", "jobs"]).refused(1).says("line");
    assert!(
        env.processes().is_empty(),
        "a broken configuration does not start a server instead"
    );
    fs::remove_file(&config).unwrap();
}

#[test]
fn an_unreachable_server_is_exit_code_3() {
    let env = TestEnvironment::new();
    let config = env.home().join(".paddle/config");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    // Port 1 of this machine: nothing listens there.
    let text = "datacenters:\n- name: dc\n  username: me\n  token: t\n  endpoint: 127.0.0.1:1\ncurrent-datacenter: dc\n";
    fs::write(&config, text).unwrap();
    env.paddlectl(&["get", "jobs"]).refused(3).says("127.0.0.1:1");
    fs::remove_file(&config).unwrap();
}

#[test]
fn a_home_that_is_not_a_folder_is_explained() {
    let mut env = TestEnvironment::new();
    let file = env.home().join("file");
    fs::write(&file, "").unwrap();
    env.set("PADDLECLOUD_HOME", file.to_str().unwrap());
    env.paddlectl(&["get", "jobs"]).refused(3).says("file");
    env.set("PADDLECLOUD_HOME", "/proc/no/such");
    env.paddlectl(&["get", "jobs"]).refused(3).says("/proc/no/such");
}

#[test]
fn a_program_that_is_not_installed_is_named() {
    let env = TestEnvironment::new();
    let package = good(&env);
    let entry = [
        "submit",
        "-jobname",
        "absent",
        "-entry",
        "no-such-python train.sh",
        package.arg(),
    ];
    env.paddlectl(&entry)
        .refused(1)
        .says("there is no program `no-such-python` on the machine that runs the workers")
        .says("hint: searched in PATH (");
    assert!(env.jobs().is_empty(), "a refused submit leaves no job");
    // What a shell has to work out is found out by the shell.
    env.submit("absent", &package, &["-entry", "exec no-such-python train.sh"]);
    assert_eq!(env.paddlectl(&["wait", "absent"]).code, Some(1));
    let why = env.paddlectl(&["why", "absent"]).ok().stdout;
    assert!(why.contains("no-such-python"), "{why}");
}

#[test]
fn where_only_python3_exists_workers_have_it_as_python_too() {
    let mut env = TestEnvironment::new();
    let programs = env.folder("programs");
    for (name, program) in [("sh", "/bin/sh"), ("python3", "/usr/bin/python3")] {
        std::os::unix::fs::symlink(program, programs.join(name)).unwrap();
    }
    env.set("PATH", programs.to_str().unwrap());
    let package = env
        .package("old")
        .file("train.py", "import sys\nprint('python', sys.version_info[0])\n");
    let flags = [
        "submit",
        "-jobname",
        "old",
        "-memory",
        "64Mi",
        "-pservers",
        "0",
        "-entry",
        "python train.py",
        "-f",
    ];
    env.paddlectl(&[&flags[..], &[package.arg()]].concat())
        .ok()
        .says("note: the workers' machine has no `python`: `python3` is used under that name")
        .prints("python 3");
}

#[test]
fn a_port_that_is_taken_on_all_addresses_is_explained() {
    let env = TestEnvironment::alone();
    let listen =
        "import signal, socket\nlistener = socket.create_server(('0.0.0.0', 7164))\nsignal.pause()\n";
    let package = env.package("port").file("train.py", listen);
    let flags = [
        "-parallelism",
        "2",
        "-memory",
        "64Mi",
        "-entry",
        "python3 train.py",
    ];
    env.submit("clash", &package, &flags);
    assert_eq!(env.paddlectl(&["wait", "clash"]).code, Some(1));
    let why = env.paddlectl(&["why", "clash"]).ok().stdout;
    assert!(why.contains("7164"), "{why}");
}

#[test]
fn a_disk_limit_is_only_recorded_on_one_machine() {
    let env = TestEnvironment::new();
    let package = good(&env);
    let flags = ["submit", "-entry", "sh train.sh", "-disk", "300Mi", "-dry-run"];
    env.paddlectl(&[&flags[..], &["-pservers", "0", package.arg()]].concat())
        .ok()
        .says("`-disk` is only recorded: this engine does not limit what workers write to its machine");
}

#[test]
fn a_dry_run_starts_nothing() {
    let env = TestEnvironment::new();
    let package = good(&env);
    env.paddlectl(&[
        "submit",
        "--dry-run",
        "-jobname",
        "plan",
        "-entry",
        "sh train.sh",
        package.arg(),
    ])
    .ok();
    assert!(env.jobs().is_empty());
}

#[test]
fn a_refused_submit_uploads_nothing() {
    let env = TestEnvironment::new();
    let package = good(&env);
    let gate = take_name(&env, "taken");
    let before = stored_packages(env.home());
    let submit = ["submit", "-entry", "sh train.sh"];
    for (flags, says) in [
        (&["-gpu", "1000"][..], "GPU"),
        (&["-jobname", "taken", "-pservers", "0"], "is taken by"),
    ] {
        let ran = env.paddlectl(&[&submit[..], flags, &[package.arg()]].concat());
        let ran = ran.refused(1).says(says);
        assert!(!ran.stderr.contains("Uploading"), "{ran}");
    }
    assert_eq!(stored_packages(env.home()), before, "no file went up");
    gate.open();
    env.paddlectl(&["wait", "taken"]).ok();
}

#[test]
fn a_dry_run_is_refused_like_the_submit() {
    let env = TestEnvironment::new();
    let package = good(&env);
    let gate = take_name(&env, "taken");
    let dry = ["submit", "--dry-run", "-entry", "sh train.sh"];
    env.paddlectl(&[&dry[..], &["-jobname", "taken", package.arg()]].concat())
        .refused(1)
        .says("is taken by");
    env.paddlectl(&[&dry[..], &["-gpu", "1000", package.arg()]].concat())
        .refused(1)
        .says("GPU");
    gate.open();
    env.paddlectl(&["wait", "taken"]).ok();
}

/// A job of this name that runs until the gate opens.
fn take_name(env: &TestEnvironment, name: &str) -> Gate {
    let gate = env.gate("go");
    let waits = env.package("waits").file("train.sh", "cat $GATE\n");
    let flags = ["-env", &gate.variable("GATE"), "-entry", "sh train.sh"];
    env.submit(name, &waits, &flags);
    gate
}

/// What is in the upload folders of all users.
fn stored_packages(home: &Path) -> Vec<PathBuf> {
    let homes = entries(&home.join(".paddle/local/storage/home"));
    let mut stored: Vec<PathBuf> = homes
        .iter()
        .flat_map(|home| entries(&home.join(".paddlecloud/packages")))
        .collect();
    stored.sort();
    stored
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    found.map(|entry| entry.path()).collect()
}

#[test]
fn a_damaged_database_is_reported_with_a_recovery_hint() {
    let env = TestEnvironment::new();
    let package = good(&env);
    env.submit("before", &package, &["-entry", "sh train.sh", "-f"]);
    env.paddlectl(&["server", "stop"]).ok();
    let data = env.home().join(".paddle/local");
    let database = data.join("server.db");
    for path in entries(&data) {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.starts_with("server.db-") {
            fs::remove_file(path).unwrap();
        }
    }
    fs::write(
        &database,
        "this is no database, whatever its name says\n".repeat(200),
    )
    .unwrap();
    env.paddlectl(&["get", "jobs"])
        .refused(3)
        .says(database.to_str().unwrap())
        .says("is damaged")
        .says("hint: restore it from a backup");
    // The way out that the hint names. Half of it would cost the logs, and is refused.
    fs::rename(&database, data.join("away")).unwrap();
    env.paddlectl(&["get", "jobs"])
        .refused(3)
        .says("is empty")
        .says("the folders of 1 job")
        .says("`attempts`");
    fs::rename(data.join("attempts"), data.join("attempts-away")).unwrap();
    env.paddlectl(&["get", "jobs"]).ok();
    env.submit("after", &package, &["-entry", "sh train.sh", "-f"]);
}

#[test]
fn a_machine_without_a_boot_id_has_its_own_error() {
    let mut env = TestEnvironment::new();
    env.set("PADDLECLOUD_BOOT_ID_FILE", "/no/such/boot_id");
    env.paddlectl(&["get", "jobs"])
        .refused(3)
        .says("`/no/such/boot_id`");
    // The end of the test looks for jobs, with a server that can start.
    env.set("PADDLECLOUD_BOOT_ID_FILE", "/proc/sys/kernel/random/boot_id");
}

#[test]
fn a_listen_address_in_use_is_reported() {
    let env = TestEnvironment::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let folder = env.folder("server");
    let config = folder.join("config.yaml");
    let data = folder.join("data");
    let text = format!(
        "listen: {address}\ndata: {}\ndatacenter: cloud\nusers: []\n",
        data.display()
    );
    fs::write(&config, text).unwrap();
    env.run("paddlecloud-server", &["--config", config.to_str().unwrap()])
        .refused(1)
        .says(&format!("cannot listen on `{address}`"))
        .says("hint: choose another `listen` address");
}
