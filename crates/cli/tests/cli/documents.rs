//! Every command line of the five documents, typed as printed there (names in brackets apart).

use crate::scripted::server;
use crate::shell::Shell;

/// The lines about files are typed at a real server, in the end-to-end tests.
const NOW: &[&str] = &[
    // the submit guide
    "get jobs",
    "get workers paddle-cluster-job",
    "logs paddle-cluster-job",
    "kill paddle-cluster-job",
    "flags",
    "commands",
    "help",
    "help submit",
    // the Chinese submit guide
    "logs -w paddle-cluster-job-trainer-3s4nz paddle-cluster-job",
    // the client design
    "jobs",
    "logs",
    "logs -n 10 paddle-cluster-job",
    "kill -rm paddle-cluster-job",
    "get -a jobs",
    "get jobs -a",
    "get quota",
    "registry -username u -password p -server registry.example.org -name mine",
    "get registry",
    "delete registry",
    "get workers",
];

#[test]
fn the_lines_of_this_version_work() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    for line in NOW {
        let outcome = shell.line(line);
        assert_eq!(outcome.code, 0, "{line}: {}", outcome.err);
    }
}

#[test]
fn a_command_of_a_later_version_is_recognised_but_not_listed() {
    let shell = Shell::new();
    let lists_top = |line: &str| {
        shell
            .line(line)
            .out
            .lines()
            .any(|line| line.trim_start().starts_with("top"))
    };
    assert!(!lists_top("help") && !lists_top("commands"));
    assert!(shell.line("top --help").out.contains("later version"));
    assert!(shell.line("top").err.contains("`top` is not available yet"));
}

#[test]
fn every_submit_of_the_documents_sends_what_it_says() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    let package = shell.home().join("job_word_emb");
    shell.write("job_word_emb/modules/train.py", "print()");
    let package = package.to_str().unwrap();
    let s0 = "submit -jobname my-paddlecloud-job -cpu 1 -gpu 0 -memory 1Gi -parallelism 10 -pscpu 1 -pservers 3 \
              -psmemory 1Gi -passes 1 -entry";
    let mut v2: Vec<&str> = s0.split_whitespace().collect();
    v2.extend(["python trainer_config.py", "/pfs/dc1/home/me/ctr_demo_package"]);
    assert_eq!(shell.run(&v2).code, 0);
    let v1 = [
        "submit",
        package,
        "-p",
        "4",
        "-c",
        "2",
        "-m",
        "10Gi",
        "-t",
        "modules/train.py",
    ];
    assert_eq!(shell.run(&v1).code, 0);
    assert_eq!(
        shell
            .line("submit -image me/runtime -registry mine -jobname x")
            .code,
        0
    );

    let sent: Vec<serde_json::Value> = server
        .bodies("POST /api/v1/jobs")
        .iter()
        .map(|body| serde_json::from_slice(body).unwrap())
        .collect();
    assert_eq!(
        sent[0],
        serde_json::json!({
            "name": "my-paddlecloud-job", "job_package": "/pfs/dc1/home/me/ctr_demo_package", "parallelism": 10,
            "cpu": "1", "gpu": 0, "memory": "1Gi", "pservers": 3, "pscpu": "1", "psmemory": "1Gi", "passes": 1,
            "entry": "python trainer_config.py"
        })
    );
    let mut second = sent[1].clone();
    assert!(second["package_id"].as_str().is_some_and(|id| id.len() == 64));
    second["package_id"] = "ID".into();
    let list = second.as_object_mut().unwrap().remove("package_list").unwrap();
    assert_eq!(list["entries"][1]["path"], "modules/train.py");
    assert_eq!(
        second,
        serde_json::json!({
            "package_id": "ID", "package_name": "job_word_emb", "parallelism": 4, "cpu": "2", "memory": "10Gi",
            "topology": "modules/train.py"
        })
    );
    assert_eq!(
        sent[2],
        serde_json::json!({ "name": "x", "image": "me/runtime", "registry": "mine" })
    );
}
