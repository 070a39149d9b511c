//! Programs that train on a cluster: with our parameter servers, and with the frameworks' own collectives.

use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::TestEnvironment;
use e2e::cluster::{Cluster, ClusterServer};

/// `examples/ctr` with fewer samples.
const SMALL: &str = "import sys, prepare, train
prepare.FILES, prepare.SAMPLES_PER_FILE, prepare.TEST_SAMPLES = 2, 20_000, 4_000
train.CLOSE_ENOUGH = 0.1
(prepare if sys.argv[1] == 'prepare' else train).main(sys.argv[2])
";

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn two_trainers_learn_from_clicks_that_an_earlier_job_prepared() {
    let cluster = Cluster::here();
    let image = cluster.training_image();
    let mut env = TestEnvironment::new();
    let server = ClusterServer::start(&mut env, &cluster, "");
    server.configure(&env, 0);
    let package = env
        .package("ctr")
        .file("small.py", SMALL)
        .file("model.py", include_str!("../../../../examples/ctr/model.py"))
        .file("prepare.py", include_str!("../../../../examples/ctr/prepare.py"))
        .file("train.py", include_str!("../../../../examples/ctr/train.py"));
    let clicks = format!("/pfs/cloud/home/{}/clicks", server.namespace(0));
    let sizes = ["-cpu", "200m", "-memory", "256Mi", "-image", &image];
    let prepare = format!("python small.py prepare {clicks}");
    env.submit("clicks", &package, &[&["-entry", &prepare], &sizes[..]].concat());
    env.wait_for_status("clicks", "Succeeded");

    let train = format!("python small.py train {clicks}");
    let team = "-parallelism|2|-pservers|2|-pscpu|100m|-psmemory|128Mi|-entry".split('|');
    let words: Vec<&str> = team.chain([train.as_str()]).chain(sizes).collect();
    env.submit("ctr", &package, &words);
    env.wait_for_status("ctr", "Succeeded");
    let logs = env.logs("ctr").join("\n");
    assert!(logs.contains("saved output/pass-00000"), "{logs}");
    env.paddlectl(&["kill", "-rm", "ctr"]).ok();
    server.wait_until_empty(0);
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Puts PaddlePaddle into the folder that all users read, and returns the path that workers see. Its files are links: an image would hold a gigabyte, on every node.
fn install_paddle(server: &ClusterServer) -> &'static str {
    let script = root().join("crates/py/tests/environment.sh");
    let made = Command::new("bash").arg(script).arg("paddle").output();
    let made = made.expect("bash can be run");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let environment = PathBuf::from(String::from_utf8_lossy(&made.stdout).trim_end());
    let packages = environment.join("lib/python3.11/site-packages");
    assert!(packages.is_dir(), "the image has Python 3.11");
    let public = server.path("storage").join("public");
    let script = r#"mkdir -p "$1" && { cp -rl "$0" "$1/site-packages" || cp -r "$0" "$1/site-packages"; }"#;
    let copied = Command::new("sh")
        .args(["-c", script])
        .arg(&packages)
        .arg(&public)
        .output()
        .expect("a shell can be run");
    assert!(
        copied.status.success(),
        "{}",
        String::from_utf8_lossy(&copied.stderr)
    );
    "PYTHONPATH=/pfs/cloud/public/site-packages"
}

/// Trains an example with two trainers in pods, and checks that both learned.
fn train(env: &TestEnvironment, example: &str, flags: &[&str]) {
    let package = root().join("examples").join(example);
    let job = example.replace('_', "-");
    let sizes = [
        "-jobname",
        &job,
        "-parallelism",
        "2",
        "-cpu",
        "200m",
        "-memory",
        "2Gi",
    ];
    let pservers = [
        "-pscpu",
        "100m",
        "-psmemory",
        "128Mi",
        "-entry",
        "python3 train.py",
    ];
    let words = [
        &["submit"],
        &sizes[..],
        &pservers,
        flags,
        &[package.to_str().expect("the checkout has a plain path")],
    ]
    .concat();
    env.paddlectl(&words).ok();
    let ended = env.paddlectl(&["wait", &job]);
    let log = env.paddlectl(&["logs", "--raw", &job]).ok().stdout;
    assert_eq!(env.status(&job), "Succeeded", "{ended:?}\n{log}");
    let learned = log
        .lines()
        .filter(|line| line.contains("held-out loss 0.0"))
        .count();
    assert_eq!(learned, 2, "{log}");
    env.paddlectl(&["kill", "-rm", &job]).ok();
}

#[test]
#[ignore = "needs a Kubernetes cluster, PaddlePaddle and Python 3.11"]
fn paddle_trains_with_our_parameter_servers_and_with_its_own_collectives() {
    let cluster = Cluster::here();
    let image = cluster.training_image();
    let mut env = TestEnvironment::new();
    let server = ClusterServer::start(&mut env, &cluster, "");
    let python_path = install_paddle(&server);
    server.configure(&env, 0);
    let shared = ["-image", &image, "-env", python_path];
    train(&env, "paddle3_ps", &[&shared[..], &["-pservers", "2"]].concat());
    train(
        &env,
        "paddle3_collective",
        &[&shared[..], &["-pservers", "0"]].concat(),
    );
    server.wait_until_empty(0);
}

#[test]
#[ignore = "needs a Kubernetes cluster and torch"]
fn torch_trains_in_pods_with_its_own_collectives() {
    let cluster = Cluster::here();
    let image = cluster.torch_image();
    let mut env = TestEnvironment::new();
    let server = ClusterServer::start(&mut env, &cluster, "");
    server.configure(&env, 0);
    train(&env, "torch_ddp", &["-image", &image, "-pservers", "0"]);
    server.wait_until_empty(0);
}
