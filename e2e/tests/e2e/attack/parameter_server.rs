//! Floods of connections to a job's parameter server, from another user of the machine and from the job itself.

use std::fs;

use e2e::{Background, PASSWORD, Shared, TestEnvironment, wait_until};

const FLOOD: &str = include_str!("../../../../tools/attack/flood_pserver.py");
/// Connections of each of the two floods.
const CONNECTIONS: &str = "1500";
/// Connections that may wait for their proof, with a margin for everything else that the server has open.
const MOST_DESCRIPTORS: usize = 256 + 64;
const MOST_THREADS: usize = 32;

/// Another user than the job's.
const NOBODY: &str = "65534";

/// Connects again and again, as a trainer does that was restarted, while both floods last. `stat` tries for 5 s, a
/// trainer for five minutes.
const TRAIN: &str = "
python3 flood.py \"$PADDLE_PSERVERS_IP_PORT_LIST\" $CONNECTIONS &
echo \"server at $PADDLE_PSERVERS_IP_PORT_LIST\"
until [ -e /pfs/cloud/home/ada/go ]; do sleep 0.05; done
for number in $(seq 20); do
    for attempt in $(seq 6); do
        paddle pserver stat > /dev/null && continue 2
    done
    exit 1
done
echo trained
";

/// The process of the job's parameter server.
fn server_of(id: &str) -> u32 {
    let attempt = format!("PADDLECLOUD_ATTEMPT={id}.pserver-0.1");
    let pids = || {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
    };
    let text = |pid: u32, what: &str| {
        let bytes = fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    wait_until("the parameter server runs", || {
        pids().find(|pid| {
            let is_of_attempt = text(*pid, "environ")
                .split('\0')
                .any(|variable| variable == attempt);
            is_of_attempt && text(*pid, "cmdline").starts_with("paddle\0pserver")
        })
    })
}

fn count(pid: u32, what: &str) -> usize {
    let entries = fs::read_dir(format!("/proc/{pid}/{what}")).expect("the parameter server still runs");
    entries.count()
}

fn flood_as_another_user(env: &TestEnvironment, address: &str) -> Background {
    let script = env.folder("scripts").join("flood.py");
    fs::write(&script, FLOOD).expect("a file in the test's own folder");
    let script = script.to_str().expect("a plain name");
    let mut flood = env.start_program("/usr/bin/python3", &[script, address, CONNECTIONS, NOBODY]);
    flood.wait_for_line("flooding");
    flood
}

#[test]
#[ignore = "needs root"]
fn a_job_survives_floods_of_its_parameter_server() {
    let env = TestEnvironment::new();
    let shared = Shared::start(&env, "", "  system_user: daemon\n");
    shared.configure(&env, PASSWORD);
    let package = env.package("job").file("train.sh", TRAIN).file("flood.py", FLOOD);
    let variable = format!("CONNECTIONS={CONNECTIONS}");
    let trainer = ["-entry", "sh train.sh", "-env", &variable, "-memory", "256Mi"];
    let server = ["-pservers", "1", "-pscpu", "500m", "-psmemory", "128Mi"];
    env.submit(
        "job",
        &package,
        &[&trainer[..], &server[..], &["-cpu", "500m"]].concat(),
    );
    let address = wait_until("the trainer names its server", || {
        let lines = env.logs("job");
        let line = lines.iter().find_map(|line| line.split_once("server at "));
        line.map(|(_, address)| address.trim().to_owned())
    });
    wait_until("the job floods its own server", || {
        let lines = env.logs("job");
        lines.iter().any(|line| line.ends_with("flooding")).then_some(())
    });
    let flood = flood_as_another_user(&env, &address);
    let go = env.folder("packages").join("go");
    fs::write(&go, "").expect("a file in the test's own folder");
    env.paddlectl(&["cp", go.to_str().expect("a plain name"), "/pfs/cloud/home/ada/go"])
        .ok();
    let described = env.describe("job");
    let id = described["job"]["id"].as_str().expect("an id");
    let pid = server_of(id);
    let (descriptors, threads) = (count(pid, "fd"), count(pid, "task"));
    assert!(descriptors < MOST_DESCRIPTORS, "{descriptors} descriptors");
    assert!(threads < MOST_THREADS, "{threads} threads");
    wait_until("the job ends", || {
        let status = env.status("job");
        (status != "Running").then_some(())
    });
    assert_eq!(env.status("job"), "Succeeded", "{:#?}", env.logs("job"));
    let described = env.describe("job");
    let workers = described["workers"].as_array().expect("workers");
    assert!(
        workers.iter().all(|worker| worker["attempt"] == 1),
        "{described:#}"
    );
    drop(flood);
}
