//! Turns a spec into a plan for each worker: its command, environment, files and the preamble of its log.
//!
//! Pure: the engine provides paths and addresses in `Site` and `Member`. The variables come from four generations of
//! programs; all of them can be set at the same time.

use std::collections::BTreeMap;
use std::fmt;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::job::Worker;
use crate::names::{DatacenterName, UserName};
use crate::spec::{DEFAULT_PS_ENTRY, JobSpec};

/// First port of a parameter server, as in the Kubernetes page.
pub const PSERVER_PORT: u16 = 7164;

/// Whether a command starts our own parameter server.
pub fn is_own_pserver(command: &str) -> bool {
    command == DEFAULT_PS_ENTRY || command.starts_with("paddle pserver ")
}

/// The role of a worker in its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Pserver,
    Trainer,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Pserver => "pserver",
            Role::Trainer => "trainer",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One worker as the engine placed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub role: Role,
    pub index: u32,
    /// Its host name, for example `my-job-trainer-3s4nz`.
    pub name: String,
    pub address: String,
    /// Whether its program has succeeded.
    pub finished: bool,
    /// Variables that the engine itself adds, for example the assigned cards. They override the submitter's shell;
    /// variables set with `-env` override them.
    pub env: BTreeMap<String, String>,
}

impl Member {
    /// A worker of a job, with the variables that its engine adds.
    pub fn of(worker: &Worker, env: BTreeMap<String, String>) -> Member {
        Member {
            role: worker.key.role,
            index: worker.key.index,
            name: worker.name.clone(),
            address: worker.address.clone(),
            finished: worker.succeeded(),
            env,
        }
    }
}

/// What is the same for all workers of a run. Paths are as the worker sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    pub user: UserName,
    /// The namespace of the run's objects in a cluster.
    pub namespace: String,
    pub datacenter: DatacenterName,
    /// Working directory: the package.
    pub package: String,
    /// `$JOB_PATH/$JOB_NAME` is also the package, as in the Kubernetes page.
    pub job_path: String,
    pub output: String,
    pub home: String,
    pub public: String,
    /// A new folder for this run that all its workers see.
    pub rendezvous: String,
    /// Network device of the worker's address.
    pub nic: String,
    /// The first of two ports reserved for this run: many programs bind them on all addresses.
    pub port_base: u16,
}

/// Everything one worker needs, apart from limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerPlan {
    pub role: Role,
    pub index: u32,
    pub name: String,
    pub address: String,
    /// Run by `sh -c`.
    pub command: String,
    pub workdir: String,
    pub env: BTreeMap<String, String>,
    /// Private files at absolute paths.
    pub files: Vec<(String, String)>,
    /// Trainers wait until all workers are ready; parameter servers start immediately.
    pub waits_for_all: bool,
    /// Ports it must listen on to count as ready.
    pub ports: Vec<u16>,
    /// The preamble that the submit guide shows before the program's own output.
    pub preamble: Vec<String>,
    /// Time between SIGTERM and SIGKILL.
    pub grace: SignedDuration,
    /// The path of its log, as in the Kubernetes page.
    pub plain_log: String,
}

/// Plans all workers, parameter servers first. `members` lists both roles in order of index.
pub fn plan(spec: &JobSpec, site: &Site, members: &[Member]) -> Vec<WorkerPlan> {
    let run = RunAddresses::new(members);
    members
        .iter()
        .map(|member| plan_one(spec, site, &run, member))
        .collect()
}

/// Plans one worker; `None` if the job has no such worker.
pub fn plan_worker(
    spec: &JobSpec,
    site: &Site,
    members: &[Member],
    role: Role,
    index: u32,
) -> Option<WorkerPlan> {
    let member = members
        .iter()
        .find(|member| member.role == role && member.index == index)?;
    Some(plan_one(spec, site, &RunAddresses::new(members), member))
}

/// The addresses of a run, in the same order everywhere.
struct RunAddresses {
    pservers: Vec<String>,
    trainers: Vec<String>,
    /// The trainers that have finished, by index.
    finished: Vec<u32>,
}

impl RunAddresses {
    fn new(members: &[Member]) -> RunAddresses {
        let of = |role: Role| {
            let mut of_role: Vec<&Member> = members.iter().filter(|member| member.role == role).collect();
            of_role.sort_by_key(|member| member.index);
            of_role.into_iter().map(|member| member.address.clone()).collect()
        };
        RunAddresses {
            pservers: of(Role::Pserver),
            trainers: of(Role::Trainer),
            finished: members
                .iter()
                .filter(|member| member.role == Role::Trainer && member.finished)
                .map(|member| member.index)
                .collect(),
        }
    }
}

fn plan_one(spec: &JobSpec, site: &Site, run: &RunAddresses, member: &Member) -> WorkerPlan {
    let index = member.index;
    let (command, log) = match member.role {
        Role::Pserver => (spec.ps_entry.clone(), "server.log"),
        Role::Trainer => (spec.trainer_command(), "train.log"),
    };
    let ports = match member.role {
        Role::Pserver => (PSERVER_PORT..PSERVER_PORT + spec.ps_ports).collect(),
        Role::Trainer => Vec::new(),
    };
    WorkerPlan {
        role: member.role,
        index,
        name: member.name.clone(),
        address: member.address.clone(),
        command,
        workdir: site.package.clone(),
        env: environment(spec, site, run, member),
        files: vec![
            ("/trainer_id".to_owned(), format!("{index}\n")),
            ("/trainer_count".to_owned(), format!("{}\n", spec.parallelism)),
        ],
        waits_for_all: member.role == Role::Trainer,
        ports,
        preamble: match member.role {
            Role::Pserver => Vec::new(),
            Role::Trainer => preamble(spec, site, run, index),
        },
        grace: spec.grace,
        plain_log: format!("{}/node_{index}/{log}", site.output),
    }
}

fn environment(spec: &JobSpec, site: &Site, run: &RunAddresses, member: &Member) -> BTreeMap<String, String> {
    let mut env = spec.shell_env.clone();
    let mut set = |name: &str, value: String| drop(env.insert(name.to_owned(), value));
    let trainers = spec.parallelism.to_string();
    let id = member.index.to_string();
    let sparse_ports = spec.ps_ports.saturating_sub(1);
    let uses_gpu = u8::from(spec.trainer.gpu > 0).to_string();

    // the submit guide
    set("PADDLE_INIT_NUM_GRADIENT_SERVERS", trainers.clone());
    set("PADDLE_INIT_TRAINER_ID", id.clone());
    set("PADDLE_CLOUD_CURRENT_DATACENTER", site.datacenter.to_string());
    set("PADDLE_CLOUD_USERNAME", site.user.to_string());
    set("PADDLE_CLOUD_HOME", site.home.clone());
    set("PADDLE_CLOUD_PUBLIC", site.public.clone());
    // the Python job page
    set("TRAINER_ID", id.clone());
    set("TRAINERS", trainers.clone());
    set("PSERVERS", spec.pservers.to_string());
    // the Kubernetes page
    set("JOB_NAME", spec.name.to_string());
    set("JOB_PATH", site.job_path.clone());
    set("JOB_NAMESPACE", site.namespace.clone());
    set("TRAIN_CONFIG_DIR", ".".to_owned());
    set("CONF_PADDLE_NIC", site.nic.clone());
    set("CONF_PADDLE_PORT", PSERVER_PORT.to_string());
    set("CONF_PADDLE_PORTS_NUM", "1".to_owned());
    set("CONF_PADDLE_PORTS_NUM_SPARSE", sparse_ports.to_string());
    set("CONF_PADDLE_GRADIENT_NUM", trainers.clone());
    // the original launcher of 2017
    set("PADDLE_JOB_NAME", spec.name.to_string());
    set("TOPOLOGY", spec.topology.clone().unwrap_or_default());
    set("ENTRY", spec.entry.clone());
    set("TRAINER_PACKAGE", site.package.clone());
    set("NAMESPACE", site.namespace.clone());
    set("PADDLE_INIT_PORT", PSERVER_PORT.to_string());
    set("PADDLE_INIT_PORTS_NUM", "1".to_owned());
    set("PADDLE_INIT_PORTS_NUM_FOR_SPARSE", sparse_ports.to_string());
    set("PADDLE_INIT_NUM_PASSES", spec.passes.to_string());
    set("PADDLE_INIT_USE_GPU", uses_gpu);
    set("PADDLE_INIT_TRAINER_COUNT", "1".to_owned());
    set("PADDLE_INIT_PSERVERS", run.pservers.join(","));
    set("PADDLE_INIT_NICS", site.nic.clone());
    // common to all programs
    set("PYTHONUNBUFFERED", "1".to_owned());
    set(
        "OMP_NUM_THREADS",
        resources(spec, member.role).cpu.threads().to_string(),
    );
    set("PADDLE_PS_MEMORY", spec.pserver.memory.as_u64().to_string());

    let resumed = spec.resume.iter().flat_map(|run| run.variables(&site.home));
    for (name, value) in fleet(spec, site, run, member)
        .into_iter()
        .chain(collective(spec, site, run, member))
        .chain(resumed)
    {
        set(name, value);
    }
    env.extend(member.env.clone());
    env.extend(spec.envs.clone());
    let python_path = match env.get("PYTHONPATH").filter(|path| !path.is_empty()) {
        Some(path) => format!("{}:{path}", site.package),
        None => site.package.clone(),
    };
    env.insert("PYTHONPATH".to_owned(), python_path);
    env
}

fn resources(spec: &JobSpec, role: Role) -> &crate::spec::Resources {
    match role {
        Role::Pserver => &spec.pserver,
        Role::Trainer => &spec.trainer,
    }
}

/// Variables of current PaddlePaddle (fleet, both modes).
fn fleet(spec: &JobSpec, site: &Site, run: &RunAddresses, member: &Member) -> Vec<(&'static str, String)> {
    let trainer_port = site.port_base + 1;
    let (role, port) = match member.role {
        Role::Pserver => ("PSERVER", PSERVER_PORT),
        Role::Trainer => ("TRAINER", trainer_port),
    };
    let mut names = vec![
        ("TRAINING_ROLE", role.to_owned()),
        ("PADDLE_TRAINERS_NUM", spec.parallelism.to_string()),
        ("PADDLE_TRAINER_ID", member.index.to_string()),
        (
            "PADDLE_PSERVERS_IP_PORT_LIST",
            endpoints(&run.pservers, PSERVER_PORT),
        ),
        ("PADDLE_TRAINER_ENDPOINTS", endpoints(&run.trainers, trainer_port)),
        ("PADDLE_CURRENT_ENDPOINT", format!("{}:{port}", member.address)),
        ("PADDLE_PORT", port.to_string()),
    ];
    if member.role == Role::Pserver {
        names.push(("PADDLE_PSERVER_ID", member.index.to_string()));
        if !run.finished.is_empty() {
            names.push(("PADDLE_PS_FINISHED", join(run.finished.iter())));
        }
    }
    if spec.trainer.gpu == 0 {
        names.push(("PADDLE_DISTRI_BACKEND", "gloo".to_owned()));
        names.push(("PADDLE_WITH_GLOO", "1".to_owned()));
        names.push(("PADDLE_GLOO_RENDEZVOUS", "2".to_owned()));
        names.push(("PADDLE_GLOO_FS_PATH", site.rendezvous.clone()));
    }
    names
}

/// Variables of PyTorch and similar programs. `DMLC_ROLE` is omitted: it makes an import block.
fn collective(
    spec: &JobSpec,
    site: &Site,
    run: &RunAddresses,
    member: &Member,
) -> Vec<(&'static str, String)> {
    vec![
        ("MASTER_ADDR", run.trainers.first().cloned().unwrap_or_default()),
        ("MASTER_PORT", site.port_base.to_string()),
        ("RANK", member.index.to_string()),
        ("WORLD_SIZE", spec.parallelism.to_string()),
        ("LOCAL_RANK", "0".to_owned()),
        ("DMLC_NUM_WORKER", spec.parallelism.to_string()),
        ("DMLC_NUM_SERVER", spec.pservers.to_string()),
    ]
}

/// The lines that the submit guide shows before a trainer's own output.
fn preamble(spec: &JobSpec, site: &Site, run: &RunAddresses, index: u32) -> Vec<String> {
    vec![
        format!(
            "label selector: paddle-job-pserver={}, desired: {}",
            spec.name, spec.pservers
        ),
        format!("running pod list:  {}", pod_list(&run.pservers)),
        format!(
            "label selector: paddle-job={}, desired: {}",
            spec.name, spec.parallelism
        ),
        format!("running pod list:  {}", pod_list(&run.trainers)),
        format!(
            "Starting training job:  {}, num_gradient_servers: {}, trainer_id:  {index}, version:  {}",
            site.package,
            spec.parallelism,
            spec.version()
        ),
    ]
}

fn pod_list(addresses: &[String]) -> String {
    let pods: Vec<String> = addresses
        .iter()
        .map(|address| format!("('Running', '{address}')"))
        .collect();
    format!("[{}]", pods.join(", "))
}

fn endpoints(addresses: &[String], port: u16) -> String {
    join(addresses.iter().map(|address| format!("{address}:{port}")))
}

fn join<T: ToString>(items: impl Iterator<Item = T>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resumed::ResumedRun;
    use crate::testing::worker_variables;

    fn two_by_three() -> Vec<WorkerPlan> {
        two_by_three_after(&[], None)
    }

    /// With these trainers finished; a job that continues this run.
    fn two_by_three_after(finished: &[u32], resume: Option<ResumedRun>) -> Vec<WorkerPlan> {
        let mut spec = JobSpec::new("my-job".parse().unwrap());
        spec.resume = resume;
        spec.parallelism = 3;
        spec.pservers = 2;
        spec.package = Some("/pfs/local/home/me/demo".into());
        spec.entry = "python train.py".into();
        spec.trainer.cpu = "1500m".parse().unwrap();
        spec.envs = [
            ("MY_FLAG".into(), "7".into()),
            ("PYTHONPATH".into(), "/opt/lib".into()),
        ]
        .into();
        spec.shell_env = [
            ("PATH".into(), "/venv/bin:/usr/bin".into()),
            ("LANG".into(), "C.UTF-8".into()),
        ]
        .into();
        let site = Site {
            user: "me".parse().unwrap(),
            namespace: "me".into(),
            datacenter: "local".parse().unwrap(),
            package: "/pfs/local/home/me/.paddlecloud/runs/j_1/my-job".into(),
            job_path: "/pfs/local/home/me/.paddlecloud/runs/j_1".into(),
            output: "/pfs/local/home/me/.paddlecloud/runs/j_1/my-job/output".into(),
            home: "/pfs/local/home/me".into(),
            public: "/pfs/local/public".into(),
            rendezvous: "/pfs/local/home/me/.paddlecloud/runs/j_1/rendezvous".into(),
            nic: "lo".into(),
            port_base: 12_000,
        };
        let member = |role: Role, index: u32| {
            let address = format!("127.64.{}.{}", role as u8, index + 1);
            let from_engine = [
                ("PATH", "/opt/paddlecloud/bin:/venv/bin:/usr/bin"),
                ("POD_IP", &address),
                ("CUDA_VISIBLE_DEVICES", ""),
            ];
            Member {
                role,
                index,
                name: format!("my-job-{role}-x{index}"),
                finished: role == Role::Trainer && finished.contains(&index),
                env: from_engine
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .into(),
                address,
            }
        };
        let mut members: Vec<Member> = (0..2).map(|i| member(Role::Pserver, i)).collect();
        members.extend((0..3).map(|i| member(Role::Trainer, i)));
        plan(&spec, &site, &members)
    }

    #[test]
    fn golden_environment_of_a_two_by_three_job() {
        let mut table = String::new();
        for worker in two_by_three() {
            table += &format!("== {} {} ==\n", worker.role, worker.index);
            table += &format!("command {}\nworkdir {}\n", worker.command, worker.workdir);
            table += &format!("ports {:?}\nlog {}\n", worker.ports, worker.plain_log);
            for (path, text) in &worker.files {
                table += &format!("file {path} {text:?}\n");
            }
            for line in &worker.preamble {
                table += &format!("> {line}\n");
            }
            for (name, value) in &worker.env {
                table += &format!("{name}={value}\n");
            }
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn every_name_of_the_environment_is_set_in_every_worker() {
        for worker in two_by_three() {
            for name in worker_variables::PLANNED.split_whitespace() {
                assert!(
                    worker.env.contains_key(name),
                    "{name} is missing in {} {}",
                    worker.role,
                    worker.index
                );
            }
            assert!(!worker.env.contains_key("DMLC_ROLE"));
        }
    }

    #[test]
    fn a_parameter_server_learns_which_trainers_have_finished() {
        for (finished, expected) in [(&[][..], None), (&[0, 2], Some("0,2"))] {
            for worker in two_by_three_after(finished, None) {
                let expected = expected.filter(|_| worker.role == Role::Pserver);
                let value = worker.env.get("PADDLE_PS_FINISHED").map(String::as_str);
                assert_eq!(value, expected, "{} {}", worker.role, worker.index);
            }
        }
    }

    #[test]
    fn every_worker_learns_which_run_its_job_continues() {
        let run = ResumedRun {
            id: crate::testing::samples::id(1),
            output: ".paddlecloud/runs/j_0/my-job/output".into(),
        };
        for (worker, plain) in two_by_three_after(&[], Some(run.clone()))
            .iter()
            .zip(two_by_three())
        {
            let mut expected = plain.env.clone();
            expected.insert("PADDLE_PS_RESUME".into(), run.id.to_string());
            expected.insert(
                "PADDLE_PS_RESUME_OUTPUT".into(),
                "/pfs/local/home/me/.paddlecloud/runs/j_0/my-job/output".into(),
            );
            assert_eq!(worker.env, expected, "{} {}", worker.role, worker.index);
            for name in worker_variables::RESUMED.split_whitespace() {
                assert!(worker.env.contains_key(name) && !plain.env.contains_key(name));
            }
        }
    }

    #[test]
    fn ports_stay_below_the_range_the_kernel_hands_out() {
        for worker in two_by_three() {
            assert!(worker.ports.iter().all(|port| *port < 32_768));
        }
    }
}
