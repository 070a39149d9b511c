//! The Kubernetes engine passes the suite of its port on a real cluster, where there is one.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use paddlecloud_accounts::authority::Authority;
use paddlecloud_core::job::{Job, WorkerKey};
use paddlecloud_core::names::{JobId, UserName};
use paddlecloud_core::ports::{Assignment, AttemptKey, LogStore, Piece, RegistryLogin, RunPreparer};
use paddlecloud_core::quantity::Bytes;
use paddlecloud_core::scheduler::{Placement as Seats, Quota, Seat};
use paddlecloud_core::spec::SecretRef;
use paddlecloud_core::testing::engine_suite::{Bench, Program, engine_suite};
use paddlecloud_core::testing::samples;
use paddlecloud_files::homes::Storage;
use paddlecloud_files::runs::HomeRuns;
use paddlecloud_k8s::settings::{Limits, Namespaces, Placement, PodIdentity, PodSettings, Settings, Volume};
use paddlecloud_k8s::{Accounts, KubernetesEngine, LinkSettings, Options, Tenancy};
use paddlecloud_server::logs::SegmentLogs;
use paddlecloud_worker::link::SERVER_NAME;
use paddlecloud_worker::protocol::LogLimits;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Longer than the whole suite takes on a slow machine.
const LIMIT: Duration = Duration::from_secs(900);
const UID: u32 = 1000;
/// The namespace of the samples' user.
const NAMESPACE: &str = "ada";
/// A package that is there when its run is prepared, and gone when a worker starts.
const MISSING: &str = "nothing";

struct ClusterBench {
    folder: tempfile::TempDir,
    kubeconfig: PathBuf,
    address: String,
    launcher_image: String,
    shell_image: String,
    port: u16,
    logs: SegmentLogs,
}

impl ClusterBench {
    fn here() -> ClusterBench {
        let variable = |name: &str| std::env::var(name).expect("run `cargo xtask test --with cluster`");
        let address = variable("PADDLECLOUD_TEST_CLUSTER");
        let folder = tempfile::Builder::new()
            .prefix("paddlecloud-cluster-")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()
            .unwrap();
        let probe = std::net::TcpListener::bind((address.as_str(), 0)).unwrap();
        let data = folder.path().join("data");
        let bench = ClusterBench {
            logs: SegmentLogs::open(&data, LogLimits::default()).unwrap(),
            port: probe.local_addr().unwrap().port(),
            kubeconfig: variable("KUBECONFIG").into(),
            launcher_image: variable("PADDLECLOUD_TEST_LAUNCHER_IMAGE"),
            shell_image: variable("PADDLECLOUD_TEST_SHELL_IMAGE"),
            address,
            folder,
        };
        fs::create_dir_all(bench.storage_folder().join("home/ada/package")).unwrap();
        bench
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn storage_folder(&self) -> PathBuf {
        self.folder.path().join("storage")
    }

    fn storage(&self) -> Storage {
        Storage::open(&self.storage_folder(), "cloud".parse().unwrap()).unwrap()
    }

    /// The port may be held for a moment by an engine that was just dropped.
    async fn listen(&self) -> TcpListener {
        loop {
            match TcpListener::bind((self.address.as_str(), self.port)).await {
                Ok(listener) => return listener,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }

    /// Everything below the homes becomes the pods' own.
    fn give_away(&self) {
        give_away(&self.storage_folder());
    }
}

fn give_away(path: &std::path::Path) {
    std::os::unix::fs::lchown(path, Some(UID), Some(UID)).unwrap();
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path).unwrap() {
            give_away(&entry.unwrap().path());
        }
    }
}

/// Everybody has the namespace of their name, and no limits.
struct OneAccount;

impl Accounts for OneAccount {
    fn tenancy(&self, user: &UserName) -> Tenancy {
        Tenancy {
            namespace: user.namespace(),
            quota: Quota::default(),
        }
    }

    fn all(&self) -> Vec<Tenancy> {
        Vec::new()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
}

impl Bench for ClusterBench {
    type Engine = KubernetesEngine;

    async fn engine(&self) -> KubernetesEngine {
        let authority = Authority::open(&self.data()).unwrap();
        let limits = LogLimits::default();
        let options = Options {
            settings: self.settings(Namespaces::PerUser),
            kubeconfig: Some(self.kubeconfig.clone()),
            data: self.data(),
            storage: self.storage_folder(),
            datacenter: "cloud".parse().unwrap(),
            log_limits: limits,
            log_copy: true,
            logs: self.logs(),
            link: LinkSettings {
                listener: self.listen().await,
                tls: authority.server_config(SERVER_NAME).unwrap(),
                certificate: authority.certificate().to_owned(),
                key: [7; 32],
            },
            limits: Limits {
                seat: Duration::from_secs(5),
                ..Limits::usual(&Placement::Pinned)
            },
            accounts: Arc::new(OneAccount),
        };
        KubernetesEngine::start(options).await.unwrap()
    }

    fn job(&self, _number: u32, pserver: Option<Program>, trainer: Program) -> Arc<Job> {
        let mut spec = samples::spec("suite", u32::from(pserver.is_some()), 1);
        let folder = match trainer {
            Program::CannotStart => MISSING,
            _ => "package",
        };
        spec.package = Some(format!("/pfs/cloud/home/ada/{folder}"));
        spec.entry = command(trainer);
        spec.ps_entry = "paddle pserver".to_owned();
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        let mut job = samples::starting(1, spec);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let millis = u64::try_from(now.as_millis()).unwrap();
        job.id = JobId::new(millis, NUMBERS.fetch_add(1, Ordering::Relaxed));
        for worker in &mut job.workers {
            worker.name = paddlecloud_core::job::worker_name(&job.spec.name, &job.id, worker.key);
            worker.address = worker.name.clone();
        }
        job.placement = Some(Seats {
            workers: job
                .workers
                .iter()
                .map(|_| Seat {
                    node: "node1".into(),
                    gpus: Vec::new(),
                })
                .collect(),
        });
        Arc::new(job)
    }

    async fn assignment(&self, job: &Arc<Job>, worker: WorkerKey, attempt: u32) -> Assignment {
        let runs = HomeRuns::new(self.storage(), "always".into());
        let gone = self.storage_folder().join("home/ada").join(MISSING);
        fs::create_dir_all(&gone).unwrap();
        let run = runs.prepare(job, worker).unwrap();
        fs::remove_dir_all(&gone).unwrap();
        self.give_away();
        Assignment {
            job: Arc::clone(job),
            run: Arc::new(run),
            worker,
            attempt,
            secrets: Default::default(),
        }
    }

    fn logs(&self) -> Arc<dyn LogStore> {
        Arc::new(self.logs.clone())
    }

    /// A quota that lets no pod in.
    fn crowd(&self, is_full: bool) {
        match is_full {
            true => {
                self.kubectl(&["create", "quota", "full", "-n", NAMESPACE, "--hard=pods=0"]);
                let counted = [
                    "get",
                    "quota",
                    "full",
                    "-n",
                    NAMESPACE,
                    "-o",
                    "jsonpath={.status.hard}",
                ];
                wait_until("the quota must be in force", || {
                    self.kubectl(&counted).contains("pods")
                });
            }
            false => drop(self.kubectl(&["delete", "quota", "full", "-n", NAMESPACE])),
        }
    }

    /// Its program says when it is ready.
    async fn settled(&self, attempt: &AttemptKey) {
        self.wait_until_it_logs_ready(attempt).await;
    }
}

impl ClusterBench {
    fn settings(&self, namespaces: Namespaces) -> Settings {
        Settings {
            server: format!("suite-{}", self.port),
            link: format!("{}:{}", self.address, self.port),
            launcher_image: self.launcher_image.clone(),
            default_image: Some(self.shell_image.clone()),
            volume: Volume::HostPath(self.storage_folder().to_string_lossy().into_owned()),
            identity: PodIdentity { uid: UID, gid: UID },
            pods: PodSettings::default(),
            sub_path: String::new(),
            namespaces,
            namespace_role: None,
            placement: Placement::Pinned,
        }
    }

    fn kubectl(&self, args: &[&str]) -> String {
        let output = Command::new("kubectl")
            .args(args)
            .env("KUBECONFIG", &self.kubeconfig)
            .output()
            .expect("`kubectl` is in PATH where there is a cluster");
        let problem = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "kubectl {args:?}: {problem}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What the API server says to objects that are not kept.
    fn dry_run(&self, objects: &[serde_json::Value]) {
        use std::io::Write as _;
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let mut kubectl = Command::new("kubectl")
            .args(["create", "--dry-run=server", "--validate=strict", "-f", "-"])
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = kubectl.stdin.take().unwrap();
        stdin.write_all(list.to_string().as_bytes()).unwrap();
        drop(stdin);
        let output = kubectl.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        // Names with dots are warned of too: they are no host names, and pods have others.
        assert!(!said.contains("would violate"), "{said}");
    }

    async fn wait_until_it_logs_ready(&self, attempt: &AttemptKey) {
        let is_ready_line = |piece: &Piece| match piece {
            Piece::Chunk(chunk) => String::from_utf8_lossy(&chunk.bytes).contains("ready\n"),
            Piece::Gap(_) => false,
        };
        let ready = || {
            let pieces = self.logs.reader(attempt).read(0, 1 << 20).unwrap();
            pieces.iter().any(is_ready_line)
        };
        while !ready() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn command(program: Program) -> String {
    match program {
        Program::Prints => "for i in $(seq 20000); do echo $i; done".into(),
        Program::EndsWith(code) => format!("exit {code}"),
        Program::Serves => "echo ready; exec sleep 1000".into(),
        Program::IgnoresTerm => "trap '' TERM; echo ready; while true; do sleep 1; done".into(),
        Program::CannotStart => "true".into(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a Kubernetes cluster"]
async fn the_kubernetes_engine_passes_the_suite_of_its_port() {
    let bench = ClusterBench::here();
    chown(bench.folder.path(), Some(UID), Some(UID)).unwrap();
    let suite = tokio::time::timeout(LIMIT, engine_suite(&bench));
    suite.await.expect("the suite must end in time");
    bench.kubectl(&["delete", "namespace", NAMESPACE, "--wait=false"]);
}

/// A job whose every object is rendered: names with capitals and dots, GPUs, later attempts.
fn rendered(settings: &Settings, volume: Volume) -> Vec<serde_json::Value> {
    use paddlecloud_k8s::render::{self, Mount, PodPlan, RunSecrets, tenancy};
    let settings = Settings {
        volume,
        ..settings.clone()
    };
    let mut spec = samples::spec(&format!("My.Job-{}", "x".repeat(55)), 1, 2);
    spec.trainer.gpu = 2;
    spec.disk = Some(Bytes::mib(300));
    spec.secrets = vec![SecretRef::parse("api-key").unwrap()];
    spec.registry = Some("hub".into());
    let job = samples::starting(7, spec);
    let namespace = settings.namespaces.of(&job.user, || job.user.namespace());
    let variables = BTreeMap::from([("API_KEY".to_owned(), "canary".to_owned())]);
    let secrets = RunSecrets {
        certificate: "PEM",
        first_attempts: vec!["a".into(); job.workers.len()],
        variables: &variables,
    };
    let owner = render::owner_reference(&job, "0b0e0b0e-0b0e-0b0e-0b0e-0b0e0b0e0b0e");
    let mounts = [Mount {
        source: "home/ada".into(),
        target: "/pfs/cloud/home/ada".into(),
        read_only: false,
    }];
    let quota = Quota {
        gpu: Some(2),
        ..Quota::default()
    };
    let login = RegistryLogin {
        server: "registry.example.org".into(),
        username: "ada".into(),
        password: "canary".into(),
    };
    // A role that every cluster has.
    let grant = tenancy::Grant::new("view", "system:serviceaccount:ada:default");
    let tenant = tenancy::tenant(&settings, Some(&grant), &namespace, &quota);
    let pull = render::pull_secret(&settings, &job, &namespace, &login, owner.clone());
    let network = tenancy::run_network(&settings, &job, &namespace, owner.clone());
    let mut objects = vec![
        serde_json::to_value(render::owner(&settings, &job, &namespace, &secrets)).unwrap(),
        serde_json::to_value(pull).unwrap(),
        serde_json::to_value(tenant.binding).unwrap(),
        serde_json::to_value(tenant.quota).unwrap(),
        serde_json::to_value(tenant.limits).unwrap(),
        serde_json::to_value(tenant.network).unwrap(),
        serde_json::to_value(network).unwrap(),
    ];
    let avoid = ["node8".to_owned(), "node9".to_owned()];
    for (position, attempt) in [(0, 1), (1, 1), (2, 2)] {
        let plan = PodPlan {
            job: &job,
            namespace: &namespace,
            worker: &job.workers[position],
            attempt,
            node: (attempt == 1).then_some("node1"),
            avoid: &avoid,
            any_of: &[],
            mounts: &mounts,
            always_pull: true,
            owner: owner.clone(),
        };
        objects.push(serde_json::to_value(render::pod(&settings, &plan).unwrap()).unwrap());
        if attempt > 1 {
            let secret = render::later_secret(&settings, &plan, "PEM", "s");
            objects.push(serde_json::to_value(secret).unwrap());
        }
    }
    objects
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn everything_rendered_passes_a_strict_dry_run_under_its_level() {
    let bench = ClusterBench::here();
    let attributes = BTreeMap::from([("fsName".to_owned(), "train".to_owned())]);
    let csi = Volume::Csi {
        driver: "cephfs.csi.ceph.com".into(),
        attributes,
    };
    let nfs = Volume::Nfs {
        server: "files.example.org".into(),
        path: "/export".into(),
    };
    let volumes = [
        Volume::Claim("pfs".into()),
        csi,
        nfs,
        Volume::HostPath("/srv/paddlecloud".into()),
    ];
    for (number, volume) in volumes.into_iter().enumerate() {
        let namespace = format!("dry-{}-{number}", bench.port);
        let level = format!("pod-security.kubernetes.io/enforce={}", volume.security_level());
        bench.kubectl(&["create", "namespace", &namespace]);
        bench.kubectl(&["label", "namespace", &namespace, &level]);
        let given = BTreeMap::from([("*".to_owned(), namespace.clone())]);
        let settings = bench.settings(Namespaces::Given(given));
        bench.dry_run(&rendered(&settings, volume));
        bench.kubectl(&["delete", "namespace", &namespace, "--wait=false"]);
    }
}
