//! The simulated users: they submit, retry when no reply comes, kill, reuse names and clean up. Also their guarantees.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::SignedDuration;

use crate::conductor::{Input, NameOrigin, Refusal, Reply, Submission};
use crate::job::{AfterKill, IdempotencyKey};
use crate::names::{JobId, JobName, UserName};
use crate::quantity::{Bytes, Cpu};
use crate::scheduler::{GroupQuota, Guarantee, Quota};
use crate::spec::{JobSpec, Resources};
use crate::testing::rng::Rng;

use super::server::Asked;
use super::{Finding, World, broken};

#[derive(Default)]
pub(super) struct Clients {
    requests: Vec<Request>,
    killed: BTreeSet<JobId>,
    /// Jobs that a user asked to remove.
    removed: BTreeSet<JobId>,
    /// Acknowledged jobs and the requests that created them.
    acknowledged: BTreeMap<JobId, usize>,
    next_id: u32,
}

#[derive(Clone)]
struct Request {
    user: UserName,
    key: IdempotencyKey,
    spec: Arc<JobSpec>,
    name: NameOrigin,
    made: Option<JobId>,
    refused: bool,
}

impl Clients {
    pub(super) fn killed(&self, id: &JobId) -> bool {
        self.killed.contains(id)
    }
}

pub(super) fn users() -> [UserName; 2] {
    ["ada", "bob@example.org"].map(|name| name.parse().expect("a valid user name"))
}

/// In half of the worlds every user has a guarantee from the start.
pub(super) fn guarantees(rng: &mut Rng) -> Vec<(UserName, Quota)> {
    let everybody = rng.chance(50);
    let mut guaranteed = |user| {
        let guarantee = some_guarantee(rng);
        let quota = Quota {
            guarantee,
            ..Quota::default()
        };
        (user, quota)
    };
    users()
        .into_iter()
        .filter(|_| everybody)
        .map(&mut guaranteed)
        .collect()
}

fn some_guarantee(rng: &mut Rng) -> Guarantee {
    Guarantee {
        cpu: Cpu::cores(2 + rng.below(2) as u64),
        memory: Bytes::mib(4096),
        gpu: 2,
    }
}

impl World {
    pub(super) fn submit(&mut self) -> Finding {
        let name = format!("job-{}", self.rng.below(5));
        let name: JobName = name.parse().expect("a valid job name");
        let user = self.users[self.rng.below(2)].clone();
        match self.rng.chance(20) {
            true => self.submit_nameless(&user, &name),
            false => self.submit_named(user, name),
        }
    }

    fn submit_named(&mut self, user: UserName, name: JobName) -> Finding {
        let asked = self.request(user, name, NameOrigin::Request);
        self.serve(asked)
    }

    /// Some jobs of one folder at the same moment, all without a name.
    fn submit_nameless(&mut self, user: &UserName, folder: &JobName) -> Finding {
        let mut asked = Vec::new();
        for _ in 0..=self.rng.below(3) {
            asked.extend(self.request(user.clone(), folder.clone(), NameOrigin::Generated));
        }
        self.serve(asked)
    }

    fn request(&mut self, user: UserName, name: JobName, origin: NameOrigin) -> Vec<Asked> {
        let number = self.clients.requests.len();
        let spec = Arc::new(self.some_spec(name));
        let key: IdempotencyKey = format!("key-{number}").parse().expect("a valid key");
        self.clients.requests.push(Request {
            user,
            key,
            spec,
            name: origin,
            made: None,
            refused: false,
        });
        let copies = if self.rng.chance(15) { 2 } else { 1 };
        (0..copies).map(|_| self.submission(number)).collect()
    }

    /// A user who got no reply, or is not sure, repeats the request with the same key.
    pub(super) fn submit_again(&mut self) -> Finding {
        let open: Vec<usize> = (0..self.clients.requests.len())
            .filter(|number| !self.clients.requests[*number].refused)
            .collect();
        let Some(number) = self.rng.pick(&open).copied() else {
            return Ok(());
        };
        let Request { user, key, .. } = &self.clients.requests[number];
        // A server first looks in its store, which also has jobs that ended long ago.
        if self.server.is_some()
            && let Some(id) = self.store.find_by_key(user, key).cloned()
        {
            return self.check_accepted(number, id);
        }
        let made = self.clients.requests[number].made.as_ref();
        if made.is_some_and(|id| self.clients.removed.contains(id)) {
            return Ok(());
        }
        let asked = vec![self.submission(number)];
        self.serve(asked)
    }

    fn submission(&mut self, number: usize) -> Asked {
        let request = self.clients.requests[number].clone();
        self.clients.next_id += 1;
        let millis = u64::try_from(self.clock().as_millisecond()).unwrap_or_default();
        let id = JobId::new(millis, self.clients.next_id);
        self.note(|| {
            format!(
                "submit: {} {} by {} ({})",
                id, request.spec.name, request.user, request.key
            )
        });
        let Request {
            user,
            key,
            spec,
            name,
            ..
        } = request;
        let submission = Submission {
            id,
            user,
            spec,
            name,
            key: Some(key),
        };
        Asked {
            input: Input::Submit(submission),
            client: Some(number),
        }
    }

    fn some_spec(&mut self, name: JobName) -> JobSpec {
        let rng = &mut self.rng;
        let mut spec = JobSpec::new(name);
        let size = |gpu: u32| Resources {
            cpu: Cpu::cores(1),
            memory: Bytes::mib(512),
            gpu,
        };
        spec.package = Some("/pfs/local/home/ada/package".into());
        spec.parallelism = 1 + rng.below(3) as u32;
        spec.pservers = rng.below(3) as u32;
        spec.trainer = size(u32::from(rng.chance(20)));
        spec.pserver = size(0);
        if rng.chance(5) {
            spec.trainer.cpu = Cpu::cores(20);
        }
        spec.retries = rng.below(3) as u32;
        spec.priority = rng.below(3) as i32 - 1;
        spec.max_runtime = rng.chance(30).then(|| SignedDuration::from_mins(20));
        spec.grace = SignedDuration::from_secs(5);
        spec
    }

    pub(super) fn kill(&mut self) -> Finding {
        let active: Vec<_> = self.store.active().cloned().collect();
        let Some(job) = self.rng.pick(&active).cloned() else {
            return Ok(());
        };
        let after = if self.rng.chance(30) {
            AfterKill::Remove
        } else {
            AfterKill::KeepInHistory
        };
        if self.server.is_some() {
            self.clients.killed.insert(job.id.clone());
            if after == AfterKill::Remove {
                self.clients.removed.insert(job.id.clone());
            }
        }
        self.note(|| format!("kill: {} {after:?}", job.id));
        let kill = Input::Kill {
            job: job.id.clone(),
            after,
        };
        // A user who removes a job does not wait for its grace period either.
        let hurry = (after == AfterKill::Remove).then(|| Input::SkipGrace { job: job.id.clone() });
        let asked = [kill].into_iter().chain(hurry).map(|input| Asked {
            input,
            client: Some(0),
        });
        self.serve(asked.collect())?;
        if self.rng.chance(50) {
            return self.submit_named(job.user.clone(), job.spec.name.clone());
        }
        Ok(())
    }

    pub(super) fn remove(&mut self) -> Finding {
        let over: Vec<_> = self
            .store
            .all()
            .filter(|job| job.phase.is_final())
            .map(|job| job.id.clone())
            .collect();
        let Some(job) = self.rng.pick(&over).cloned() else {
            return Ok(());
        };
        if self.server.is_some() {
            self.clients.removed.insert(job.clone());
        }
        self.serve(vec![Asked {
            input: Input::Remove { job },
            client: Some(0),
        }])
    }

    pub(super) fn change_quota(&mut self) -> Finding {
        let user = self.users[self.rng.below(2)].clone();
        let quota = match self.rng.chance(50) {
            true => Quota {
                cpu: Some(Cpu::cores(1 + self.rng.below(6) as u64)),
                ..Quota::default()
            },
            false => Quota {
                guarantee: some_guarantee(&mut self.rng),
                ..Quota::default()
            },
        };
        self.quotas.retain(|(other, _)| *other != user);
        self.quotas.push((user.clone(), quota));
        self.serve(vec![Asked::without_client(Input::QuotaChanged { user, quota })])
    }

    /// Limits what all users together have running, or takes the limit away.
    pub(super) fn change_group_quota(&mut self) -> Finding {
        let limited = self.rng.chance(70);
        let quota = GroupQuota {
            group: "all".into(),
            quota: Quota {
                cpu: Some(Cpu::cores(1 + self.rng.below(6) as u64)),
                ..Quota::default()
            },
            members: self.users.to_vec(),
        };
        self.group_quotas = limited.then_some(quota).into_iter().collect();
        let input = Input::GroupQuotasChanged(self.group_quotas.clone());
        self.serve(vec![Asked::without_client(input)])
    }

    pub(super) fn check_reply(
        &mut self,
        client: Option<usize>,
        input: &Input,
        reply: Result<Reply, Refusal>,
    ) -> Finding {
        match (input, reply, client) {
            (Input::Submit(_), Ok(Reply::Accepted(id)), Some(number)) => {
                self.coverage.accepted += 1;
                self.check_accepted(number, id)
            }
            (Input::Submit(_), Ok(Reply::AlreadyAccepted(id)), Some(number)) => {
                self.coverage.accepted_again += 1;
                self.check_accepted(number, id)
            }
            (Input::Submit(asked), Err(refusal), Some(number)) => {
                self.clients.requests[number].refused = true;
                self.check_refused(asked, &refusal)
            }
            (Input::Kill { job, .. }, Ok(_), _) => self.check_killed(job),
            (Input::Kill { job, .. }, Err(_), _) => match self.store.get(job) {
                Some(stored) if !stored.phase.is_final() => broken(format!("the kill of {job} is refused")),
                _ => Ok(()),
            },
            (Input::Remove { job }, Ok(_), _) => {
                self.coverage.removed += 1;
                match self.store.get(job) {
                    Some(_) => broken(format!("{job} is said to be removed and is there")),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn check_accepted(&mut self, number: usize, id: JobId) -> Finding {
        if self.store.get(&id).is_none() && !self.clients.removed.contains(&id) {
            return broken(format!("{id} is acknowledged and not stored"));
        }
        let request = &mut self.clients.requests[number];
        if let Some(made) = request.made.as_ref().filter(|made| **made != id) {
            return broken(format!("{} made two jobs: {made} and {id}", request.key));
        }
        request.made = Some(id.clone());
        let asked = &request.spec.name;
        let named = self.store.get(&id).map_or(asked, |job| &job.spec.name);
        match request.name {
            NameOrigin::Request if named != asked => {
                return broken(format!("{asked} was asked for, and {id} is named {named}"));
            }
            NameOrigin::Generated if named != asked => self.coverage.other_name += 1,
            NameOrigin::Request | NameOrigin::Generated => {}
        }
        self.clients.acknowledged.insert(id, number);
        Ok(())
    }

    fn check_refused(&mut self, asked: &Submission, refusal: &Refusal) -> Finding {
        match refusal {
            Refusal::NameTaken { name, holder, free } => {
                self.coverage.name_refused += 1;
                if asked.name == NameOrigin::Generated {
                    return broken(format!("{} is refused for a name it did not ask for", asked.id));
                }
                let Some(holder) = self.store.get(holder).filter(|job| job.holds_name()) else {
                    return broken(format!("{name} is refused, but {holder} does not hold it"));
                };
                if holder.key == asked.key {
                    return broken(format!("{name} is refused because of its own job {}", holder.id));
                }
                match self.store.holder(&asked.user, free) {
                    Some(other) => broken(format!("{free} is offered, but {} has it", other.id)),
                    None => Ok(()),
                }
            }
            Refusal::TooBig(_) if !self.policy.oversubscribe_alone => Ok(()),
            Refusal::TooBig(_) if asked.spec.total().gpu as usize > 2 * self.inventory.nodes.len() => Ok(()),
            Refusal::TooBig(_) if self.has_quota(&asked.user) => Ok(()),
            other => broken(format!("{} is refused: {other}", asked.id)),
        }
    }

    fn has_quota(&self, user: &UserName) -> bool {
        !self.group_quotas.is_empty()
            || self
                .quotas
                .iter()
                .any(|(other, quota)| other == user && quota.cpu.is_some())
    }

    fn check_killed(&self, id: &JobId) -> Finding {
        match self.store.get(id) {
            Some(job) if !job.kill_requested => broken(format!("the kill of {id} is not stored")),
            None if !self.clients.removed.contains(id) => broken(format!("the kill removed {id}")),
            _ => Ok(()),
        }
    }

    /// Every acknowledged job exists, unless a user removed it.
    pub(super) fn check_acknowledged(&self) -> Finding {
        let lost = |id: &&JobId| self.store.get(id).is_none() && !self.clients.removed.contains(*id);
        match self.clients.acknowledged.keys().find(lost) {
            Some(id) => broken(format!("{id} was acknowledged and is lost")),
            None => Ok(()),
        }
    }
}
