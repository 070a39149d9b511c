//! The server as a pod of the cluster, installed from the committed manifests and with no other rights than theirs.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};

use e2e::cluster::Cluster;
use e2e::{TestEnvironment, wait_until};

/// Who the manifests' server runs as.
const UID: u32 = 1000;
const PASSWORD: &str = "correct horse battery staple";

/// An installed server; uninstalled when dropped.
struct Installed {
    cluster: Cluster,
    folder: tempfile::TempDir,
    /// Of the server; also the name of its ClusterRole.
    namespace: String,
    user: String,
}

impl Installed {
    fn new(cluster: &Cluster, image: &str) -> Installed {
        let folder = tempfile::Builder::new()
            .prefix("paddlecloud-installed-")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()
            .expect("a temporary folder");
        let name = folder.path().file_name().and_then(|name| name.to_str());
        let mark = name
            .and_then(|name| name.rsplit('-').next())
            .expect("a plain name");
        let mark = mark.to_ascii_lowercase();
        let installed = Installed {
            cluster: cluster.clone(),
            namespace: format!("pc-{mark}"),
            user: format!("eve{mark}"),
            folder,
        };
        installed.apply(image);
        installed
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// The committed manifests, with the names and folders of this test and one user.
    fn apply(&self, image: &str) {
        for name in ["data", "storage"] {
            fs::create_dir(self.path(name)).expect("a folder in a fresh one");
            chown(self.path(name), Some(UID), Some(UID)).expect("cluster tests run as root");
        }
        let password = self.path("data/password");
        fs::write(&password, PASSWORD).expect("a file in the test's own folder");
        chown(&password, Some(UID), Some(UID)).expect("cluster tests run as root");
        fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).expect("it is ours");
        let users = format!(
            "users: [{{name: {}, password_file: /var/lib/paddlecloud/password}}]\n    engine:",
            self.user
        );
        let (storage, data) = (self.path("storage"), self.path("data"));
        let mut text = include_str!("../../../../deploy/kubernetes/paddlecloud.yaml").to_owned();
        for (from, to) in [
            ("paddlecloud-paddlecloud", self.namespace.as_str()),
            (
                "namespace: paddlecloud",
                &format!("namespace: {}", self.namespace),
            ),
            (
                "paddlecloud.paddlecloud.svc",
                &format!("paddlecloud.{}.svc", self.namespace),
            ),
            ("paddlecloud/server:0.1.0", image),
            ("paddlecloud/launcher:0.1.0", self.cluster.launcher_image()),
            ("python:3.12-slim", self.cluster.shell_image()),
            ("/srv/paddlecloud", &storage),
            ("path: /var/lib/paddlecloud,", &format!("path: {data},")),
            ("engine:", &users),
        ] {
            assert!(text.contains(from), "no {from:?} in the manifests");
            text = text.replace(from, to);
        }
        let file = self.path("install.yaml");
        fs::write(&file, text).expect("a file in the test's own folder");
        self.cluster.kubectl(&["create", "namespace", &self.namespace]);
        self.cluster.kubectl(&["apply", "-f", &file]);
    }

    fn wait_until_ready(&self) {
        wait_until("the server must be ready", || {
            let deployments = self.cluster.objects("deployments", &self.namespace);
            (deployments.first()?["status"]["readyReplicas"] == 1).then_some(())
        });
    }

    fn configure(&self, env: &TestEnvironment) {
        let services = self.cluster.objects("services", &self.namespace);
        let address = services[0]["spec"]["clusterIP"].as_str().expect("it has one");
        // A Service leads to a pod a moment after the pod is ready.
        wait_until("the Service must lead to the server", || {
            std::net::TcpStream::connect((address, 8443))
                .is_ok()
                .then_some(())
        });
        let user = &self.user;
        env.configure(&format!(
            "datacenters:\n- {{name: dc1, username: {user}, password: {PASSWORD}, endpoint: \"http://{address}:8443\"}}\n\
             current-datacenter: dc1\n"
        ));
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let (namespace, user) = (self.namespace.as_str(), self.user.as_str());
        let gone = ["--ignore-not-found", "--wait=false"];
        for words in [
            ["delete", "clusterrole,clusterrolebinding", namespace],
            ["delete", "namespace", namespace],
            ["delete", "namespace", user],
        ] {
            self.cluster.kubectl(&[&words[..], &gone].concat());
        }
    }
}

#[test]
fn an_installed_server_runs_jobs_and_is_replaced_under_a_running_one() {
    let Some(cluster) = Cluster::here() else { return };
    let Some(image) = cluster.server_image() else {
        return;
    };
    let installed = Installed::new(&cluster, &image);
    let env = TestEnvironment::new();
    installed.wait_until_ready();
    installed.configure(&env);
    let package = env.package("steady").file(
        "train.sh",
        "mkdir -p output\necho begun\nuntil [ -e output/gate ]; do sleep 0.1; done\necho ended\n",
    );
    env.submit(
        "steady",
        &package,
        &[
            "-entry",
            "sh train.sh",
            "-cpu",
            "100m",
            "-memory",
            "64Mi",
            "-pservers",
            "0",
        ],
    );
    let said = |line: &str| {
        let logs = env.logs("steady");
        logs.iter().any(|found| found.ends_with(line)).then_some(())
    };
    wait_until("the trainer must begin", || said("begun"));
    let objects = env.paddlectl(&["describe", "--objects", "steady"]).ok().stdout;
    assert!(
        objects.contains(&format!("Pod\t{}\tsteady-trainer-", installed.user)),
        "{objects}"
    );

    let server = ["-n", &installed.namespace, "deployment/paddlecloud"];
    cluster.kubectl(&[&["rollout", "restart"], &server[..]].concat());
    cluster.kubectl(&[&["rollout", "status", "--timeout=120s"], &server[..]].concat());
    let id = env.describe("steady")["job"]["id"].as_str().unwrap().to_owned();
    let run = format!(
        "storage/home/{}/.paddlecloud/runs/{id}/steady/output/gate",
        installed.user
    );
    fs::write(installed.path(&run), "").unwrap();
    env.wait_for_status("steady", "Succeeded");
    said("ended").expect("its log is complete");
}

#[test]
fn a_job_outlives_the_uninstalled_server_until_its_owner_is_deleted() {
    let Some(cluster) = Cluster::here() else { return };
    let Some(image) = cluster.server_image() else {
        return;
    };
    let installed = Installed::new(&cluster, &image);
    let env = TestEnvironment::new();
    installed.wait_until_ready();
    installed.configure(&env);
    let package = env.package("orphan").file(
        "train.sh",
        "mkdir -p output\necho begun\nuntil [ -e output/gate ]; do sleep 0.1; done\necho > output/seen\nsleep 1000\n",
    );
    let small = ["-cpu", "100m", "-memory", "64Mi", "-pservers", "0"];
    env.submit(
        "orphan",
        &package,
        &[&["-entry", "sh train.sh"], &small[..]].concat(),
    );
    wait_until("the trainer must begin", || {
        let logs = env.logs("orphan");
        logs.iter().any(|line| line.ends_with("begun")).then_some(())
    });
    let id = env.describe("orphan")["job"]["id"].as_str().unwrap().to_owned();

    cluster.kubectl(&["delete", "-f", &installed.path("install.yaml"), "--timeout=120s"]);
    let output = installed.path(&format!(
        "storage/home/{}/.paddlecloud/runs/{id}/orphan/output",
        installed.user
    ));
    fs::write(format!("{output}/gate"), "").unwrap();
    wait_until("the trainer must go on without a server", || {
        fs::exists(format!("{output}/seen")).unwrap().then_some(())
    });
    let managed = "app.kubernetes.io/managed-by=paddlecloud";
    cluster.kubectl(&["delete", "secret", "-n", &installed.user, "-l", managed]);
    wait_until("nothing of the run may be left", || {
        cluster.objects("pods", &installed.user).is_empty().then_some(())
    });
}
