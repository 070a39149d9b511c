//! Finding the job somebody means.

use std::sync::Arc;

use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_core::job::Job;
use paddlecloud_core::names::{JobName, JobRef, UserName};
use paddlecloud_core::ports::JobStore;

use super::{App, store_failed};
use crate::auth::Caller;
use crate::nearest::nearest;

impl App {
    /// The job a caller means: any run by id, the latest by name. Other people's jobs are not there.
    pub async fn job_find(&self, caller: &Caller, target: &JobRef) -> Result<Arc<Job>, ErrorBody> {
        let found = match target {
            JobRef::Id(id) => {
                let job = match self.jobs.get(id) {
                    Some(job) => Some(job),
                    None => self.store.get(id).await.map_err(store_failed)?,
                };
                job.filter(|job| job.user == caller.user || caller.admin)
            }
            JobRef::Name(name) => self.latest(&caller.user, Some(name)).await?,
            JobRef::Latest => self.latest(&caller.user, None).await?,
        };
        found.ok_or_else(|| self.no_such_job(caller, target))
    }

    /// The latest run, as new as it is known: what the store has, unless memory has it too.
    async fn latest(&self, user: &UserName, name: Option<&JobName>) -> Result<Option<Arc<Job>>, ErrorBody> {
        let stored = self.store.latest(user, name).await.map_err(store_failed)?;
        let wanted = |job: &Arc<Job>| job.user == *user && name.is_none_or(|name| job.spec.name == *name);
        let active = self
            .jobs
            .active()
            .into_iter()
            .filter(wanted)
            .max_by(|left, right| left.id.cmp(&right.id));
        Ok(match (active, stored) {
            (Some(active), Some(stored)) if stored.id > active.id => Some(stored),
            (Some(active), _) => Some(active),
            (None, stored) => stored,
        })
    }

    fn no_such_job(&self, caller: &Caller, target: &JobRef) -> ErrorBody {
        let problem = match target {
            JobRef::Latest => "there is no job yet".to_owned(),
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
