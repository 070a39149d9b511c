//! Tables, logs and timelines, for programs and for people.

use crate::scripted::server;
use crate::shell::Shell;

const LINES: &[&str] = &[
    "get jobs",
    "get jobs -a",
    "get jobs -o wide",
    "get jobs -o name",
    "get workers paddle-cluster-job",
    "get workers paddle-cluster-job -o wide -role trainer",
    "get quota",
    "jobs",
    "logs",
    "logs -raw",
    "logs -f -timestamps",
    "kill paddle-cluster-job",
    "describe last",
    "why paddle-cluster-job",
    "wait paddle-cluster-job",
    "rerun -",
    "jobs -o wide",
    "prune -older-than 7d",
    "prune --all --dry-run",
    "prune --dry-run",
    "whoami",
];

#[test]
fn piped_output_is_separated_by_tabs() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    let stories: Vec<String> = LINES
        .iter()
        .map(|line| format!("$ {line}\n{}", shell.line(line).story(&shell)))
        .collect();
    insta::assert_snapshot!("tables", stories.join("\n"));
}

#[test]
fn terminal_output_is_aligned_and_coloured() {
    let server = server();
    let mut shell = Shell::at(&server.endpoint);
    shell.is_terminal = true;
    let shown: Vec<String> = [
        "get jobs",
        "get jobs -a",
        "get jobs -o wide",
        "get jobs -a -o wide",
        "get workers x",
        "get workers x -o wide",
        "jobs",
        "logs",
        "describe last",
        "get quota",
    ]
    .iter()
    .map(|line| format!("$ {line}\n{}", shell.line(line).out.replace('\x1b', "ESC")))
    .collect();
    insta::assert_snapshot!("terminal", shown.join("\n"));
}

#[test]
fn describe_names_the_nodes_of_a_job_on_a_cluster() {
    let server = crate::scripted::server_with(|line| {
        let mut worker = crate::scripted::worker("j-trainer-3s4nz", "trainer", 0);
        worker["address"] = "j-trainer-3s4nz".into();
        worker["node"] = "node2".into();
        let job = crate::scripted::job("j", "Running");
        let detail = serde_json::json!({ "job": job, "workers": [worker], "events": [] });
        let reply = serde_json::json!({ "code": 200, "msg": detail }).to_string();
        (line == "GET /api/v1/jobs/j").then_some((200, reply))
    });
    let mut shell = Shell::at(&server.endpoint);
    let piped = shell.line("describe j").out;
    assert!(!piped.contains('\t') && !piped.contains("<nil>"), "{piped}");
    shell.is_terminal = true;
    let shown = shell
        .line("describe j")
        .out
        .replace("\x1b[36m", "")
        .replace("\x1b[0m", "");
    assert_eq!(shown, piped);
    assert!(shown.contains("START      NODE   NAME\n"), "{shown}");
    assert!(shown.contains("11:59:51Z  node2  j-trainer-3s4nz\n"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
}

#[test]
fn long_names_keep_within_80_columns_on_a_terminal() {
    let server = crate::scripted::server_with(|line| {
        let mut job = crate::scripted::job(&"n".repeat(63), "Succeeded");
        job["submitted"] = "2025-12-01T10:00:00Z".into();
        job["started"] = "2025-12-01T10:00:00Z".into();
        job["completed"] = "2025-12-04T22:00:00Z".into();
        let jobs = serde_json::json!({ "code": 200, "msg": [job] }).to_string();
        line.starts_with("GET /api/v1/jobs?").then_some((200, jobs))
    });
    let mut shell = Shell::at(&server.endpoint);
    shell.is_terminal = true;
    for line in ["get jobs", "get jobs -a"] {
        let shown = shell
            .line(line)
            .out
            .replace("\x1b[32m", "")
            .replace("\x1b[0m", "");
        let longest = shown.lines().map(|line| line.chars().count()).max();
        assert_eq!(longest, Some(80), "{shown}");
        assert!(shown.contains("nn…nn"), "{shown}");
        assert!(shown.contains("Succeeded"), "{shown}");
    }
}

#[test]
fn empty_lists_say_so() {
    let server = crate::scripted::server_with(|line| {
        let nothing = r#"{"code":200,"msg":[]}"#.to_owned();
        let is_list = line.starts_with("GET /api/v1/jobs?") || line.starts_with("GET /api/v1/workers");
        is_list.then_some((200, nothing))
    });
    let mut shell = Shell::at(&server.endpoint);
    let lines = [
        (
            "get jobs",
            "note: no job is pending or running; `paddlectl get jobs -a` shows ended ones too\n",
        ),
        ("get jobs -a", "note: there are no jobs yet\n"),
        ("get workers", "note: no worker is running\n"),
        ("get workers j -role trainer", "note: j has no trainer\n"),
        (
            "jobs",
            "note: no job is pending or running; `-a` shows ended ones too\n",
        ),
    ];
    for (line, note) in lines {
        shell.is_terminal = false;
        let piped = shell.line(line);
        assert_eq!(
            (piped.err.as_str(), piped.out.lines().count()),
            (note, 1),
            "{line}"
        );
        shell.is_terminal = true;
        let shown = shell.line(line);
        assert_eq!((shown.err.as_str(), shown.out.as_str()), (note, ""), "{line}");
    }
    assert_eq!(shell.line("get jobs -o json").err, "");
}

#[test]
fn without_links_or_unfinished_uploads_a_note_says_so() {
    let server = crate::scripted::server_with(|line| {
        let is_list = line.ends_with("/pfs/shares") || line.ends_with("/pfs/uploads");
        is_list.then(|| (200, r#"{"code":200,"msg":[]}"#.to_owned()))
    });
    let mut shell = Shell::at(&server.endpoint);
    shell.is_terminal = true;
    let said = |line: &str| {
        let outcome = shell.line(line);
        (outcome.out, outcome.err)
    };
    assert_eq!(
        said("publish"),
        (String::new(), "note: no link is active\n".to_owned())
    );
    assert_eq!(
        said("pfs uploads"),
        (
            String::new(),
            "note: there are no unfinished uploads\n".to_owned()
        )
    );
}

#[test]
fn unfinished_uploads_fit_on_a_terminal_and_their_short_ids_are_accepted() {
    let id = "0123456789abcdef0123456789abcdef";
    let server = crate::scripted::server_with(move |line| {
        let upload = serde_json::json!({
            "id": id, "path": "/pfs/dc1/home/me/data/a-rather-long-name-of-a-file.bin", "size": 1_000_000_000,
            "arrived": 500_000_000, "touched": "2026-01-01T11:00:00Z"
        });
        let list = serde_json::json!({ "code": 200, "msg": [upload] }).to_string();
        let done = r#"{"code":200,"msg":"OK"}"#.to_owned();
        match line.split_once(' ')? {
            ("GET", "/api/v1/pfs/uploads") => Some((200, list)),
            ("DELETE", _) => Some((200, done)),
            _ => None,
        }
    });
    let mut shell = Shell::at(&server.endpoint);
    assert!(shell.line("pfs uploads").out.contains(id));
    shell.is_terminal = true;
    let shown = shell.line("pfs uploads").out;
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    assert!(shown.contains("\n01234567  500000000"), "{shown}");
    let dropped = shell.line("pfs uploads --drop 01234567");
    assert_eq!(dropped.code, 0, "{}", dropped.err);
    let target = format!("DELETE /api/v1/pfs/uploads/{id}");
    assert!(server.lines().contains(&target), "{:?}", server.lines());
}

#[test]
fn folders_above_all_homes_list_what_the_caller_may_see() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    let listed = |path: &str| shell.run(&["ls", path]).out;
    assert_eq!(listed("/pfs"), "dc1\npublic\n");
    assert_eq!(listed("/pfs/dc1/"), "home\npublic\n");
    assert_eq!(listed("/pfs/dc1/home"), "me\n");
    let json = shell.line("ls -o json /pfs/dc1/user").out;
    let rows: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        rows,
        serde_json::json!([{"path": "/pfs/dc1/home/me", "kind": "folder"}])
    );
    let elsewhere = shell.line("ls /pfs/dc2");
    assert_eq!(
        (elsewhere.code, elsewhere.err.as_str()),
        (
            1,
            "error: `/pfs/dc2` does not exist\nhint: your home is `/pfs/dc1/home/me`\n"
        )
    );
}

#[test]
fn json_and_yaml_carry_the_same_data() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    for line in [
        "get jobs",
        "get workers",
        "get quota",
        "jobs",
        "describe",
        "why",
        "whoami",
    ] {
        let json: serde_json::Value =
            serde_json::from_str(&shell.line(&format!("{line} -o json")).out).unwrap();
        let yaml: serde_json::Value =
            serde_saphyr::from_str(&shell.line(&format!("{line} -o yaml")).out).unwrap();
        assert_eq!(json, yaml, "{line}");
    }
}

#[test]
fn a_followed_job_that_failed_ends_with_1() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    let outcome = shell.line("logs -f");
    assert_eq!(outcome.code, 1);
    assert!(
        outcome.err.contains("Failed: trainer 0 ended with 1"),
        "{}",
        outcome.err
    );
    assert_eq!(shell.line("logs").code, 0);
}

/// A server where every job has this status.
fn server_where_jobs_are(status: &'static str, started: Option<&'static str>) -> crate::scripted::Server {
    crate::scripted::server_with(move |line| {
        let mut job = crate::scripted::job("j", status);
        job["started"] = started.into();
        let detail = serde_json::json!({ "job": job, "workers": [], "events": [] });
        line.starts_with("GET /api/v1/jobs/")
            .then(|| line.matches('/').count() == 4)
            .filter(|is_detail| *is_detail)
            .map(|_| (200, serde_json::json!({ "code": 200, "msg": detail }).to_string()))
    })
}

#[test]
fn the_log_of_a_job_that_waits_says_what_it_waits_for() {
    let server = server_where_jobs_are("Pending", None);
    let outcome = Shell::at(&server.endpoint).line("logs j");
    assert_eq!(outcome.code, 0);
    assert_eq!(outcome.err, "note: j has not started: waits for 2 cores\n");
    let started = Some("2026-01-01T11:59:50Z");
    let server = server_where_jobs_are("Pending", started);
    let again = Shell::at(&server.endpoint).line("logs j");
    assert_eq!(again.err, "note: j is not running: waits for 2 cores\n");
    let server = server_where_jobs_are("Running", started);
    assert_eq!(Shell::at(&server.endpoint).line("logs j").err, "");
}

#[test]
fn the_log_of_a_job_that_starts_says_so() {
    let server = crate::scripted::server_with(|line| {
        let mut why = serde_json::json!({ "job": crate::scripted::job("j", "Starting") });
        why["reason"] = "its workers are starting; trainer 0: pulling its image".into();
        why["ahead"] = serde_json::json!([]);
        why["ahead_total"] = 0.into();
        let detail = serde_json::json!({ "job": why["job"], "workers": [], "events": [] });
        let reply =
            |msg: serde_json::Value| (200, serde_json::json!({ "code": 200, "msg": msg }).to_string());
        match line {
            "GET /api/v1/jobs/j" => Some(reply(detail)),
            line if line.ends_with("/why") => Some(reply(why)),
            _ => None,
        }
    });
    let shell = Shell::at(&server.endpoint);
    let note = "note: j is starting: its workers are starting; trainer 0: pulling its image\n";
    let outcome = shell.line("logs j");
    assert_eq!(outcome.code, 0);
    assert_eq!(
        outcome.err,
        format!("{note}hint: `paddlectl logs -f j` waits for its output\n")
    );
    assert!(shell.line("logs -f j").err.starts_with(note));
}

#[test]
fn results_of_a_job_that_never_started_are_refused() {
    let server = server_where_jobs_are("Pending", None);
    let outcome = Shell::at(&server.endpoint).line("output j");
    assert_eq!(outcome.code, 1);
    assert_eq!(outcome.err, "error: j has no output: it has not started\n");
}

#[test]
fn a_log_says_which_workers_are_not_connected_now() {
    use paddlecloud_api::logs::{Frame, LogWorker};
    let server = crate::scripted::server_with(|line| {
        let worker = LogWorker {
            name: "a-trainer-0".to_owned(),
            role: "trainer".to_owned(),
            index: 0,
            attempt: 1,
            from: None,
            is_behind: true,
        };
        let mut reply = Vec::new();
        Frame::Workers(vec![worker]).encode(&mut reply);
        Frame::End(None).encode(&mut reply);
        line.contains("/logs")
            .then(|| (200, String::from_utf8(reply).unwrap()))
    });
    let shell = Shell::at(&server.endpoint);
    assert_eq!(
        shell.line("logs").err,
        "note: not connected to the server now: a-trainer-0; what they wrote last is missing here, and `paddlectl logs -f \
         paddle-cluster-job` shows it when they are back\n"
    );
    let followed = shell.line("logs -f").err;
    assert!(!followed.contains("not connected"), "{followed}");
}

#[test]
fn an_offset_that_is_too_large_is_refused_with_the_range() {
    let server = crate::scripted::server();
    let outcome = Shell::at(&server.endpoint).line("cat --offset 99999999999999999999 /pfs/dc1/home/me/a");
    assert_eq!(outcome.code, 2);
    assert!(
        outcome
            .err
            .contains("`99999999999999999999` is not a number of bytes between 0 and 18446744073709551615"),
        "{}",
        outcome.err
    );
}

#[test]
fn followers_of_a_removed_job_are_notified() {
    let server = crate::scripted::server_with(|line| {
        let mut end = Vec::new();
        paddlecloud_api::logs::Frame::End(None).encode(&mut end);
        let gone = r#"{"code":404,"msg":"there is no such job","error":"not-found"}"#;
        match line.split('/').next_back()?.split('?').next()? {
            "logs" => Some((200, String::from_utf8(end).unwrap())),
            "wait" => Some((404, gone.to_owned())),
            _ => None,
        }
    });
    let shell = Shell::at(&server.endpoint);
    for line in ["logs -f", "submit -f -entry ./train /pfs/dc1/home/me/pkg", "wait"] {
        let outcome = shell.line(line);
        assert_eq!(outcome.code, 1, "{line}");
        assert!(
            outcome
                .err
                .ends_with("error: paddle-cluster-job was killed and removed from the history\n"),
            "{line}: {}",
            outcome.err
        );
    }
    assert_eq!(shell.line("logs").code, 0, "what is not followed just ends");
}

#[test]
fn a_kill_names_the_job_and_says_when_it_was_over() {
    let server = crate::scripted::server_with(|line| {
        let reply = |removed: bool| {
            format!(
                r#"{{"code":200,"msg":"it had already ended","id":"j_01jd2m3n4p5q6r","name":"paddle-cluster-job","ending":0,"removed":{removed}}}"#
            )
        };
        line.starts_with("DELETE ")
            .then(|| (200, reply(line.contains("rm=true"))))
    });
    let shell = Shell::at(&server.endpoint);
    assert_eq!(
        shell.line("kill last").err,
        "paddle-cluster-job (j_01jd2m3n4p5q6r) had already ended\n"
    );
    assert_eq!(
        shell.line("kill -rm last").err,
        "removed paddle-cluster-job (j_01jd2m3n4p5q6r), which had already ended\n\
         its record and logs were removed; its output is kept at /pfs/dc1/home/me/pkg/output\n"
    );
    let kills = server.lines();
    let by_id = kills
        .iter()
        .filter(|line| line.starts_with("DELETE /api/v1/jobs/j_01jd2m3n4p5q6r"));
    assert_eq!(by_id.count(), 2, "`last` is settled once: {kills:?}");
}

#[test]
fn a_kill_by_name_is_a_kill_of_one_run_however_often_it_is_sent() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    assert_eq!(shell.line("kill paddle-cluster-job").code, 0);
    assert_eq!(
        server.lines(),
        [
            "GET /api/v1/jobs/paddle-cluster-job",
            "DELETE /api/v1/jobs/j_01jd2m3n4p5q6r"
        ]
    );
}

#[test]
fn several_jobs_are_killed_also_when_one_of_them_cannot_be() {
    let server = crate::scripted::server_with(|line| {
        let gone = r#"{"code":404,"msg":"there is no such job","error":"not-found"}"#;
        (line == "GET /api/v1/jobs/gone").then(|| (404, gone.to_owned()))
    });
    let shell = Shell::at(&server.endpoint);
    let outcome = shell.line("kill gone paddle-cluster-job -now");
    assert_eq!(outcome.code, 1);
    assert!(
        outcome.err.contains("error: there is no such job\n"),
        "{}",
        outcome.err
    );
    assert!(
        outcome.err.contains("stopping paddle-cluster-job"),
        "{}",
        outcome.err
    );
    assert_eq!(shell.line("kill --all --rm").code, 0);
    let kills: Vec<String> = server
        .lines()
        .into_iter()
        .filter(|line| line.starts_with("DELETE"))
        .collect();
    let id = "DELETE /api/v1/jobs/j_01jd2m3n4p5q6r";
    assert_eq!(kills, [format!("{id}?now=true"), format!("{id}?rm=true")]);
    assert_eq!(shell.line("kill").code, 2);
    assert_eq!(shell.line("kill --all j").code, 2);
}

#[test]
fn a_kill_with_rm_says_what_is_removed_and_kept() {
    let server = crate::scripted::server_with(|line| {
        let reply = r#"{"code":200,"msg":"OK","id":"j_01jd2m3n4p5q6r","name":"paddle-cluster-job","ending":3,"removed":true}"#;
        line.starts_with("DELETE ").then(|| (200, reply.to_owned()))
    });
    assert_eq!(
        Shell::at(&server.endpoint)
            .line("kill -rm paddle-cluster-job")
            .err,
        "stopping paddle-cluster-job (j_01jd2m3n4p5q6r): 3 workers are terminating in the background\n\
         its record and logs are removed when the last worker has exited; its output is kept at \
         /pfs/dc1/home/me/pkg/output\n\
         hint: `paddlectl get workers j_01jd2m3n4p5q6r` shows the remaining ones\n"
    );
}

#[test]
fn a_kill_with_rm_names_no_output_of_a_job_that_never_started() {
    let server = crate::scripted::server_with(|line| {
        let reply = r#"{"code":200,"msg":"OK","id":"j_01jd2m3n4p5q6r","name":"paddle-cluster-job","ending":0,"removed":true}"#;
        if line.starts_with("DELETE ") {
            return Some((200, reply.to_owned()));
        }
        let usual = String::from_utf8(crate::scripted::usual(line).1).unwrap();
        Some((
            200,
            usual.replace(r#""started":"2026-01-01T11:59:50Z""#, r#""started":null"#),
        ))
    });
    assert_eq!(
        Shell::at(&server.endpoint)
            .line("kill -rm paddle-cluster-job")
            .err,
        "removed paddle-cluster-job (j_01jd2m3n4p5q6r)\nits record and logs were removed\n"
    );
}

#[test]
fn a_format_is_what_it_says_or_is_refused_by_name() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    assert_eq!(shell.line("get quota -o name").out, "cpu\ngpu\nmemory\n");
    assert_eq!(shell.line("jobs -o name").out, "paddle-cluster-job\n");
    let wide = shell.line("jobs -o wide").out;
    assert!(
        wide.starts_with("NAMESPACE\tNAME\tDESIRED\tSUCCESSFUL\tAGE\tID\tSTATUS"),
        "{wide}"
    );
    for line in [
        "get quota -o wide",
        "describe -o wide",
        "describe -o name",
        "why -o name",
        "wait -o wide",
        "version -o name",
        "prune --all -o wide",
        "rerun - -o wide",
        "whoami -o wide",
        "config view -o name",
        "du /pfs/dc1/home/me -o wide",
        "pfs uploads -o wide",
        "submit -o wide -entry ./train /pfs/dc1/home/me/pkg",
    ] {
        let outcome = shell.line(line);
        assert_eq!(outcome.code, 2, "{line}: {}", outcome.out);
        let format = line.split("-o ").nth(1).unwrap().split(' ').next().unwrap();
        assert!(outcome.err.contains(format), "{line}: {}", outcome.err);
    }
}

#[test]
fn pages_follow_each_other_and_numbers_continue() {
    let server = crate::scripted::server_with(|line| {
        let jobs = serde_json::json!([
            crate::scripted::job("a", "Running"),
            crate::scripted::job("b", "Running")
        ]);
        let next = if line.contains("after=p2") {
            None
        } else {
            Some("p2")
        };
        line.starts_with("GET /api/v1/jobs?").then(|| {
            (
                200,
                serde_json::json!({ "code": 200, "msg": jobs, "next": next }).to_string(),
            )
        })
    });
    let shell = Shell::at(&server.endpoint);
    let rows: Vec<String> = shell
        .line("get jobs -a")
        .out
        .lines()
        .map(|row| row.chars().take(3).collect())
        .collect();
    assert_eq!(rows, ["NUM", "0\ta", "1\tb", "2\ta", "3\tb"]);
    assert_eq!(shell.line("get jobs -limit 2").out.lines().count(), 3);
}
