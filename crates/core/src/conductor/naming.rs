//! Names of new jobs: whether one is taken, and the free name of a job that came without one.

use std::sync::Arc;

use crate::job::Job;
use crate::names::{JobId, JobName, UserName};
use crate::planted::{Planted, bug};

use super::{Conductor, Refusal, Submission};

/// How many names with a number are tried before one with the job's id.
const NUMBERED_NAMES: u32 = 50;

/// Where the name of a submitted job comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameOrigin {
    /// From the user. If another job holds it, the submit is refused.
    Request,
    /// From the package's folder. If another job holds it, the job gets a free name like it.
    Generated,
}

impl Conductor {
    /// The name that a submit would get now.
    pub fn name_of(&self, asked: &Submission) -> JobName {
        let name = &asked.spec.name;
        match asked.name {
            NameOrigin::Generated if !bug(Planted::GeneratedNameTaken) => {
                self.free_name(&asked.user, name, &asked.id)
            }
            NameOrigin::Request | NameOrigin::Generated => name.clone(),
        }
    }

    pub(super) fn check_name(&self, asked: &Submission, name: &JobName) -> Result<(), Refusal> {
        let Some(holder) = self
            .holder(&asked.user, name)
            .filter(|_| !bug(Planted::NamesNotChecked))
        else {
            return Ok(());
        };
        Err(Refusal::NameTaken {
            name: name.clone(),
            holder: holder.id.clone(),
            free: self.free_name(&asked.user, name, &asked.id),
        })
    }

    /// The job that holds the name. Only the latest run can.
    fn holder(&self, user: &UserName, name: &JobName) -> Option<&Arc<Job>> {
        let latest = self.names.runs(user, name).last()?;
        self.jobs
            .get(latest)
            .filter(|job| job.holds_name() || bug(Planted::NameKeptAfterKill))
    }

    /// This name if no job holds it, otherwise `name-2`, `name-3`, …
    fn free_name(&self, user: &UserName, name: &JobName, id: &JobId) -> JobName {
        let numbered = (2..=NUMBERED_NAMES).map(|number| name.with_suffix(&number.to_string()));
        let marked = || name.with_suffix(&id.as_str()[2..]);
        std::iter::once(name.clone())
            .chain(numbered)
            .chain(std::iter::once_with(marked))
            .find(|free| self.holder(user, free).is_none())
            .unwrap_or_else(|| name.clone())
    }
}

#[cfg(test)]
mod tests {
    use crate::conductor::tests::{conductor, submit};
    use crate::conductor::{Input, Reply};
    use crate::testing::samples::{id, job_name, noon, seconds, spec, user};

    use super::*;

    fn nameless(number: u32, folder: &str) -> Submission {
        Submission {
            id: id(number),
            user: user("ada"),
            spec: Arc::new(spec(folder, 0, 1)),
            name: NameOrigin::Generated,
            key: Some(format!("key-{number}").parse().unwrap()),
        }
    }

    fn name(conductor: &Conductor, number: u32) -> JobName {
        conductor.job(&id(number)).unwrap().spec.name.clone()
    }

    #[test]
    fn jobs_without_a_name_get_free_ones_in_the_order_they_come() {
        let mut conductor = conductor(1);
        conductor.handle([submit(1, "emb-2")], noon());
        let asked = [2, 3, 4, 3].map(|number| Input::Submit(nameless(number, "emb")));
        let output = conductor.handle(asked, seconds(1));
        let expected = [
            Reply::Accepted(id(2)),
            Reply::Accepted(id(3)),
            Reply::Accepted(id(4)),
            Reply::AlreadyAccepted(id(3)),
        ];
        assert_eq!(output.replies, expected.map(Ok));
        let names = [2, 3, 4].map(|number| name(&conductor, number));
        assert_eq!(names, ["emb", "emb-3", "emb-4"].map(job_name));
        assert_eq!(conductor.name_of(&nameless(5, "emb")), job_name("emb-5"));
        assert_eq!(conductor.check(&nameless(5, "emb")), Ok(None));
    }

    #[test]
    fn more_jobs_of_a_folder_than_are_numbered_have_their_ids_as_names() {
        let mut conductor = conductor(1);
        let many = (1..=NUMBERED_NAMES).map(|number| Input::Submit(nameless(number, "emb")));
        conductor.handle(many, noon());
        assert_eq!(name(&conductor, NUMBERED_NAMES), job_name("emb-50"));
        let next = nameless(NUMBERED_NAMES + 1, "emb");
        let by_id = job_name(&format!("emb-{}", &next.id.as_str()[2..]));
        assert_eq!(conductor.name_of(&next), by_id);
    }
}
