//! The sentences of `why`, from a reason in which every job is already a [`Mention`].
//!
//! Commands and flags of `paddlectl` are named here, not in the scheduler.

use paddlecloud_core::conductor::Recovery;
use paddlecloud_core::duration;
use paddlecloud_core::job::{Phase, runs_alone};
use paddlecloud_core::quantity::counted;
use paddlecloud_core::scheduler::{
    Change, ExceededLimit, Holders, Matching, Reason, StorageExcess, StorageHold,
};

use super::{Mention, Owner};

/// The assumptions of an estimate.
pub(super) const ESTIMATE_BASIS: &str =
    "if running jobs use their full -max-runtime and no job of higher priority arrives";

const ANOTHERS: &str = "another user's job";

/// `word-emb (j_…)` in backticks, or that it is another user's job.
fn quoted(mention: &Mention) -> String {
    match known(mention) {
        Some(name) => format!("`{name}`"),
        None => unknown(mention).to_owned(),
    }
}

/// `word-emb (j_…)`; `None` if the reader may not see it.
pub(super) fn known(mention: &Mention) -> Option<String> {
    match mention {
        Mention::Own(job) | Mention::Seen(job) => Some(format!("{} ({})", job.spec.name, job.id)),
        Mention::Hidden | Mention::Ended => None,
    }
}

fn unknown(mention: &Mention) -> &'static str {
    match mention {
        Mention::Ended => "a job that has just ended",
        _ => ANOTHERS,
    }
}

/// Whether the job was killed, or has failed, and its workers terminate.
pub(super) fn is_stopping(mention: &Mention) -> bool {
    match mention {
        Mention::Own(job) | Mention::Seen(job) => matches!(job.phase, Phase::Stopping(_)),
        Mention::Hidden | Mention::Ended => false,
    }
}

/// `your`, or `the user's`.
fn whose(owner: Owner) -> &'static str {
    match owner {
        Owner::Reader => "your",
        Owner::Another => "the user's",
    }
}

/// `your quota of 2 cores`.
fn quota(limit: &ExceededLimit, owner: Owner) -> String {
    let amount = limit.kind.amount(limit.limit);
    let whose = whose(owner);
    match &limit.group {
        None => format!("{whose} quota of {amount}"),
        Some(group) => format!("the total of {amount} of {whose} group `{group}`"),
    }
}

/// One line on why a job waits, with the nodes that could otherwise help.
pub(super) fn waiting(
    waits_for: &Reason<Mention>,
    matching: Option<&Matching>,
    closed_nodes: usize,
    owner: Owner,
) -> String {
    let mut text = reason(waits_for, owner);
    let has_counted = matches!(waits_for, Reason::TooBig(_));
    if let Some(matching) = matching.filter(|_| !has_counted) {
        text.push_str(&format!("; {matching}"));
    }
    let lacks_room = matches!(
        waits_for,
        Reason::TooBig(_) | Reason::Room { .. } | Reason::Scattered { .. }
    );
    if lacks_room && closed_nodes > 0 {
        let is = if closed_nodes == 1 { "is" } else { "are" };
        let nodes = counted(closed_nodes as u128, "node");
        text.push_str(&format!(
            "; {nodes} of the cluster {is} cordoned, tainted or not ready"
        ));
    }
    text
}

/// One line on why a job waits: `waits for 3 cores: 4 requested, 1 of 8 free`.
fn reason(reason: &Reason<Mention>, owner: Owner) -> String {
    match reason {
        Reason::Alone { job, excess, ends_by } => {
            let end = match ends_by {
                _ if is_stopping(job) => "it is stopping".to_owned(),
                Some(end) => format!("its -max-runtime ends it by {end:.0}"),
                None => "it has no -max-runtime, so its end is unknown".to_owned(),
            };
            format!(
                "waits for {}, which runs alone because it is larger than the machine ({excess}); {end}",
                quoted(job)
            )
        }
        Reason::TooBig(excess) => format!("cannot start on these machines: {excess}"),
        Reason::BeyondQuota(limit) => format!(
            "cannot start within {}: {} requested",
            quota(limit, owner),
            limit.kind.amount(limit.asked)
        ),
        Reason::Quota(limit) => format!(
            "{}: {} in use, {} requested",
            quota(limit, owner),
            limit.kind.number(limit.used),
            limit.kind.number(limit.asked)
        ),
        Reason::Storage(StorageHold::Over(excess)) => {
            let end = match excess {
                StorageExcess::Unreadable { .. } => "it is readable or removed",
                StorageExcess::Bytes { .. } | StorageExcess::Files { .. } => "enough is removed",
            };
            format!("{} files {excess}; no job starts until {end}", whose(owner))
        }
        Reason::Storage(StorageHold::Unmeasured) => format!(
            "waits until {} files are compared with the storage quota",
            whose(owner)
        ),
        Reason::BehindOwn(job) => format!(
            "behind {} job {}, which waits for a quota",
            whose(owner),
            quoted(job)
        ),
        Reason::NeedsEverything { excess, held_by } => {
            let alone = runs_alone(excess);
            format!("waits until nothing else runs: {alone}{}", running(held_by))
        }
        Reason::Room { short, of, held_by } => {
            let kind = short.kind;
            format!(
                "waits for {}: {} requested, {} of {} free{}",
                kind.amount(short.lack()),
                kind.number(short.asked),
                kind.number(short.there),
                kind.number(*of),
                held(held_by)
            )
        }
        Reason::Scattered {
            trainers,
            workers,
            fitting,
            held_by,
        } => {
            let short = match fitting {
                Some(count) => format!(
                    "{} requested, {count} would fit now",
                    counted(u128::from(*trainers), "trainer")
                ),
                None => format!(
                    "none has enough for its {}",
                    counted(u128::from(*workers), "worker")
                ),
            };
            format!("waits for room on single machines: {short}{}", held(held_by))
        }
        Reason::Kept { job, ahead, higher } => {
            format!(
                "{}; what is free is reserved for {}",
                behind(*ahead, *higher),
                quoted(job)
            )
        }
        Reason::NextRound => "starts with the next scheduling decision".to_owned(),
    }
}

/// `behind 2 jobs of higher priority`.
fn behind(ahead: usize, higher: usize) -> String {
    let jobs = counted(ahead as u128, "job");
    match higher {
        0 => format!("behind {jobs} in the queue"),
        higher if higher == ahead => format!("behind {jobs} of higher priority"),
        higher => format!("behind {jobs}, {higher} of them of higher priority"),
    }
}

/// `; held by `big (j_…)` and another user's job; pods outside PaddleCloud hold 1.5 cores`.
fn held(holders: &Holders<Mention>) -> String {
    let jobs = listed(holders).map(|jobs| format!("; held by {jobs}"));
    // Only a cluster has other workloads.
    let outside = holders.outside.map(|outside| {
        let amount = outside.kind.amount(outside.amount);
        format!("; pods outside PaddleCloud hold {amount}")
    });
    jobs.into_iter().chain(outside).collect()
}

/// `; running now: …`.
fn running(holders: &Holders<Mention>) -> String {
    match listed(holders) {
        Some(jobs) => format!("; running now: {jobs}"),
        None => String::new(),
    }
}

/// The jobs that may be named, then the number of others.
fn listed(holders: &Holders<Mention>) -> Option<String> {
    let named: Vec<String> = holders
        .jobs
        .iter()
        .filter(|job| known(job).is_some())
        .map(quoted)
        .collect();
    let others = holders.total.saturating_sub(named.len());
    let hidden = holders.jobs.iter().any(|job| matches!(job, Mention::Hidden));
    let rest = match (others, hidden, named.is_empty()) {
        (0, _, _) | (_, false, true) => None,
        (1, true, _) => Some(ANOTHERS.to_owned()),
        (_, true, true) => Some("jobs of other users".to_owned()),
        (more, _, false) => Some(counted(more as u128, "more job")),
    };
    match (named.is_empty(), rest) {
        (true, rest) => rest,
        (false, None) => Some(named.join(", ")),
        (false, Some(rest)) => Some(format!("{} and {rest}", named.join(", "))),
    }
}

/// What happens to a running job that lacks a worker, and when.
pub(super) fn recovery(recovery: &Recovery) -> String {
    let Recovery {
        limit,
        at,
        is_room_needed,
    } = recovery;
    match is_room_needed {
        true => format!(
            "other jobs wait for room, so without a node by {at:.0} the job gives up its own and is queued again \
             (`recovery_limit: {limit:#}`)"
        ),
        false => format!(
            "the job keeps its room until another job needs it, and then is queued again, not before {at:.0} \
             (`recovery_limit: {limit:#}`)"
        ),
    }
}

/// ``would start now with `-parallelism 6` ``.
pub(super) fn change(change: &Change<Mention>) -> String {
    let flag = match change {
        Change::Trainers(count) => format!("-parallelism {count}"),
        Change::Pservers(count) => format!("-pservers {count}"),
        Change::Gpu(count) => format!("-gpu {count}"),
        Change::Memory(bytes) => format!("-memory {bytes}"),
        Change::Cpu(cpu) => format!("-cpu {cpu}"),
        Change::MaxRuntime(limit) => format!("-max-runtime {}", duration::print(*limit)),
        Change::End(job) => return format!("would start now after `paddlectl kill {}`", kill_target(job)),
    };
    format!("would start now with `{flag}`")
}

/// The name if it refers to this run, otherwise the id.
fn kill_target(job: &Mention) -> String {
    match job {
        Mention::Own(job) if job.holds_name() => job.spec.name.to_string(),
        Mention::Own(job) | Mention::Seen(job) => job.id.to_string(),
        Mention::Hidden | Mention::Ended => unknown(job).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use paddlecloud_core::job::{Job, Outcome};
    use paddlecloud_core::quantity::{Bytes, Cpu};
    use paddlecloud_core::scheduler::{Excess, LimitKind, Outside, Requirement, ResourceKind, Shortage};
    use paddlecloud_core::testing::samples;

    use super::*;

    fn job() -> Arc<Job> {
        Arc::new(samples::starting(1, samples::spec("big", 0, 1)))
    }

    fn own() -> Mention {
        Mention::Own(job())
    }

    fn short(kind: ResourceKind, asked: u128, there: u128) -> Shortage {
        Shortage { kind, asked, there }
    }

    fn holders(jobs: Vec<Mention>, total: usize) -> Holders<Mention> {
        Holders {
            jobs,
            total,
            outside: None,
        }
    }

    fn cores(held_by: Holders<Mention>) -> Reason<Mention> {
        Reason::Room {
            short: short(ResourceKind::Cpu, 4000, 1000),
            of: 8000,
            held_by,
        }
    }

    /// Replaces ids, which differ between runs of the tests, with `ID`.
    fn shown(text: String) -> String {
        text.replace(job().id.as_str(), "ID")
    }

    #[test]
    fn every_reason_reads_as_a_sentence() {
        let excess = || Excess::Together(vec![short(ResourceKind::Cpu, 5000, 2000)]);
        let limit = |group: Option<&str>| ExceededLimit {
            group: group.map(Into::into),
            kind: LimitKind::Resource(ResourceKind::Memory),
            limit: 10 << 30,
            used: 8 << 30,
            asked: 24_684_100 << 10,
        };
        let scattered = |fitting| Reason::Scattered {
            trainers: 3,
            workers: 1,
            fitting,
            held_by: holders(vec![own()], 1),
        };
        let reasons = [
            Reason::Alone {
                job: own(),
                excess: excess(),
                ends_by: Some("2026-01-01T00:01:00Z".parse().unwrap()),
            },
            Reason::Alone {
                job: Mention::Hidden,
                excess: excess(),
                ends_by: None,
            },
            Reason::TooBig(Excess::OneByOne),
            Reason::BeyondQuota(limit(None)),
            Reason::Quota(limit(None)),
            Reason::BeyondQuota(limit(Some("vision"))),
            Reason::Quota(limit(Some("vision"))),
            Reason::BehindOwn(own()),
            Reason::Storage(StorageHold::Over(StorageExcess::Bytes {
                used: 209 << 20,
                limit: 10 << 20,
            })),
            Reason::Storage(StorageHold::Over(StorageExcess::Files {
                used: 1201,
                limit: 1000,
            })),
            Reason::Storage(StorageHold::Over(StorageExcess::Unreadable {
                folder: "/pfs/dc/home/ann/closed".into(),
            })),
            Reason::Storage(StorageHold::Unmeasured),
            Reason::NeedsEverything {
                excess: excess(),
                held_by: holders(vec![Mention::Hidden], 1),
            },
            scattered(Some(2)),
            scattered(None),
            Reason::Kept {
                job: Mention::Hidden,
                ahead: 3,
                higher: 1,
            },
            Reason::Kept {
                job: own(),
                ahead: 1,
                higher: 0,
            },
            Reason::NextRound,
        ];
        let shown: Vec<String> = reasons
            .iter()
            .map(|why| shown(reason(why, Owner::Reader)))
            .collect();
        insta::assert_snapshot!(shown.join("\n"), @r"
        waits for `big (ID)`, which runs alone because it is larger than the machine (5 cores requested, 2 in total); its -max-runtime ends it by 2026-01-01T00:01:00Z
        waits for another user's job, which runs alone because it is larger than the machine (5 cores requested, 2 in total); it has no -max-runtime, so its end is unknown
        cannot start on these machines: the workers do not fit onto the individual machines
        cannot start within your quota of 10 GiB of memory: 23.5 GiB of memory requested
        your quota of 10 GiB of memory: 8 GiB in use, 23.5 GiB requested
        cannot start within the total of 10 GiB of memory of your group `vision`: 23.5 GiB of memory requested
        the total of 10 GiB of memory of your group `vision`: 8 GiB in use, 23.5 GiB requested
        behind your job `big (ID)`, which waits for a quota
        your files exceed the storage quota: 209 MiB of 10 MiB in use; no job starts until enough is removed
        your files exceed the storage quota: 1201 of 1000 files in use; no job starts until enough is removed
        your files cannot be compared with the storage quota: the server may not read `/pfs/dc/home/ann/closed`; no job starts until it is readable or removed
        waits until your files are compared with the storage quota
        waits until nothing else runs: 5 cores requested, 2 in total: it runs alone, other jobs wait; running now: another user's job
        waits for room on single machines: 3 trainers requested, 2 would fit now; held by `big (ID)`
        waits for room on single machines: none has enough for its 1 worker; held by `big (ID)`
        behind 3 jobs, 1 of them of higher priority; what is free is reserved for another user's job
        behind 1 job in the queue; what is free is reserved for `big (ID)`
        starts with the next scheduling decision
        ");
    }

    #[test]
    fn an_administrator_reads_whose_quota_another_users_job_waits_for() {
        let limit = |group: Option<&str>| ExceededLimit {
            group: group.map(Into::into),
            kind: LimitKind::Jobs,
            limit: 2,
            used: 2,
            asked: 1,
        };
        let reasons = [
            Reason::BeyondQuota(limit(None)),
            Reason::Quota(limit(None)),
            Reason::Quota(limit(Some("vision"))),
            Reason::BehindOwn(Mention::Seen(job())),
        ];
        let shown = reasons.iter().map(|why| shown(reason(why, Owner::Another)));
        insta::assert_snapshot!(shown.collect::<Vec<_>>().join("\n"), @r"
        cannot start within the user's quota of 2 jobs: 1 job requested
        the user's quota of 2 jobs: 2 in use, 1 requested
        the total of 2 jobs of the user's group `vision`: 2 in use, 1 requested
        behind the user's job `big (ID)`, which waits for a quota
        ");
    }

    #[test]
    fn a_job_that_runs_alone_and_was_killed_is_stopping() {
        let mut killed = samples::starting(1, samples::spec("big", 0, 1));
        killed.phase = Phase::Stopping(Outcome::Killed);
        let alone = Reason::Alone {
            job: Mention::Own(Arc::new(killed)),
            excess: Excess::Together(vec![short(ResourceKind::Cpu, 5000, 2000)]),
            ends_by: None,
        };
        assert_eq!(
            shown(reason(&alone, Owner::Reader)),
            "waits for `big (ID)`, which runs alone because it is larger than the machine \
             (5 cores requested, 2 in total); it is stopping"
        );
    }

    #[test]
    fn matching_nodes_are_counted_unless_the_reason_does() {
        let matching = Matching {
            required: Requirement {
                gpu_type: Some("a100".parse().unwrap()),
                ..Requirement::default()
            },
            nodes: 2,
            of: 5,
        };
        let with = |reason| waiting(&reason, Some(&matching), 1, Owner::Reader);
        let small = Excess::OneWorker(short(ResourceKind::Cpu, 1000, 0));
        let among = Excess::Among {
            excess: Box::new(small),
            matching: matching.clone(),
        };
        let shown = [with(cores(holders(Vec::new(), 0))), with(Reason::TooBig(among))];
        insta::assert_snapshot!(shown.join("\n"), @r"
        waits for 3 cores: 4 requested, 1 of 8 free; 2 of 5 nodes have GPUs of type `a100`; 1 node of the cluster is cordoned, tainted or not ready
        cannot start on these machines: 1 core requested for one worker, 0 on the largest machine; 2 of 5 nodes have GPUs of type `a100`; 1 node of the cluster is cordoned, tainted or not ready
        ");
    }

    #[test]
    fn unusable_nodes_are_counted_when_resources_are_lacking() {
        let with =
            |reason: Reason<Mention>, closed_nodes| waiting(&reason, None, closed_nodes, Owner::Reader);
        let none = || Reason::TooBig(Excess::OneWorker(short(ResourceKind::Cpu, 1000, 0)));
        let shown = [
            with(none(), 0),
            with(none(), 1),
            with(cores(holders(Vec::new(), 0)), 2),
        ];
        insta::assert_snapshot!(shown.join("\n"), @r"
        cannot start on these machines: 1 core requested for one worker, 0 on the largest machine
        cannot start on these machines: 1 core requested for one worker, 0 on the largest machine; 1 node of the cluster is cordoned, tainted or not ready
        waits for 3 cores: 4 requested, 1 of 8 free; 2 nodes of the cluster are cordoned, tainted or not ready
        ");
        assert_eq!(
            with(Reason::NextRound, 1),
            reason(&Reason::NextRound, Owner::Reader)
        );
    }

    #[test]
    fn jobs_holding_cores_are_named_only_to_permitted_readers() {
        let seen = || Mention::Seen(job());
        let with_outside = |amount, jobs| Holders {
            outside: Some(Outside {
                kind: ResourceKind::Cpu,
                amount,
            }),
            ..jobs
        };
        let held = [
            holders(vec![own()], 1),
            holders(vec![Mention::Hidden], 1),
            holders(vec![Mention::Hidden, Mention::Hidden], 7),
            holders(vec![own(), Mention::Hidden], 2),
            holders(vec![own(), own(), own()], 4),
            holders(vec![own(), Mention::Hidden], 5),
            holders(vec![seen(), seen()], 2),
            holders(vec![Mention::Ended], 1),
            holders(Vec::new(), 0),
            with_outside(1500, holders(Vec::new(), 0)),
            with_outside(250, holders(vec![Mention::Hidden], 1)),
        ];
        let shown: Vec<String> = held.map(|held| shown(reason(&cores(held), Owner::Reader))).into();
        insta::assert_snapshot!(shown.join("\n"), @r"
        waits for 3 cores: 4 requested, 1 of 8 free; held by `big (ID)`
        waits for 3 cores: 4 requested, 1 of 8 free; held by another user's job
        waits for 3 cores: 4 requested, 1 of 8 free; held by jobs of other users
        waits for 3 cores: 4 requested, 1 of 8 free; held by `big (ID)` and another user's job
        waits for 3 cores: 4 requested, 1 of 8 free; held by `big (ID)`, `big (ID)`, `big (ID)` and 1 more job
        waits for 3 cores: 4 requested, 1 of 8 free; held by `big (ID)` and 4 more jobs
        waits for 3 cores: 4 requested, 1 of 8 free; held by `big (ID)`, `big (ID)`
        waits for 3 cores: 4 requested, 1 of 8 free
        waits for 3 cores: 4 requested, 1 of 8 free
        waits for 3 cores: 4 requested, 1 of 8 free; pods outside PaddleCloud hold 1.5 cores
        waits for 3 cores: 4 requested, 1 of 8 free; held by another user's job; pods outside PaddleCloud hold 0.25 cores
        ");
    }

    #[test]
    fn a_job_that_lacks_a_worker_reads_when_it_gives_up_its_room() {
        let said = |is_room_needed| {
            recovery(&Recovery {
                limit: jiff::SignedDuration::from_mins(5),
                at: "2026-01-01T00:05:00Z".parse().unwrap(),
                is_room_needed,
            })
        };
        insta::assert_snapshot!([said(true), said(false)].join("\n"), @r"
        other jobs wait for room, so without a node by 2026-01-01T00:05:00Z the job gives up its own and is queued again (`recovery_limit: 5m`)
        the job keeps its room until another job needs it, and then is queued again, not before 2026-01-01T00:05:00Z (`recovery_limit: 5m`)
        ");
    }

    #[test]
    fn every_change_can_be_typed() {
        let changes = [
            Change::Trainers(6),
            Change::Pservers(5),
            Change::Gpu(3),
            Change::Memory(Bytes::mib(3072)),
            Change::Cpu(Cpu::millis(1500)),
            Change::MaxRuntime(jiff::SignedDuration::from_mins(90)),
            Change::End(own()),
            Change::End(Mention::Seen(job())),
        ];
        let shown: Vec<String> = changes.iter().map(|one| shown(change(one))).collect();
        insta::assert_snapshot!(shown.join("\n"), @r"
        would start now with `-parallelism 6`
        would start now with `-pservers 5`
        would start now with `-gpu 3`
        would start now with `-memory 3Gi`
        would start now with `-cpu 1500m`
        would start now with `-max-runtime 1h30m`
        would start now after `paddlectl kill big`
        would start now after `paddlectl kill ID`
        ");
    }
}
