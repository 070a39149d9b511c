//! `submit --dry-run --manifests`: a job for `kubectl apply`, printed by any server. The cluster's tests run them.

use e2e::TestEnvironment;

const PRINT: [&str; 5] = ["submit", "--dry-run", "--manifests", "-entry", "python train.py"];

fn print(env: &TestEnvironment, more: &[&str]) -> e2e::Ran {
    let words: Vec<&str> = PRINT.iter().chain(more).copied().collect();
    env.paddlectl(&words)
}

#[test]
fn an_image_with_its_program_becomes_a_service_and_two_jobs() {
    let env = TestEnvironment::new();
    // More than any machine of tests has: it is not this server that runs the job.
    let flags = [
        "-image",
        "team/trainer:1",
        "-jobname",
        "demo",
        "-p",
        "900",
        "-pservers",
        "2",
    ];
    let printed = print(&env, &flags).ok().stdout;
    let documents: Vec<&str> = printed.split("---\n").skip(1).collect();
    assert_eq!(documents.len(), 3, "{printed}");
    for (document, words) in documents.iter().zip([
        ["kind: Service\n", "name: demo\n", "clusterIP: None\n"],
        ["kind: Job\n", "name: demo-pserver\n", "completions: 2\n"],
        ["kind: Job\n", "name: demo-trainer\n", "completions: 900\n"],
    ]) {
        for word in words {
            assert!(document.contains(word), "no {word:?} in\n{document}");
        }
    }
    assert!(!printed.contains("secret"), "{printed}");
    let mut flags = flags.to_vec();
    flags.extend(["-o", "json"]);
    let list = print(&env, &flags).ok().json();
    assert_eq!(list["kind"], "List");
    assert_eq!(list["items"][2]["spec"]["completionMode"], "Indexed");
}

#[test]
fn manifests_with_local_folders_or_secrets_are_refused() {
    let env = TestEnvironment::new();
    let package = env.package("demo").file("train.py", "print()");
    print(&env, &[package.arg()])
        .refused(1)
        .says("a manifest cannot contain the files of a local folder");
    print(&env, &["-image", "team/trainer:1", "-secret", "api-key"])
        .refused(1)
        .says("manifests contain no secret, so `api-key` cannot be in them");
    let words = ["submit", "--manifests", "-entry", "true", package.arg()];
    env.paddlectl(&words).refused(2).says("--dry-run");
    let nothing = env.paddlectl(&["get", "jobs", "-a", "-o", "json"]).ok().json();
    assert_eq!(nothing.as_array().map(Vec::len), Some(0), "{nothing}");
}
