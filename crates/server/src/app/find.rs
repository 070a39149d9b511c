//! Finds the job that a caller means.

use std::sync::Arc;

use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_core::job::Job;
use paddlecloud_core::names::JobRef;
use paddlecloud_core::ports::JobStore;

use super::{App, store_failed};
use crate::auth::{Action, Caller};
use crate::nearest::nearest;

impl App {
    /// The job a caller means: any run by id, the latest by name. Other users' jobs do not exist for the caller.
    ///
    /// The store is as current as memory: every change is written before anyone sees it.
    pub async fn job_find(&self, caller: &Caller, target: &JobRef) -> Result<Arc<Job>, ErrorBody> {
        let found = match target {
            JobRef::Id(id) => match self.jobs.get(id) {
                Some(job) => Ok(Some(job)),
                None => self.store.get(id).await,
            },
            JobRef::Name(name) => self.store.latest(&caller.user, Some(name)).await,
            JobRef::Latest => self.store.latest(&caller.user, None).await,
        };
        let job = found.map_err(store_failed)?;
        let own = job.filter(|job| caller.may(Action::UseOf(&job.user)));
        own.ok_or_else(|| self.no_such_job(caller, target))
    }

    fn no_such_job(&self, caller: &Caller, target: &JobRef) -> ErrorBody {
        let problem = match target {
            JobRef::Latest => "there are no jobs yet".to_owned(),
            other => format!("there is no job `{other}`"),
        };
        let active = self.jobs.active();
        let own = active.iter().filter(|job| job.user == caller.user);
        let near = nearest(&target.to_string(), own.map(|job| job.spec.name.as_str())).map(str::to_owned);
        let hint = match (target, near) {
            (JobRef::Latest, _) => "`paddlectl submit` starts one".to_owned(),
            (_, Some(near)) => format!("did you mean `{near}`?"),
            (_, None) => "`paddlectl get jobs -a` lists all of them".to_owned(),
        };
        ErrorBody::new(ErrorName::NotFound, problem).with_hint(hint)
    }
}
