//! Plans a worker with `core::plan` from what the launcher has found. Its only I/O is reading the container.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use paddlecloud_core::names::{DatacenterName, JobName, UserName};
use paddlecloud_core::plan::{self, Member, PSERVER_PORT, Role, Site};
use paddlecloud_core::quantity::{Bytes, Cpu};
use paddlecloud_core::spec::JobSpec;
use paddlecloud_worker::protocol::{LogLimits, MARKER_VARIABLE, WorkerPlan};

use super::{Assembly, Team};

/// Two ports of trainers; a pod has all ports to itself.
const PORT_BASE: u16 = 10_000;
/// Bytes of output kept for the copy on stdout, which may be slow.
const KEPT_OUTPUT: u64 = 64 << 20;

/// What the container provides.
#[derive(Debug, Clone, Default)]
pub struct Container {
    pub env: BTreeMap<String, String>,
    pub cores: u64,
    /// Its memory limit, if it has one.
    pub memory: Option<u64>,
}

impl Container {
    pub fn here() -> Container {
        let files = [
            "/sys/fs/cgroup/memory.max",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        ];
        let memory = files.iter().find_map(|file| std::fs::read_to_string(file).ok());
        let memory = memory.and_then(|text| text.trim().parse().ok());
        Container {
            env: std::env::vars().collect(),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            // Version 1 represents "no limit" as a huge number.
            memory: memory.filter(|bytes| *bytes < 1 << 60),
        }
    }

    fn parsed<T: std::str::FromStr>(&self, name: &str, default: &str) -> T
    where
        T::Err: std::fmt::Debug,
    {
        let own = self.env.get(name).and_then(|value| value.parse().ok());
        own.unwrap_or_else(|| default.parse().expect("the default is valid"))
    }
}

/// The plan of one worker of this pod, for its supervisor.
pub fn of(assembly: &Assembly, container: &Container, team: &Team, role: Role, command: &str) -> WorkerPlan {
    let spec = spec(assembly, container, role, command);
    let members: Vec<Member> = [(Role::Pserver, &team.pservers), (Role::Trainer, &team.trainers)]
        .into_iter()
        .flat_map(|(role, addresses)| {
            (0..).zip(addresses).map(move |(index, address)| Member {
                role,
                index,
                name: format!("{role}-{index}"),
                address: address.to_string(),
                finished: false,
                env: BTreeMap::new(),
            })
        })
        .collect();
    let site = site(assembly, container, team);
    let mut planned = plan::plan_worker(&spec, &site, &members, role, team.index)
        .expect("the index was checked against the team");
    let env = &mut planned.env;
    env.entry("POD_IP".to_owned())
        .or_insert_with(|| team.own.to_string());
    if container.memory.is_none() && !container.env.contains_key("PADDLE_PS_MEMORY") {
        env.remove("PADDLE_PS_MEMORY");
    }
    WorkerPlan {
        address: team.own,
        wait_for_go: true,
        ready_ports: match role {
            Role::Pserver => (0..assembly.ports.count())
                .map(|number| assembly.ports.first.saturating_add(number))
                .collect(),
            Role::Trainer => Vec::new(),
        },
        log: LogLimits {
            segment_bytes: 1 << 20,
            keep_bytes: KEPT_OUTPUT,
        },
        ..WorkerPlan::of(format!("{}.{role}-{}.1", spec.name, team.index), planned)
    }
}

fn spec(assembly: &Assembly, container: &Container, role: Role, command: &str) -> JobSpec {
    let mut spec = JobSpec::new(JobName::nearest(&assembly.job));
    spec.parallelism = assembly.trainers;
    spec.pservers = assembly.pservers;
    spec.ps_ports = assembly.ports.count();
    spec.grace = SignedDuration::try_from(assembly.grace).unwrap_or(SignedDuration::MAX);
    spec.passes = container.parsed("PADDLE_INIT_NUM_PASSES", "1");
    spec.trainer.gpu = container.parsed("PADDLE_INIT_USE_GPU", "0");
    match role {
        Role::Pserver => spec.ps_entry = command.to_owned(),
        Role::Trainer => spec.entry = command.to_owned(),
    }
    for resources in [&mut spec.trainer, &mut spec.pserver] {
        resources.cpu = Cpu::cores(container.cores);
        let share = assembly.workers.len().max(1) as u64;
        resources.memory = Bytes::new(container.memory.unwrap_or(0) / share);
    }
    // Variables of the manifest take precedence, as those of `-env` do.
    spec.envs = container.env.clone();
    spec.envs.extend(assembly.env.iter().cloned());
    spec.envs.extend(port_variables(assembly, container));
    spec.envs.remove(MARKER_VARIABLE);
    spec
}

/// The plan assumes a fixed first port of parameter servers; a manifest may have chosen another.
fn port_variables(assembly: &Assembly, container: &Container) -> Vec<(String, String)> {
    let ports = assembly.ports;
    let mut variables = vec![
        ("PADDLE_INIT_PORTS_NUM", ports.dense),
        ("CONF_PADDLE_PORTS_NUM", ports.dense),
        ("PADDLE_INIT_PORTS_NUM_FOR_SPARSE", ports.sparse),
        ("CONF_PADDLE_PORTS_NUM_SPARSE", ports.sparse),
    ];
    if ports.first != PSERVER_PORT {
        variables.push(("PADDLE_INIT_PORT", ports.first));
        variables.push(("CONF_PADDLE_PORT", ports.first));
    }
    let own = variables
        .into_iter()
        .filter(|(name, _)| !container.env.contains_key(*name));
    own.map(|(name, value)| (name.to_owned(), value.to_string()))
        .collect()
}

fn site(assembly: &Assembly, container: &Container, team: &Team) -> Site {
    let user: UserName = container.parsed("PADDLE_CLOUD_USERNAME", "paddle");
    let datacenter: DatacenterName = container.parsed("PADDLE_CLOUD_CURRENT_DATACENTER", "cluster");
    let job_path = std::path::Path::new(&assembly.package).parent();
    Site {
        home: format!("/pfs/{datacenter}/home/{user}"),
        public: format!("/pfs/{datacenter}/public"),
        namespace: container
            .env
            .get("NAMESPACE")
            .cloned()
            .unwrap_or_else(|| user.namespace()),
        user,
        datacenter,
        package: assembly.package.clone(),
        job_path: job_path.map_or("/".to_owned(), |path| path.display().to_string()),
        output: assembly.output.clone(),
        rendezvous: rendezvous(assembly, team),
        nic: container.parsed("CONF_PADDLE_NIC", "eth0"),
        port_base: PORT_BASE,
    }
}

/// A folder that only this set of pods uses: its name derives from their addresses.
pub fn rendezvous(assembly: &Assembly, team: &Team) -> String {
    let first = team.trainers.first().map_or(0, |address| address.to_bits());
    let sum = team
        .trainers
        .iter()
        .chain(&team.pservers)
        .fold(0_u64, |sum, address| {
            sum.wrapping_mul(31).wrapping_add(address.to_bits().into())
        });
    format!("{}/.rendezvous/{first:08x}-{sum:016x}", assembly.output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::alone::peers::{Discovery, Names};
    use crate::launch::alone::{Ports, WorkerOrder};
    use std::time::Duration;

    fn assembly(first_port: u16) -> Assembly {
        Assembly {
            job: "my-job".into(),
            trainers: 2,
            pservers: 1,
            discovery: Discovery::Names(Names {
                trainers: vec![],
                pservers: vec![],
                role: Role::Trainer,
                index: 1,
            }),
            workers: vec![WorkerOrder {
                role: Role::Trainer,
                command: Box::new(|_| "python train.py".into()),
            }],
            package: "/job/demo".into(),
            output: "/job/demo/output".into(),
            ports: Ports {
                first: first_port,
                dense: 1,
                sparse: 1,
            },
            start_limit: Duration::from_secs(600),
            grace: Duration::from_secs(20),
            linger: Duration::from_secs(5),
            launch_port: 7160,
            env: Vec::new(),
            data: None,
        }
    }

    fn team() -> Team {
        Team {
            pservers: vec![[10, 0, 0, 1].into()],
            trainers: vec![[10, 0, 0, 2].into(), [10, 0, 0, 3].into()],
            index: 1,
            own: [10, 0, 0, 3].into(),
        }
    }

    /// A supervisor on one machine and this launcher give a worker the same environment, except for paths.
    #[test]
    fn a_worker_finds_what_core_plans() {
        let container = Container {
            cores: 2,
            ..Container::default()
        };
        let made = of(
            &assembly(PSERVER_PORT),
            &container,
            &team(),
            Role::Trainer,
            "python train.py",
        );
        let mut spec = JobSpec::new("my-job".parse().unwrap());
        spec.parallelism = 2;
        spec.pservers = 1;
        spec.entry = "python train.py".into();
        spec.trainer.cpu = Cpu::cores(2);
        let members: Vec<Member> = [
            (Role::Pserver, 0, "10.0.0.1"),
            (Role::Trainer, 0, "10.0.0.2"),
            (Role::Trainer, 1, "10.0.0.3"),
        ]
        .map(|(role, index, address)| Member {
            role,
            index,
            name: format!("{role}-{index}"),
            address: address.into(),
            finished: false,
            env: BTreeMap::new(),
        })
        .into();
        let site = site(&assembly(PSERVER_PORT), &container, &team());
        let mut planned = plan::plan_worker(&spec, &site, &members, Role::Trainer, 1).unwrap();
        planned.env.remove("PADDLE_PS_MEMORY");
        planned.env.insert("POD_IP".into(), "10.0.0.3".into());
        assert_eq!(made.env.into_iter().collect::<BTreeMap<_, _>>(), planned.env);
        assert_eq!(made.preamble, planned.preamble);
        assert_eq!(made.command, planned.command);
        assert_eq!(made.plain_log, Some("/job/demo/output/node_1/train.log".into()));
    }

    #[test]
    fn the_environment_of_the_manifest_wins() {
        let container = Container {
            env: [
                ("PADDLE_INIT_NUM_PASSES", "7"),
                ("JOB_NAMESPACE", "team"),
                ("LANG", "C"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
            ..Container::default()
        };
        let made = of(&assembly(9000), &container, &team(), Role::Trainer, "true");
        let value = |name: &str| {
            let found = made.env.iter().find(|(given, _)| given == name);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(value("PADDLE_INIT_NUM_PASSES"), Some("7"));
        assert_eq!(value("JOB_NAMESPACE"), Some("team"));
        assert_eq!(value("LANG"), Some("C"));
        assert_eq!(value("PADDLE_INIT_PORT"), Some("9000"));
    }
}
