//! The bytes of everything that a supervisor, a launcher and a server of different versions exchange or find on disk.
//!
//! Supervisors and launchers outlive an upgrade of the server, so these texts change only by additions with a default.

use std::fs;
use std::net::Ipv4Addr;

use paddlecloud_worker::link::{self, FromLauncher, FromServer, Hello, Standing, VERSION};
use paddlecloud_worker::log::{Chunk, LogWriter, Stream};
use paddlecloud_worker::protocol::{
    self, Bind, CgroupParent, CgroupVersion, Clash, Command, Ending, Exit, Isolation, Limits, LogLimits,
    Namespaces, Phase, PrivateFile, Report, Role, RunAs, State, UnixNanos, WorkerPlan, files,
};

const ATTEMPT: &str = "j_0000000000012a.trainer-0.1";

fn plan() -> WorkerPlan {
    WorkerPlan {
        marker: ATTEMPT.into(),
        worker: "a-trainer-0".into(),
        role: Role::Trainer,
        index: 0,
        command: "python train.py".into(),
        env: vec![("TRAINERS".into(), "2".into())],
        workdir: "/pfs/here/home/ada/package".into(),
        address: Ipv4Addr::new(127, 1, 0, 1),
        hosts: vec![("a-trainer-0".into(), Ipv4Addr::new(127, 1, 0, 1))],
        binds: vec![Bind {
            source: "/data/home/ada".into(),
            target: "/pfs/here/home/ada".into(),
            read_only: true,
        }],
        hidden: vec!["/data".into()],
        files: vec![PrivateFile {
            path: "/trainer_id".into(),
            contents: "0".into(),
        }],
        limits: Limits {
            cpu_millis: Some(1500),
            memory_bytes: Some(1 << 30),
            processes: None,
        },
        wait_for_go: true,
        preamble: vec!["Starting the trainer".into()],
        ready_ports: vec![7164],
        grace_ms: 30_000,
        log: LogLimits {
            segment_bytes: 8 << 20,
            keep_bytes: 256 << 20,
        },
        log_folder: Some("/spool/log".into()),
        plain_log: None,
        run_as: Some(RunAs {
            uid: 1000,
            gid: 1001,
            groups: vec![4],
        }),
        isolation: Isolation {
            namespaces: Some(Namespaces {
                user: false,
                pid: true,
            }),
            cpu: Some(CgroupParent {
                version: CgroupVersion::V1,
                path: "/sys/fs/cgroup/cpu".into(),
            }),
            memory: Some(CgroupParent {
                version: CgroupVersion::V2,
                path: "/sys/fs/cgroup".into(),
            }),
            pids: None,
            degraded: vec!["no process limit".into()],
        },
        boot_id: "b".into(),
    }
}

fn exit(ending: Ending) -> Exit {
    Exit {
        ending,
        oom: true,
        started_at: Some(UnixNanos(1)),
        finished_at: UnixNanos(2),
        duration_ms: 3,
        final_log_offset: 4,
        dropped_bytes: 5,
        clash: Some(Clash {
            port: 7164,
            holder_pid: Some(42),
            holder_marker: Some("j_0000000000012a.trainer-1.1".into()),
        }),
        message: Some("why".into()),
        stopped: Some(false),
    }
}

fn state() -> State {
    State {
        marker: ATTEMPT.into(),
        phase: Phase::Stopping,
        pid: Some(42),
        started_at: None,
        ready: true,
        log_offset: 4,
        dropped_bytes: 5,
    }
}

const EXIT: &str = r#""oom":true,"started_at":1,"finished_at":2,"duration_ms":3,"final_log_offset":4,"dropped_bytes":5,"clash":{"port":7164,"holder_pid":42,"holder_marker":"j_0000000000012a.trainer-1.1"},"message":"why","stopped":false}"#;
const STATE: &str = r#""marker":"j_0000000000012a.trainer-0.1","phase":"stopping","pid":42,"started_at":null,"ready":true,"log_offset":4,"dropped_bytes":5}"#;

#[test]
fn the_plan_is_this_file() {
    let dir = tempfile::tempdir().unwrap();
    plan().store(dir.path()).unwrap();
    let text = fs::read_to_string(dir.path().join(files::PLAN)).unwrap();
    let expected = r#"{
  "marker": "j_0000000000012a.trainer-0.1",
  "worker": "a-trainer-0",
  "role": "trainer",
  "index": 0,
  "command": "python train.py",
  "env": [
    [
      "TRAINERS",
      "2"
    ]
  ],
  "workdir": "/pfs/here/home/ada/package",
  "address": "127.1.0.1",
  "hosts": [
    [
      "a-trainer-0",
      "127.1.0.1"
    ]
  ],
  "binds": [
    {
      "source": "/data/home/ada",
      "target": "/pfs/here/home/ada",
      "read_only": true
    }
  ],
  "hidden": [
    "/data"
  ],
  "files": [
    {
      "path": "/trainer_id",
      "contents": "0"
    }
  ],
  "limits": {
    "cpu_millis": 1500,
    "memory_bytes": 1073741824,
    "processes": null
  },
  "wait_for_go": true,
  "preamble": [
    "Starting the trainer"
  ],
  "ready_ports": [
    7164
  ],
  "grace_ms": 30000,
  "log": {
    "segment_bytes": 8388608,
    "keep_bytes": 268435456
  },
  "log_folder": "/spool/log",
  "plain_log": null,
  "run_as": {
    "uid": 1000,
    "gid": 1001,
    "groups": [
      4
    ]
  },
  "isolation": {
    "namespaces": {
      "user": false,
      "pid": true
    },
    "cpu": {
      "version": "v1",
      "path": "/sys/fs/cgroup/cpu"
    },
    "memory": {
      "version": "v2",
      "path": "/sys/fs/cgroup"
    },
    "pids": null,
    "degraded": [
      "no process limit"
    ]
  },
  "boot_id": "b"
}"#;
    assert_eq!(text, expected);
    assert_eq!(WorkerPlan::load(dir.path()).unwrap(), plan());
    let pserver = WorkerPlan {
        role: Role::Pserver,
        ..plan()
    };
    pserver.write(dir.path()).unwrap();
    let line = fs::read_to_string(dir.path().join(files::PLAN)).unwrap();
    let begin =
        r#"{"marker":"j_0000000000012a.trainer-0.1","worker":"a-trainer-0","role":"pserver","index":0,"#;
    assert!(line.starts_with(begin) && line.ends_with("}\n"), "{line}");
}

#[test]
fn the_exit_is_this_file() {
    let dir = tempfile::tempdir().unwrap();
    exit(Ending::Signal(9)).store(dir.path()).unwrap();
    let text = fs::read_to_string(dir.path().join(files::EXIT)).unwrap();
    let expected = r#"{
  "ending": {
    "signal": 9
  },
  "oom": true,
  "started_at": 1,
  "finished_at": 2,
  "duration_ms": 3,
  "final_log_offset": 4,
  "dropped_bytes": 5,
  "clash": {
    "port": 7164,
    "holder_pid": 42,
    "holder_marker": "j_0000000000012a.trainer-1.1"
  },
  "message": "why",
  "stopped": false
}"#;
    assert_eq!(text, expected);
    let never_started = Exit {
        started_at: None,
        clash: None,
        message: None,
        stopped: None,
        ..exit(Ending::NeverStarted)
    };
    never_started.store(dir.path()).unwrap();
    let text = fs::read_to_string(dir.path().join(files::EXIT)).unwrap();
    let expected = r#"{
  "ending": "never_started",
  "oom": true,
  "started_at": null,
  "finished_at": 2,
  "duration_ms": 3,
  "final_log_offset": 4,
  "dropped_bytes": 5,
  "clash": null,
  "message": null,
  "stopped": null
}"#;
    assert_eq!(text, expected);
}

fn line<T: serde::Serialize>(message: &T) -> String {
    String::from_utf8(protocol::encode(message)).expect("a message is JSON")
}

#[test]
fn commands_are_these_lines() {
    let go = Command::Go {
        lines: vec!["a".into(), "b".into()],
    };
    assert_eq!(line(&go), "{\"command\":\"go\",\"lines\":[\"a\",\"b\"]}\n");
    let stop = |grace_ms| line(&Command::Stop { grace_ms });
    assert_eq!(stop(None), "{\"command\":\"stop\",\"grace_ms\":null}\n");
    assert_eq!(stop(Some(500)), "{\"command\":\"stop\",\"grace_ms\":500}\n");
    let watch = Command::Watch { offset: 7 };
    assert_eq!(line(&watch), "{\"command\":\"watch\",\"offset\":7}\n");
}

#[test]
fn reports_are_these_lines() {
    let reports = [
        (
            Report::State(state()),
            format!("{{\"report\":\"state\",{STATE}\n"),
        ),
        (
            Report::Started { at: UnixNanos(1) },
            "{\"report\":\"started\",\"at\":1}\n".to_owned(),
        ),
        (Report::Ready, "{\"report\":\"ready\"}\n".to_owned()),
        (
            Report::Grown { offset: 5 },
            "{\"report\":\"grown\",\"offset\":5}\n".to_owned(),
        ),
        (
            Report::Dropped { bytes: 6 },
            "{\"report\":\"dropped\",\"bytes\":6}\n".to_owned(),
        ),
        (
            Report::Exited(exit(Ending::Code(1))),
            format!("{{\"report\":\"exited\",\"ending\":{{\"code\":1}},{EXIT}\n"),
        ),
    ];
    for (report, expected) in reports {
        assert_eq!(line(&report), expected);
    }
    let phases = [Phase::Waiting, Phase::Running, Phase::Stopping, Phase::Ending];
    let named = phases.map(|phase| line(&phase));
    let expected = ["\"waiting\"\n", "\"running\"\n", "\"stopping\"\n", "\"ending\"\n"];
    assert_eq!(named, expected);
}

/// The frame of a message: its length, its kind and its text.
fn framed(json: &str) -> Vec<u8> {
    let length = u32::try_from(json.len() + 1).expect("a message is short");
    [&length.to_be_bytes()[..], &[0], json.as_bytes()].concat()
}

fn hello(standing: Standing) -> FromLauncher {
    FromLauncher::Hello(Hello {
        version: VERSION,
        attempt: ATTEMPT.into(),
        secret: "hush".into(),
        address: [10, 0, 0, 1].into(),
        standing,
    })
}

#[test]
fn messages_of_a_launcher_are_these_frames() {
    let begin = r#"{"hello":{"version":1,"attempt":"j_0000000000012a.trainer-0.1","secret":"hush","address":"10.0.0.1","standing":"#;
    let messages = [
        (hello(Standing::New), format!("{begin}\"new\"}}}}")),
        (
            hello(Standing::Running(state())),
            format!("{begin}{{\"running\":{{{STATE}}}}}}}"),
        ),
        (
            hello(Standing::Ended(exit(Ending::Code(0)))),
            format!("{begin}{{\"ended\":{{\"ending\":{{\"code\":0}},{EXIT}}}}}}}"),
        ),
        (
            FromLauncher::Report(Report::Ready),
            r#"{"report":{"report":"ready"}}"#.to_owned(),
        ),
        (
            FromLauncher::Report(Report::Exited(exit(Ending::Code(0)))),
            format!("{{\"report\":{{\"report\":\"exited\",\"ending\":{{\"code\":0}},{EXIT}}}"),
        ),
        (
            FromLauncher::Gap { from: 1, to: 2 },
            r#"{"gap":{"from":1,"to":2}}"#.to_owned(),
        ),
        (FromLauncher::Evicted, r#""evicted""#.to_owned()),
        (
            FromLauncher::Unable { reason: "no".into() },
            r#"{"unable":{"reason":"no"}}"#.to_owned(),
        ),
        (FromLauncher::Alive, r#""alive""#.to_owned()),
    ];
    for (message, json) in messages {
        let text = String::from_utf8_lossy(&link::encode(&message)).into_owned();
        assert_eq!(link::encode(&message), framed(&json), "{text}");
    }
}

#[test]
fn messages_of_the_server_are_these_frames() {
    let plan = plan();
    let planned = line(&plan);
    let messages = [
        (
            FromServer::Welcome {
                plan: Some(Box::new(plan)),
                log_end: 3,
            },
            format!(
                "{{\"welcome\":{{\"plan\":{},\"log_end\":3}}}}",
                planned.trim_end()
            ),
        ),
        (
            FromServer::Welcome {
                plan: None,
                log_end: 0,
            },
            r#"{"welcome":{"plan":null,"log_end":0}}"#.to_owned(),
        ),
        (
            FromServer::Leave { reason: "r".into() },
            r#"{"leave":{"reason":"r"}}"#.to_owned(),
        ),
        (
            FromServer::Peers {
                hosts: vec![("a-trainer-0".into(), [10, 0, 0, 1].into())],
            },
            r#"{"peers":{"hosts":[["a-trainer-0","10.0.0.1"]]}}"#.to_owned(),
        ),
        (
            FromServer::Command(Command::Stop { grace_ms: Some(1) }),
            r#"{"command":{"command":"stop","grace_ms":1}}"#.to_owned(),
        ),
        (
            FromServer::Stored { offset: 4 },
            r#"{"stored":{"offset":4}}"#.to_owned(),
        ),
        (FromServer::Recorded, r#""recorded""#.to_owned()),
        (FromServer::Alive, r#""alive""#.to_owned()),
    ];
    for (message, json) in messages {
        let text = String::from_utf8_lossy(&link::encode(&message)).into_owned();
        assert_eq!(link::encode(&message), framed(&json), "{text}");
    }
}

#[test]
fn output_is_these_frames() {
    for (stream, origin) in [(Stream::Launcher, 0), (Stream::Output, 1)] {
        let frame = link::encode_log(&Chunk {
            offset: 0x0102,
            stamp: 0x0304,
            stream,
            bytes: b"out".to_vec(),
        });
        let expected = [
            &[0, 0, 0, 21, 1][..],
            &[0, 0, 0, 0, 0, 0, 1, 2],
            &[0, 0, 0, 0, 0, 0, 3, 4],
            &[origin],
            b"out",
        ];
        assert_eq!(frame, expected.concat());
    }
}

#[test]
fn an_index_has_these_entries() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join(files::LOG);
    let mut writer = LogWriter::create(&log, LogLimits::default()).unwrap();
    writer.append(Stream::Launcher, b"pre", UnixNanos(0x0203));
    writer.append(Stream::Output, b"out", UnixNanos(0x0405));
    assert_eq!(fs::read(log.join("00000000000000000000.log")).unwrap(), b"preout");
    let index = fs::read(log.join("00000000000000000000.idx")).unwrap();
    let expected = [
        [
            0, 0, 0, 0, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ],
        [
            3, 0, 0, 0, 0, 0, 0, 0, 5, 4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
        ],
    ];
    assert_eq!(index, expected.concat());
}
