//! Programs that train on a cluster with our parameter servers.

use e2e::TestEnvironment;
use e2e::cluster::{Cluster, ClusterServer};

/// `examples/ctr` with fewer samples.
const SMALL: &str = "import sys, prepare, train
prepare.FILES, prepare.SAMPLES_PER_FILE, prepare.TEST_SAMPLES = 2, 20_000, 4_000
train.CLOSE_ENOUGH = 0.1
(prepare if sys.argv[1] == 'prepare' else train).main(sys.argv[2])
";

#[test]
fn two_trainers_learn_from_clicks_that_an_earlier_job_prepared() {
    let Some(cluster) = Cluster::here() else { return };
    let Some(image) = cluster.training_image() else {
        return;
    };
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
