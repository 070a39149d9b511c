//! Names and runs: a name can be reused immediately, every run is kept.

use e2e::{Package, TestEnvironment};

fn waiting(env: &TestEnvironment) -> Package {
    env.package("waiting")
        .file("train.sh", "echo run $1\nexec tail -f /dev/null\n")
}

fn id(job: &serde_json::Value) -> String {
    job["id"].as_str().expect("a job has an id").to_owned()
}

#[test]
fn a_killed_jobs_name_is_free_at_once_and_both_runs_are_kept() {
    let env = TestEnvironment::new();
    let package = waiting(&env);
    env.submit("twice", &package, &["-entry", "sh train.sh first"]);
    env.start(&["logs", "-f", "twice"]).wait_for_line("run first");
    env.paddlectl(&["kill", "twice"]).ok();
    env.submit("twice", &package, &["-entry", "sh train.sh second"]);
    env.start(&["logs", "-f", "twice"]).wait_for_line("run second");

    let runs: Vec<_> = env
        .jobs()
        .into_iter()
        .filter(|job| job["name"] == "twice")
        .collect();
    assert_eq!(runs.len(), 2);
    assert_ne!(id(&runs[0]), id(&runs[1]));
    let first = runs
        .iter()
        .find(|job| job["status"] != "Running")
        .expect("one run was killed");
    let log = env.paddlectl(&["logs", &id(first)]).ok().stdout;
    assert!(
        log.contains("run first") && !log.contains("run second"),
        "an id names one run:\n{log}"
    );
}

#[test]
fn a_name_that_is_taken_says_so_and_offers_a_free_one() {
    let env = TestEnvironment::new();
    let package = waiting(&env);
    env.submit("taken", &package, &["-entry", "sh train.sh"]);
    let args = [
        "submit",
        "-jobname",
        "taken",
        "-cpu",
        "20m",
        "-pservers",
        "0",
        "-entry",
        "sh train.sh",
        package.arg(),
    ];
    env.paddlectl(&args).refused(1).says("taken").says("hint: ");
    assert_eq!(env.jobs().len(), 1);
}

#[test]
fn last_stands_for_the_latest_job() {
    let env = TestEnvironment::new();
    let package = env.package("short").file("train.sh", "echo hello from $1\n");
    env.submit("one", &package, &["-entry", "sh train.sh one", "-f"]);
    env.submit("two", &package, &["-entry", "sh train.sh two", "-f"]);
    env.paddlectl(&["logs", "last"]).ok().prints("hello from two");
    env.paddlectl(&["logs"]).ok().prints("hello from two");
}

#[test]
fn removing_a_killed_job_takes_it_out_of_the_history() {
    let env = TestEnvironment::new();
    let package = waiting(&env);
    env.submit("gone", &package, &["-entry", "sh train.sh"]);
    env.start(&["logs", "-f", "gone"]).wait_for_line("run");
    env.paddlectl(&["kill", "-rm", "gone"]).ok();
    e2e::wait_until("a removed job must leave the history", || {
        env.jobs().is_empty().then_some(())
    });
}

#[test]
fn the_files_of_an_ended_run_can_be_removed_without_harm_to_the_next_run() {
    let env = TestEnvironment::new();
    let package = waiting(&env);
    env.submit("left", &package, &["-entry", "sh train.sh 1"]);
    env.start(&["logs", "-f", "left"]).wait_for_line("run 1");
    let home = env.paddlectl(&["whoami", "-o", "json"]).ok().json();
    let home = home["home"].as_str().expect("a home").to_owned();
    let run = |job: &serde_json::Value| format!("{home}/.paddlecloud/runs/{}", id(job));
    let first = run(&env.jobs()[0]);
    env.paddlectl(&["rm", "-r", &first])
        .refused(1)
        .says("belongs to a job that has not ended");
    env.paddlectl(&["rm", "-r", &format!("{home}/.paddlecloud/packages")])
        .refused(1)
        .says("managed by the server");
    env.paddlectl(&["kill", "left"]).ok();
    env.paddlectl(&["wait", "left"]).says("left Killed");
    env.paddlectl(&["rm", "-r", &first]).ok();
    env.paddlectl(&["ls", &first]).refused(1).says("does not exist");

    env.submit("left", &package, &["-entry", "sh -c 'echo 2 > output/two'", "-f"]);
    let output = format!("{home}/waiting/output/two");
    assert_eq!(env.paddlectl(&["cat", &output]).ok().stdout, "2\n");
}

#[test]
fn a_rerun_is_a_new_run_of_the_same_package() {
    let env = TestEnvironment::new();
    let package = env
        .package("short")
        .file("train.sh", "cat data\n")
        .file("data", "as it was\n");
    let flags = ["-entry", "sh train.sh", "-comment", "lr 0.1, first try", "-f"];
    env.submit("again", &package, &flags);
    let package = package.file("data", "changed since\n");
    env.paddlectl(&["rerun", "again"]).ok();
    env.paddlectl(&["wait", "again"]).ok();
    assert_eq!(env.jobs().len(), 2);
    env.paddlectl(&["describe", "again"])
        .ok()
        .prints("comment      lr 0.1, first try\n");
    env.paddlectl(&["logs", "again"]).ok().prints("as it was");
    env.submit("again", &package, &["-entry", "sh train.sh", "-f"]);
    env.paddlectl(&["logs", "again"]).ok().prints("changed since");
}

#[test]
fn the_table_has_the_columns_of_the_documents() {
    let env = TestEnvironment::new();
    let package = env.package("short").file("train.sh", "true\n");
    env.submit("table", &package, &["-entry", "sh train.sh", "-f"]);
    let table = env.paddlectl(&["get", "jobs", "-a"]).ok().stdout;
    let mut lines = table.lines();
    assert_eq!(
        lines.next(),
        Some("NUM\tNAME\tSUCC\tFAIL\tSTART\tCOMP\tACTIVE\tID\tSTATUS")
    );
    let row: Vec<&str> = lines.next().expect("one job").split('\t').collect();
    assert_eq!(row[1..4], ["table", "1", "<nil>"]);
    assert_eq!((row[6], row[8]), ("<nil>", "Succeeded"));
    assert!(
        row[4].ends_with('Z') && row[5].ends_with('Z'),
        "times are UTC: {row:?}"
    );
}
