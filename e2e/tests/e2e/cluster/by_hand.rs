//! Jobs that run without our server: the hand-written Job from 2017, and manifests that `submit` prints.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use e2e::cluster::{Cluster, ClusterServer};
use e2e::{TestEnvironment, built_program, wait_until};

/// A namespace and a folder of this machine that its pods mount; gone when dropped.
struct Place {
    cluster: Cluster,
    folder: tempfile::TempDir,
    namespace: String,
}

impl Place {
    fn new(cluster: &Cluster) -> Place {
        let folder = tempfile::Builder::new()
            .prefix("paddlecloud-hand-")
            .permissions(fs::Permissions::from_mode(0o777))
            .tempdir()
            .expect("a temporary folder");
        let name = folder.path().file_name().and_then(|name| name.to_str());
        let mark = name
            .and_then(|name| name.rsplit('-').next())
            .expect("a plain name");
        let namespace = format!("hand-{}", mark.to_ascii_lowercase());
        cluster.kubectl(&["create", "namespace", &namespace]);
        wait_until("the namespace must have its account", || {
            let accounts = cluster.objects("serviceaccounts", &namespace);
            (!accounts.is_empty()).then_some(())
        });
        Place {
            cluster: cluster.clone(),
            folder,
            namespace,
        }
    }

    fn apply(&self, manifest: &str) {
        let file = self.folder.path().join("manifest.yaml");
        fs::write(&file, manifest).expect("a file in the test's own folder");
        let file = file.to_str().expect("a plain name");
        self.cluster
            .kubectl(&["apply", "-n", &self.namespace, "-f", file]);
    }

    /// Waits until a Job has this condition.
    #[track_caller]
    fn wait_for(&self, job: &str, condition: &str) {
        wait_until(&format!("{job} must be {condition}"), || {
            let jobs = self.cluster.objects("jobs", &self.namespace);
            let job = jobs.iter().find(|found| found["metadata"]["name"] == job)?;
            let conditions = job["status"]["conditions"].as_array()?;
            let is_met = |found: &&serde_json::Value| found["type"] == condition && found["status"] == "True";
            conditions.iter().find(is_met).map(drop)
        });
    }

    fn logs(&self, selector: &str) -> String {
        let words = ["logs", "-n", &self.namespace, "-l", selector, "--tail=-1"];
        self.cluster.kubectl(&words)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let words = ["delete", "namespace", &self.namespace, "--wait=false"];
        self.cluster.kubectl(&words);
    }
}

/// The Job of the document, with the names of this test's image and folder.
fn document_job(image: &str, folder: &Path, namespace: &str) -> String {
    format!(
        r#"apiVersion: batch/v1
kind: Job
metadata:
  name: paddle-cluster-job
spec:
  parallelism: 3
  completions: 3
  template:
    metadata:
      name: paddle-cluster-job
    spec:
      volumes:
      - name: jobpath
        hostPath:
          path: {folder}
      containers:
      - name: trainer
        image: {image}
        command: ["bin/bash",  "-c", "/root/start.sh"]
        env:
        - name: JOB_NAME
          value: paddle-cluster-job
        - name: JOB_PATH
          value: /home/jobpath
        - name: JOB_NAMESPACE
          value: {namespace}
        - name: TRAIN_CONFIG_DIR
          value: recommendation
        - name: CONF_PADDLE_NIC
          value: eth0
        - name: CONF_PADDLE_PORT
          value: "7164"
        - name: CONF_PADDLE_PORTS_NUM
          value: "2"
        - name: CONF_PADDLE_PORTS_NUM_SPARSE
          value: "2"
        - name: CONF_PADDLE_GRADIENT_NUM
          value: "3"
        volumeMounts:
        - name: jobpath
          mountPath: /home/jobpath
      restartPolicy: Never
"#,
        folder = folder.display()
    )
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn the_job_of_the_document_runs_as_printed() {
    let cluster = Cluster::here();
    let image = cluster.runtime_image();
    let place = Place::new(&cluster);
    let job = place.folder.path().join("paddle-cluster-job");
    for part in ["recommendation", "0/data", "1/data", "2/data", "output"] {
        fs::create_dir_all(job.join(part)).unwrap();
    }
    fs::write(job.join("recommendation/trainer_config.py"), "settings()").unwrap();
    for part in 0..3 {
        fs::write(job.join(format!("{part}/data/part-{part}")), "x").unwrap();
    }
    let manifest = document_job(&image, place.folder.path(), &place.namespace);

    // Without the right to list pods the pods say what grants it, and that manifest does.
    place.apply(&manifest);
    let failed = wait_until("a pod must be refused", || {
        let pods = cluster.objects("pods", &place.namespace);
        let failed = pods.iter().find(|pod| pod["status"]["phase"] == "Failed")?;
        failed["metadata"]["name"].as_str().map(str::to_owned)
    });
    let said = cluster.kubectl(&["logs", "-n", &place.namespace, &failed]);
    assert!(
        said.contains("this pod may not list the pods of its job"),
        "{said}"
    );
    let (_, grant) = said
        .split_once("start the job again\n")
        .expect("a manifest follows");
    let grant: String = grant
        .lines()
        .take_while(|line| !line.starts_with("error:") && !line.starts_with("paddle launch:"))
        .map(|line| format!("{line}\n"))
        .collect();
    cluster.kubectl(&["delete", "job", "-n", &place.namespace, "paddle-cluster-job"]);
    place.apply(&grant);

    place.apply(&manifest);
    place.wait_for("paddle-cluster-job", "Complete");
    check_output(&job);
}

/// The Job of the document that prepares data, with the names of this test's image and folder. Its claim is `mfs`.
fn document_data_job(image: &str) -> String {
    format!(
        r#"apiVersion: batch/v1
kind: Job
metadata:
  name: paddle-data
spec:
  template:
    metadata:
      name: pi
    spec:
      hostNetwork: true
      containers:
      - name: paddle-data
        image: {image}
        imagePullPolicy: Always
        volumeMounts:
        - mountPath: "/mnt"
          name: nfs
        env:
        - name: OUT_DIR
          value: /mnt/paddle-cluster-job
        - name: SPLIT_COUNT
          value: "3"
      volumes:
        - name: nfs
          persistentVolumeClaim:
            claimName: mfs
      restartPolicy: Never
"#
    )
}

/// A registry on loopback, which nodes of this machine pull from, with the image of `deploy/images/data`.
struct Registry {
    server: Child,
    image: String,
    folder: tempfile::TempDir,
}

impl Registry {
    fn with_data_image() -> Registry {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|free| free.local_addr())
            .expect("a free port")
            .port();
        let config = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}/blobs}}}}\nhttp: {{addr: \"127.0.0.1:{port}\"}}\n",
            folder.path().display()
        );
        let file = folder.path().join("registry.yaml");
        fs::write(&file, config).expect("a file in the test's own folder");
        let server = Command::new("docker-registry")
            .arg("serve")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("`docker-registry` can be run");
        let registry = Registry {
            server,
            image: format!("127.0.0.1:{port}/paddlecloud/data:1"),
            folder,
        };
        wait_until("the registry must listen", || {
            TcpStream::connect(("127.0.0.1", port)).ok().map(drop)
        });
        registry.push();
        registry
    }

    /// Builds the image as `cargo xtask image data` does, but from the program of these tests, which is not static.
    fn push(&self) {
        let context = self.folder.path().join("context");
        let program = built_program();
        copy_below(
            &context.join("rootfs"),
            &program,
            Path::new("/usr/local/bin/paddle-data"),
        );
        for library in shared_libraries(&program) {
            copy_below(&context.join("rootfs"), &library, &library);
        }
        let dockerfile = include_str!("../../../../deploy/images/data/Dockerfile");
        fs::write(context.join("Dockerfile"), dockerfile).expect("a file in the test's own folder");
        let at = self.folder.path().display();
        let buildah = format!("buildah --storage-driver vfs --root {at}/images --runroot {at}/run");
        let (image, context) = (&self.image, context.display());
        let line = format!(
            "{buildah} build --isolation chroot --quiet --tag {image} {context} && \
             {buildah} push --quiet --tls-verify=false {image}"
        );
        let done = Command::new("sh")
            .args(["-c", &line])
            .output()
            .expect("there is a shell");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

fn copy_below(root: &Path, file: &Path, path: &Path) {
    let to = root.join(path.strip_prefix("/").expect("an absolute path"));
    fs::create_dir_all(to.parent().expect("a file has a folder")).expect("a folder in the test's own");
    fs::copy(file, to).expect("a program can be copied");
}

/// The absolute paths that `ldd` prints.
fn shared_libraries(program: &Path) -> Vec<PathBuf> {
    let listed = Command::new("ldd")
        .arg(program)
        .output()
        .expect("`ldd` can be run");
    let listed = String::from_utf8(listed.stdout).expect("plain text");
    let paths = listed.split_whitespace().filter(|word| word.starts_with('/'));
    paths.map(PathBuf::from).collect()
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
#[ignore = "needs a Kubernetes cluster, buildah and docker-registry"]
fn the_data_job_of_the_document_runs_as_printed() {
    let cluster = Cluster::here();
    let registry = Registry::with_data_image();
    let place = Place::new(&cluster);
    let job = place.folder.path().join("paddle-cluster-job");
    fs::create_dir_all(job.join("quick_start")).unwrap();
    let lines: String = (0..10).map(|line| format!("line {line}\n")).collect();
    fs::write(job.join("quick_start/train.txt"), &lines).unwrap();
    // The image runs as uid 1000.
    for path in [&job, &job.join("quick_start")] {
        chown(path, Some(1000), Some(1000)).expect("cluster tests run as root");
    }
    let (namespace, folder) = (&place.namespace, place.folder.path().display());
    place.apply(&format!(
        "apiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: {namespace}}}\n\
         spec: {{capacity: {{storage: 1Gi}}, accessModes: [ReadWriteMany], storageClassName: \"\", \
         persistentVolumeReclaimPolicy: Retain, hostPath: {{path: {folder}}}, claimRef: {{namespace: {namespace}, name: mfs}}}}\n\
         ---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: mfs}}\n\
         spec: {{accessModes: [ReadWriteMany], storageClassName: \"\", volumeName: {namespace}, \
         resources: {{requests: {{storage: 1Gi}}}}}}\n"
    ));
    place.apply(&document_data_job(&registry.image));
    place.wait_for("paddle-data", "Complete");
    cluster.kubectl(&["delete", "pv", namespace, "--wait=false"]);
    let mut seen = Vec::new();
    for node in 0..3 {
        let text = fs::read_to_string(job.join(format!("{node}/data/train.txt"))).expect("it was written");
        assert!((3..=4).contains(&text.lines().count()), "{text}");
        seen.extend(text.lines().map(str::to_owned));
    }
    seen.sort();
    assert_eq!(seen, lines.lines().collect::<Vec<_>>(), "every line once");
    assert!(job.join("output").is_dir());
    assert_eq!(
        fs::read_to_string(job.join("quick_start/train.txt")).unwrap(),
        lines
    );
}

fn check_output(job: &Path) {
    let mut addresses = Vec::new();
    for node in 0..3 {
        let log = |name: &str| {
            fs::read_to_string(job.join(format!("output/node_{node}/{name}"))).expect("it was written")
        };
        let trained = log("train.log");
        let line = trained
            .lines()
            .find(|line| line.starts_with("commandline: "))
            .expect("it was written");
        let words: Vec<&str> = line.split(' ').skip(2).collect();
        let list = words[4].strip_prefix("--pservers=").expect("it was written");
        let shown = line.replace(list, "ADDRESSES");
        assert_eq!(
            shown,
            format!(
                "commandline: paddle_trainer --nics=eth0 --port=7164 --ports_num=2 --comment=paddle_process_by_paddle \
                 --pservers=ADDRESSES --ports_num_for_sparse=2 --config=./trainer_config.py --trainer_count=4 \
                 --num_passes=10 --use_gpu=0 --log_period=50 --dot_period=10 --saving_period=1 --local=0 \
                 --trainer_id={node} --save_dir=/home/jobpath/paddle-cluster-job/output"
            )
        );
        addresses.push(list.to_owned());
        assert!(trained.contains(&format!("data: part-{node}")), "{trained}");
        assert!(trained.contains("config: settings()"), "{trained}");
        let served = log("server.log");
        assert!(
            served.contains(&format!("parameter server {node} of 3 for 3 trainers")),
            "{served}"
        );
    }
    let mut sorted: Vec<&str> = addresses[0].split(',').collect();
    sorted.sort_unstable();
    assert_eq!(addresses[0], sorted.join(","), "sorted as text");
    assert!(
        addresses.iter().all(|list| *list == addresses[0]),
        "the same everywhere"
    );
    assert!(job.join("output/pass-00000/done").is_file());
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn printed_manifests_run_without_a_server() {
    let cluster = Cluster::here();
    let mut env = TestEnvironment::new();
    let mut server = ClusterServer::start(&mut env, &cluster, "");
    server.configure(&env, 0);
    let home = server.home(0);
    fs::create_dir_all(home.join("demo")).unwrap();
    let program = "echo trainer $TRAINER_ID of $TRAINERS, servers $PSERVERS\ncat /trainer_id\nmkdir -p output\n\
                   echo model > output/model.$TRAINER_ID\n";
    fs::write(home.join("demo/train.sh"), program).unwrap();
    let owner = fs::metadata(server.data()).unwrap();
    let owner = std::os::unix::fs::MetadataExt::uid(&owner);
    for path in [home.clone(), home.join("demo"), home.join("demo/train.sh")] {
        chown(path, Some(owner), Some(owner)).unwrap();
    }
    let package = format!("/pfs/cloud/home/{}/demo", server.namespace(0));
    let printed = env
        .paddlectl(&[
            "submit",
            "--dry-run",
            "--manifests",
            "-jobname",
            "demo",
            "-p",
            "2",
            "-pservers",
            "1",
            "-entry",
            "sh train.sh",
            "-cpu",
            "100m",
            "-pscpu",
            "100m",
            "-memory",
            "64Mi",
            "-psmemory",
            "64Mi",
            &package,
        ])
        .ok()
        .stdout;
    server.crash();
    let place = Place::new(&cluster);
    place.apply(&printed);
    place.wait_for("demo-trainer", "Complete");
    place.wait_for("demo-pserver", "Complete");
    let said = place.logs("paddle-job=demo");
    for line in ["trainer 0 of 2, servers 1\n0\n", "trainer 1 of 2, servers 1\n1\n"] {
        assert!(said.contains(line), "{said}");
    }
    for file in [
        "model.0",
        "model.1",
        "node_0/train.log",
        "node_1/train.log",
        "node_0/server.log",
    ] {
        assert!(home.join("demo/output").join(file).is_file(), "{file} is missing");
    }
}

#[test]
#[ignore = "needs a Kubernetes cluster"]
fn a_printed_job_whose_peer_never_comes_names_it() {
    let cluster = Cluster::here();
    let place = Place::new(&cluster);
    let mut env = TestEnvironment::new();
    let server = ClusterServer::start(&mut env, &cluster, "");
    server.configure(&env, 0);
    let printed = env
        .paddlectl(&[
            "submit",
            "--dry-run",
            "--manifests",
            "-jobname",
            "lonely",
            "-p",
            "2",
            "-pservers",
            "0",
            "-entry",
            "true",
            "-cpu",
            "100m",
            "-memory",
            "64Mi",
            "-start-limit",
            "3s",
            "-image",
            cluster.shell_image(),
        ])
        .ok()
        .stdout;
    // The home is a volume of the server's tree, which the user has not used yet.
    fs::create_dir_all(server.home(0)).unwrap();
    place.apply(&printed.replace("parallelism: 2", "parallelism: 1"));
    place.wait_for("lonely-trainer", "Failed");
    let pods = place.cluster.objects("pods", &place.namespace);
    let ended = &pods[0]["status"]["containerStatuses"][0]["state"]["terminated"];
    let said = ended["message"].as_str().unwrap_or_default();
    assert_eq!(
        said,
        "not all peers appeared within 3s; missing: trainer 1 (`lonely-trainer-1.lonely`)"
    );
}
