//! What the server says about itself and about the caller.

use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::server::{ServerInfo, WhoAmI};
use paddlecloud_core::quantity::{Bytes, Cpu};

use super::{App, store_failed};
use crate::auth::Caller;

impl App {
    pub fn whoami(&self, caller: &Caller) -> WhoAmI {
        WhoAmI {
            user: caller.user.to_string(),
            namespace: caller.user.namespace(),
            datacenter: self.config.datacenter.to_string(),
            home: self.storage.home_name(&caller.user),
            admin: caller.admin,
        }
    }

    /// Where it runs and what it has. Folders of the machine are shown to administrators only.
    pub fn server_show(&self, caller: &Caller) -> ServerInfo {
        let (jobs_pending, jobs_running) = self.jobs.counts();
        let nodes = &self.config.inventory.nodes;
        let (store, limits) = self.files.store();
        let private = |text: String| if caller.admin { text } else { String::new() };
        ServerInfo {
            version: crate::VERSION.to_owned(),
            pid: std::process::id(),
            embedded: self.config.embedded,
            datacenter: self.config.datacenter.to_string(),
            engine: self.config.engine.to_string(),
            listen: self.listen.join(", "),
            storage: private(store),
            storage_limits: limits.to_string(),
            data: private(self.config.data.display().to_string()),
            log: self
                .config
                .embedded
                .then(|| self.config.data.join("server.log").display().to_string()),
            database: private(self.config.database.to_string()),
            started: self.started.to_string(),
            cpu: Cpu::millis(nodes.iter().map(|node| node.cpu.as_millis()).sum()).to_string(),
            memory: Bytes::new(nodes.iter().map(|node| node.memory.as_u64()).sum()).to_string(),
            gpus: nodes.iter().map(|node| node.gpus).sum(),
            degraded: self.degraded.clone(),
            jobs_pending,
            jobs_running,
        }
    }

    /// Whether the server can take jobs.
    pub async fn ready_check(&self) -> Result<(), ErrorBody> {
        if self.stop.is_cancelled() {
            return Err(ErrorBody::new(ErrorName::Unavailable, "the server is stopping"));
        }
        self.store.ping().await.map_err(store_failed)
    }

    /// Counts, as Prometheus reads them.
    pub fn metrics_text(&self) -> String {
        let active = self.jobs.active();
        self.metrics
            .text(active.iter().map(|job| &**job), self.store.counts())
    }

    /// Lets the server stop once its replies are sent. Workers go on.
    pub fn server_stop(&self, caller: &Caller) -> Result<(), ErrorBody> {
        if !caller.admin {
            return Err(ErrorBody::new(
                ErrorName::Forbidden,
                "only an administrator may stop the server",
            ));
        }
        tracing::info!(user = %caller.user, "asked to stop");
        self.stop.cancel();
        Ok(())
    }
}
