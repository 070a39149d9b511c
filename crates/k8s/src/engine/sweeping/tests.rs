//! When a silent attempt counts as lost, and when it may wait.

use super::*;
use crate::engine::pods::Disruption;
use crate::engine::records::PodRecord;

const SECOND: Duration = Duration::from_secs(1);

fn limits() -> Limits {
    Limits::usual(&Placement::Pinned)
}

pub fn entry(stage: Stage) -> Attempt {
    let pod = PodRecord {
        namespace: "ada".into(),
        name: "a-trainer-1".into(),
        owner: "a-1".into(),
        home: "/".into(),
        spool: "spool".into(),
        created: true,
        disruptions: 0,
        is_restart: false,
        pinned: true,
    };
    let mut entry = Attempt::new("a-trainer-1".into(), 1, pod, News::Launched);
    entry.enter(stage);
    entry.node = Some("node2".into());
    entry
}

fn after(entry: &Attempt, silent: bool, placement: &Placement, seconds: u32) -> Option<Due> {
    due(
        entry,
        silent,
        placement,
        &limits(),
        entry.since + SECOND * seconds,
    )
}

#[test]
fn a_pinned_pod_without_a_node_times_out() {
    let why = "0/1 nodes".to_owned();
    let mut waits = entry(Stage::Unseated(why.clone()));
    let pinned = Placement::Pinned;
    assert_eq!(after(&waits, false, &pinned, 29), None);
    assert_eq!(after(&waits, false, &pinned, 30), Some(Due::NoSeat(why.clone())));
    let kueue = Placement::Kueue { queue: "q".into() };
    assert_eq!(
        after(&waits, false, &kueue, 3000),
        Some(Due::AskForSeat(why.clone()))
    );
    waits.pod.is_restart = true;
    assert_eq!(
        after(&waits, false, &pinned, 30),
        Some(Due::NoSeat(why)),
        "its place is taken"
    );
    waits.pod.pinned = false;
    assert_eq!(
        after(&waits, false, &pinned, 3000),
        None,
        "it may go anywhere, and waits"
    );
}

#[test]
fn a_pod_in_trouble_fails_within_two_minutes() {
    let pinned = Placement::Pinned;
    let stuck = entry(Stage::Pending(Some("ErrImagePull".into())));
    assert_eq!(after(&stuck, false, &pinned, 59), None);
    assert_eq!(
        after(&stuck, false, &pinned, 60),
        Some(Due::Failed("ErrImagePull".into()))
    );
    let silent = entry(Stage::Pending(None));
    assert_eq!(after(&silent, false, &pinned, 60), Some(Due::AskEvents));
}

#[test]
fn an_attempt_is_lost_only_if_launcher_and_kubelet_are_both_silent() {
    let pinned = Placement::Pinned;
    let mut running = entry(Stage::Running);
    running.news = News::Started;
    running.silent_since = Some(running.since);
    assert_eq!(
        after(&running, false, &pinned, 100),
        None,
        "the kubelet is heard of"
    );
    assert_eq!(after(&running, true, &pinned, 59), None);
    assert_eq!(
        after(&running, true, &pinned, 60),
        Some(Due::NodeLost("node2".into()))
    );
    running.silent_since = None;
    assert_eq!(
        after(&running, true, &pinned, 100),
        None,
        "the launcher is linked"
    );
}

#[test]
fn an_exit_waits_until_the_cluster_has_said_why() {
    let pinned = Placement::Pinned;
    let mut asked_to_exit = entry(Stage::Running);
    asked_to_exit.news = News::Started;
    asked_to_exit.disruption = Some(Disruption::by_unknown());
    asked_to_exit.unexplained = Some((crate::engine::link_tests::exit(), asked_to_exit.since));
    let ended = Some(Due::Ended(Box::new(crate::engine::link_tests::exit())));
    assert_eq!(after(&asked_to_exit, false, &pinned, 9), None);
    assert_eq!(after(&asked_to_exit, false, &pinned, 10), ended);
    asked_to_exit.is_deleted = true;
    assert_eq!(after(&asked_to_exit, false, &pinned, 0), ended);
}

#[test]
fn a_pod_that_does_not_reach_the_server_is_reported_once() {
    let pinned = Placement::Pinned;
    let mut running = entry(Stage::Running);
    assert_eq!(after(&running, false, &pinned, 15), Some(Due::Unreached));
    running.asked = Some(running.since);
    assert_eq!(after(&running, false, &pinned, 16), None);
}
