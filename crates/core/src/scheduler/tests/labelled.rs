//! Random workloads on nodes with labels and types of GPUs: the scheduler against the reference.

use proptest::prelude::*;

use super::build::*;
use super::properties::{Pair, Step, inventory, large, steps};
use crate::scheduler::{Admits, Inventory, Request, Requirement};

/// Mostly nothing; otherwise a label, a GPU type, or both. Some of them no node has.
fn requirement() -> impl Strategy<Value = Requirement> {
    let words = prop::sample::select(vec![
        vec!["pool=a"],
        vec!["pool=b"],
        vec!["t4"],
        vec!["t4", "pool=a"],
        vec!["a100"],
        vec!["zone=x"],
    ]);
    prop_oneof![3 => Just(Requirement::default()), 2 => words.prop_map(|words| required(&words))]
}

/// What a node has, and whom it admits.
fn traits() -> impl Strategy<Value = (Vec<&'static str>, Admits)> {
    let words = prop::sample::select(vec![
        vec![],
        vec!["pool=a"],
        vec!["pool=a", "t4"],
        vec!["pool=b", "t4", "zone=x"],
        vec!["a100"],
    ]);
    let admits = prop_oneof![
        6 => Just(Admits::Everyone),
        1 => Just(Admits::GpusOnlyByType),
        1 => Just(Admits::OnlyByType),
        1 => Just(Admits::Anything),
    ];
    (words, admits)
}

/// Gives labels and GPU types to the nodes.
fn labelled(inventory: impl Strategy<Value = Inventory>) -> impl Strategy<Value = Inventory> {
    let traits = prop::collection::vec(traits(), 10);
    (inventory, traits).prop_map(|(inventory, traits)| Inventory {
        nodes: inventory
            .nodes
            .into_iter()
            .zip(traits)
            .map(|(node, (words, admits))| node.having(&words).admitting(admits))
            .collect(),
    })
}

/// Submits jobs that require labels and GPU types.
fn requiring(steps: impl Strategy<Value = Vec<Step>>) -> impl Strategy<Value = Vec<Step>> {
    let with_requirements = |steps: Vec<Step>| {
        let requirements = prop::collection::vec(requirement(), steps.len());
        (Just(steps), requirements).prop_map(|(steps, requirements)| {
            let each = steps.into_iter().zip(requirements);
            each.map(|(step, required)| match step {
                Step::Submit(request) => Step::Submit(Request { required, ..request }),
                other => other,
            })
            .collect()
        })
    };
    steps.prop_flat_map(with_requirements)
}

/// Steps of jobs with requirements, and changes of what nodes have.
fn steps_on_labelled_nodes(roles: usize) -> impl Strategy<Value = Vec<Step>> {
    let relabel =
        (0usize..5, traits()).prop_map(|(node, (words, admits))| Step::Relabel(node, words, admits));
    let changes = prop::collection::vec((0usize..60, relabel), 0..4);
    (requiring(steps(roles)), changes).prop_map(|(mut steps, changes)| {
        for (at, change) in changes {
            steps.insert(at.min(steps.len()), change);
        }
        steps
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn decisions_on_labelled_nodes_are_those_of_the_reference(
        inventory in labelled(inventory()), steps in steps_on_labelled_nodes(1),
    ) {
        let mut pair = Pair::new(inventory, false);
        for step in steps {
            pair.apply(step);
            pair.decide_both()?;
        }
    }

    #[test]
    fn fair_decisions_on_labelled_nodes_are_those_of_the_reference(
        inventory in labelled(inventory()), steps in steps_on_labelled_nodes(2),
    ) {
        let mut pair = Pair::fair(inventory);
        for step in steps {
            pair.apply(step);
            pair.decide_both()?;
        }
    }

    #[test]
    fn decisions_on_one_labelled_node_are_those_of_the_reference(
        (cores, gib) in (1u64..9, 1u64..12), (words, admits) in traits(), steps in requiring(steps(2)),
    ) {
        let nodes = vec![node("n0", cores, gib, 1).having(&words).admitting(admits)];
        let mut pair = Pair::new(Inventory { nodes }, true);
        for step in steps {
            pair.apply(step);
            pair.decide_both()?;
        }
    }

    #[test]
    fn jobs_start_on_matching_nodes_and_all_end(inventory in labelled(inventory()), steps in requiring(steps(3))) {
        let mut pair = Pair::new(inventory, false);
        for step in steps {
            pair.apply(step);
            pair.decide_checked()?;
        }
        pair.drain()?;
    }

    #[test]
    fn backfilled_jobs_never_delay_the_first_job_that_waits_for_labelled_nodes(
        inventory in labelled(inventory()), steps in requiring(steps(1)),
    ) {
        let mut pair = Pair::new(inventory, false);
        for step in steps {
            pair.apply(step);
            pair.decide_both()?;
            pair.check_kept_promise()?;
        }
    }

    #[test]
    fn a_proposed_change_really_starts_a_job_on_labelled_nodes(
        inventory in labelled(inventory()), steps in requiring(steps(2)),
    ) {
        let mut pair = Pair::new(inventory, false);
        for step in steps {
            pair.apply(step);
            pair.decide_checked()?;
        }
        pair.try_proposals()?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn decisions_are_those_of_the_reference_with_a_long_queue_for_labelled_nodes(
        (inventory, queue, steps) in large().prop_flat_map(|(inventory, queue, steps)| {
            (labelled(Just(inventory)), requiring(Just(queue)), requiring(Just(steps)))
        }),
    ) {
        let mut pair = Pair::new(inventory, false);
        queue.into_iter().for_each(|step| pair.apply(step));
        for step in steps {
            pair.apply(step);
            pair.decide_both()?;
        }
    }
}
