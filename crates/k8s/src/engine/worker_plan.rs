//! What a worker finds in its pod: the domain's plan as a supervisor's plan, and the mounts.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use paddlecloud_core::job::{Job, Worker};
use paddlecloud_core::plan::{self, Member, Site};
use paddlecloud_core::ports::{Assignment, PreparedRun, WorkDir};
use paddlecloud_worker::protocol::{LogLimits, WorkerPlan};

use super::Inner;
use super::records::PodRecord;
use crate::names;
use crate::render::Mount;

/// A pod has all ports to itself, so every run can use the same ones.
const PORT_BASE: u16 = 10_000;
/// The network device with the pod's address.
const DEVICE: &str = "eth0";
/// The folder of uploads, below a home.
const PACKAGES: &str = ".paddlecloud/packages";
/// Output is spooled in small segments, so that stored output can be removed early.
const SPOOL_SEGMENT: u64 = 1 << 20;

/// The plan of one worker; `None` if the job has no such worker.
///
/// Peers are named, not addressed: a worker that is restarted elsewhere keeps its name. The pod's own address is
/// filled in when its launcher connects.
pub fn make(inner: &Inner, assignment: &Assignment) -> Option<WorkerPlan> {
    let job = &assignment.job;
    let worker = job.worker(assignment.worker)?;
    let view = View::new(inner, assignment);
    let members: Vec<Member> = job
        .workers
        .iter()
        .map(|worker| Member::of(worker, BTreeMap::new()))
        .collect();
    let site = view.site(inner, assignment);
    let planned = plan::plan_worker(&job.spec, &site, &members, worker.key.role, worker.key.index)?;
    let plan = WorkerPlan::of(assignment.key().to_string(), planned);
    let hosts = job
        .workers
        .iter()
        .map(|worker| (worker.name.clone(), Ipv4Addr::UNSPECIFIED));
    Some(WorkerPlan {
        env: plan.env.into_iter().chain([run_secret(inner, job)]).collect(),
        hosts: hosts.collect(),
        log: LogLimits {
            segment_bytes: inner.log_limits.segment_bytes.min(SPOOL_SEGMENT),
            keep_bytes: inner.log_limits.keep_bytes,
        },
        log_folder: Some(format!("{}/{}/log", view.home, spool(assignment)).into()),
        plain_log: plan.plain_log.filter(|_| inner.log_copy),
        ..plan
    })
}

/// The record of a worker's pod, before that is created.
pub fn pod_record(inner: &Inner, assignment: &Assignment, worker: &Worker) -> PodRecord {
    let job = &assignment.job;
    PodRecord {
        namespace: inner.namespace_of(&job.user),
        name: names::pod(worker, assignment.attempt),
        owner: names::owner(job),
        home: inner.storage.join("home").join(job.user.as_str()),
        spool: spool(assignment).into(),
        created: false,
        disruptions: worker.disruptions,
        is_restart: job.is_under_way(),
        pinned: pinned_node(inner, assignment).is_some(),
    }
}

/// Where an attempt's output waits, below the user's home.
fn spool(assignment: &Assignment) -> String {
    format!("{}/spool/{}", assignment.run.folder, assignment.key().name())
}

/// The node that our scheduler chose for this attempt. A worker whose node is gone, or that was disrupted, goes where
/// the cluster has room.
pub fn pinned_node<'a>(inner: &Inner, assignment: &'a Assignment) -> Option<&'a str> {
    let job = &assignment.job;
    let position = job.position(assignment.worker)?;
    let node = job.placement.as_ref()?.workers.get(position)?.node.as_str();
    let kept = job.worker(assignment.worker)?.disruptions == 0
        && (!job.is_under_way() || inner.room().has_node(node));
    (inner.settings.pins() && kept).then_some(node)
}

/// The secret by which trainers and parameter servers of one run authenticate each other.
fn run_secret(inner: &Inner, job: &Job) -> (String, String) {
    let secret = paddlecloud_link::secret(&inner.link_key, &format!("run {}", job.id));
    ("PADDLE_PS_SECRET".to_owned(), secret)
}

/// The plan for a pod with this address.
pub fn addressed(mut plan: WorkerPlan, address: Ipv4Addr) -> WorkerPlan {
    plan.address = address;
    if !plan.env.iter().any(|(name, _)| name == "POD_IP") {
        plan.env.push(("POD_IP".to_owned(), address.to_string()));
    }
    for (name, known) in &mut plan.hosts {
        if *name == plan.worker {
            *known = address;
        }
    }
    plan.hosts.retain(|(_, known)| !known.is_unspecified());
    plan
}

/// Paths as a job's workers see them.
struct View {
    home: String,
    public: String,
    workdir: String,
}

impl View {
    fn new(inner: &Inner, assignment: &Assignment) -> View {
        let (datacenter, run) = (&inner.datacenter, &assignment.run);
        let home = format!("/pfs/{datacenter}/home/{}", assignment.job.user);
        let public = format!("/pfs/{datacenter}/public");
        let workdir = match (&run.shown, &run.workdir) {
            (Some(shown), _) => format!("{home}/{shown}"),
            (None, WorkDir::Home(below)) => format!("{home}/{below}"),
            (None, WorkDir::Public(below)) => format!("{public}/{below}"),
        };
        View {
            home,
            public,
            workdir,
        }
    }

    fn site(&self, inner: &Inner, assignment: &Assignment) -> Site {
        let PreparedRun {
            folder,
            output,
            rendezvous,
            ..
        } = &*assignment.run;
        Site {
            user: assignment.job.user.clone(),
            namespace: inner.namespace_of(&assignment.job.user),
            datacenter: inner.datacenter.clone(),
            package: self.workdir.clone(),
            job_path: format!("{}/{folder}", self.home),
            output: format!("{}/{output}", self.home),
            home: self.home.clone(),
            public: self.public.clone(),
            rendezvous: format!("{}/{rendezvous}", self.home),
            nic: DEVICE.to_owned(),
            port_base: PORT_BASE,
        }
    }
}

/// `/pfs/…` under both documented spellings; within it, `latest` points to this run.
pub fn mounts(inner: &Inner, assignment: &Assignment) -> Vec<Mount> {
    let (datacenter, user) = (&inner.datacenter, &assignment.job.user);
    let home = format!("home/{user}");
    let mut mounts = Vec::new();
    for word in ["home", "user"] {
        let target = format!("/pfs/{datacenter}/{word}/{user}");
        mounts.push(Mount {
            source: home.clone(),
            target: target.clone(),
            read_only: false,
        });
        mounts.push(Mount {
            source: format!("{home}/{}", assignment.run.own_latest),
            target: format!("{target}/.paddlecloud/latest"),
            read_only: false,
        });
        // Later submits are compared with uploaded packages, so jobs must not change them.
        mounts.push(Mount {
            source: format!("{home}/{PACKAGES}"),
            target: format!("{target}/{PACKAGES}"),
            read_only: true,
        });
    }
    for target in [format!("/pfs/{datacenter}/public"), "/pfs/public".to_owned()] {
        mounts.push(Mount {
            source: "public".to_owned(),
            target,
            read_only: true,
        });
    }
    mounts
}
