//! The two `submit` lines of the original guide, as typed: ten trainers and three parameter servers, with the package on the cluster.

use std::path::Path;
use std::process::Command;

use e2e::TestEnvironment;

use crate::examples::root;
use crate::legacy::{LIMIT, activated, environment_with_paddle};

/// The flags of the guide, in its order.
const AS_TYPED: &str = "submit -jobname my-paddlecloud-job -cpu 1 -gpu 0 -memory 1Gi -parallelism 10 -pscpu 1 -pservers 3 -psmemory 1Gi";

/// What a v1 package adds to its configuration: every trainer lists its own files, as the guide shows.
const OWN_LISTS: &str = "\
import lists
lists.TRAIN_FILE_PATTERN = lists.HOME + '/user001_space/train-*'
lists.TEST_FILE_PATTERN = lists.HOME + '/user001_space/test-*'
lists.gen_train_list(lists.HOME)
";

fn copy(from: &str, to: &Path) {
    std::fs::copy(root().join("examples").join(from), to).unwrap();
}

fn prepare(example: &str, folder: &Path, words: &[&str]) {
    let python = environment_with_paddle().join("bin/python");
    let script = root().join("examples").join(example).join("prepare.py");
    let made = Command::new(python)
        .arg(script)
        .args(words)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// The user's home on the cluster.
fn home(env: &TestEnvironment) -> String {
    let listed = env.paddlectl(&["ls", "/pfs/local/home"]).ok().stdout;
    format!("/pfs/local/home/{}", listed.split_whitespace().last().unwrap())
}

/// Submits with the guide's line and returns what the workers printed.
fn train(env: &TestEnvironment, more: &[&str], package: &str) -> String {
    let entry = ["-entry", "python trainer_config.py"];
    let words: Vec<&str> = AS_TYPED.split(' ').collect();
    env.paddlectl(&[&words, more, &entry, &[package]].concat()).ok();
    let ended = env.start(&["wait", "my-paddlecloud-job"]).end_within(LIMIT);
    let log = env
        .paddlectl(&["logs", "--raw", "my-paddlecloud-job"])
        .ok()
        .stdout;
    assert_eq!(env.status("my-paddlecloud-job"), "Succeeded", "{ended:?}\n{log}");
    log
}

fn count(log: &str, text: &str) -> usize {
    log.lines().filter(|line| line.contains(text)).count()
}

#[test]
#[ignore = "needs PaddlePaddle"]
fn the_guides_v1_line_trains() {
    let env = activated(TestEnvironment::alone);
    let (package, data) = (env.folder("ctr_demo_package"), env.folder("user001_space"));
    prepare("v1/ctr", &data, &[".", "10"]);
    copy("v1/ctr/dataprovider.py", &package.join("dataprovider.py"));
    copy("gen_train_list/train.py", &package.join("lists.py"));
    let config = std::fs::read_to_string(root().join("examples/v1/ctr/trainer_config.py")).unwrap();
    let config = config
        .replace("train.list", "/train.list")
        .replace("test.list", "/test.list");
    std::fs::write(package.join("trainer_config.py"), format!("{OWN_LISTS}{config}")).unwrap();
    let home = home(&env);
    for folder in [&package, &data] {
        env.paddlectl(&["cp", "-r", folder.to_str().unwrap(), &home]).ok();
    }

    let log = train(&env, &[], &format!("{home}/ctr_demo_package"));

    assert_eq!(count(&log, "num_gradient_servers: 10, "), 10, "{log}");
    assert_eq!(count(&log, "version:  v1"), 10, "{log}");
    for server in 0..3 {
        for port in [7164, 7165] {
            let ends = |line: &&str| {
                line.contains(&format!("] pserver {server} ")) && line.ends_with(&format!(":{port}"))
            };
            assert_eq!(log.lines().filter(ends).count(), 10, "{log}");
        }
    }
    // 1,500 lines in each of ten files, in batches of 50.
    assert_eq!(
        count(&log, " Pass=0 Batch=30 samples=1500 AvgCost=0."),
        10,
        "{log}"
    );
}

#[test]
#[ignore = "needs PaddlePaddle"]
fn the_guides_v2_line_trains() {
    let env = activated(TestEnvironment::alone);
    let package = env.folder("ctr_demo_package");
    copy("v2/fit_a_line/train.py", &package.join("trainer_config.py"));
    let home = home(&env);
    env.paddlectl(&["cp", "-r", package.to_str().unwrap(), &home])
        .ok();
    let public = env.home().join(".paddle/local/storage/public/dataset");
    std::fs::create_dir_all(&public).unwrap();
    prepare("v2/fit_a_line", &public, &["."]);

    let log = train(&env, &["-passes", "1"], &format!("{home}/ctr_demo_package"));

    assert_eq!(count(&log, "pass 0 batch 0 cost "), 10, "{log}");
    assert_eq!(count(&log, "] pserver 2 "), 10, "{log}");
}
