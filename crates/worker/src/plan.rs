//! Turns what `core` planned for a worker into the plan that its supervisor obeys: the same for every engine.

use std::net::Ipv4Addr;

use paddlecloud_core::plan;

use crate::protocol::{Isolation, Limits, LogLimits, PrivateFile, WorkerPlan};

impl WorkerPlan {
    /// The plan of the attempt with this marker. An engine then sets what differs there: addresses, mounts, limits,
    /// where the output is kept, the user and the isolation.
    pub fn of(marker: String, planned: plan::WorkerPlan) -> WorkerPlan {
        let file = |(path, contents): (String, String)| PrivateFile {
            path: path.into(),
            contents,
        };
        WorkerPlan {
            marker,
            worker: planned.name,
            role: planned.role,
            index: planned.index,
            command: planned.command,
            env: planned.env.into_iter().collect(),
            workdir: planned.workdir.into(),
            address: Ipv4Addr::UNSPECIFIED,
            hosts: Vec::new(),
            binds: Vec::new(),
            hidden: Vec::new(),
            files: planned.files.into_iter().map(file).collect(),
            limits: Limits::default(),
            wait_for_go: planned.waits_for_all,
            preamble: planned.preamble,
            ready_ports: planned.ports,
            grace_ms: u64::try_from(planned.grace.as_millis().max(0)).unwrap_or(u64::MAX),
            log: LogLimits::default(),
            log_folder: None,
            plain_log: Some(planned.plain_log.into()),
            run_as: None,
            isolation: Isolation::default(),
            boot_id: String::new(),
        }
    }
}
