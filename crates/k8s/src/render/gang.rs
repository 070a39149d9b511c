//! Gangs that another system admits: renders what Kueue and Volcano need. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use paddlecloud_core::job::Job;
use serde_json::json;

use crate::names;
use crate::settings::{Placement, Settings};

/// The usual name of Volcano's scheduler.
const VOLCANO: &str = "volcano";

/// What a pod of this gang has in addition: labels, annotations, scheduler.
#[derive(Debug, Default)]
pub struct Membership {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub scheduler: Option<String>,
}

fn pairs<const N: usize>(pairs: [(&str, String); N]) -> BTreeMap<String, String> {
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

pub fn membership(placement: &Placement, job: &Job) -> Membership {
    match placement {
        Placement::Pinned | Placement::OnDemand => Membership::default(),
        Placement::Kueue { queue } => Membership {
            labels: pairs([
                ("kueue.x-k8s.io/queue-name", queue.clone()),
                ("kueue.x-k8s.io/pod-group-name", names::group(&job.id)),
            ]),
            annotations: pairs([(
                "kueue.x-k8s.io/pod-group-total-count",
                job.workers.len().to_string(),
            )]),
            scheduler: None,
        },
        Placement::Volcano { .. } => Membership {
            annotations: pairs([("scheduling.k8s.io/group-name", names::group(&job.id))]),
            scheduler: Some(VOLCANO.to_owned()),
            ..Membership::default()
        },
    }
}

/// The kind of object in which the other system reports: Kueue creates its own, we create Volcano's.
pub fn answers_in(placement: &Placement) -> Option<ApiResource> {
    let kind = match placement {
        Placement::Pinned | Placement::OnDemand => return None,
        Placement::Kueue { .. } => GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta1", "Workload"),
        Placement::Volcano { .. } => GroupVersionKind::gvk("scheduling.volcano.sh", "v1beta1", "PodGroup"),
    };
    Some(ApiResource::from_gvk(&kind))
}

/// Volcano's `PodGroup`: all workers or none.
pub fn pod_group(
    settings: &Settings,
    job: &Job,
    namespace: &str,
    owner: OwnerReference,
) -> Option<DynamicObject> {
    let Placement::Volcano { queue } = &settings.placement else {
        return None;
    };
    let kind = answers_in(&settings.placement)?;
    let mut group = DynamicObject::new(&names::group(&job.id), &kind).data(json!({
        "spec": {"minMember": job.workers.len(), "queue": queue},
    }));
    group.metadata = ObjectMeta {
        namespace: Some(namespace.to_owned()),
        labels: Some(names::run_labels(&settings.server, &job.id)),
        owner_references: Some(vec![owner]),
        ..group.metadata
    };
    Some(group)
}

/// Why a gang waits, according to the other system: the latest condition that is not met.
pub fn answer(object: &DynamicObject) -> Option<String> {
    let conditions = object.data.get("status")?.get("conditions")?.as_array()?;
    let text = |condition: &serde_json::Value, key: &str| {
        let text = condition.get(key).and_then(serde_json::Value::as_str);
        text.map(str::to_owned).filter(|text| !text.is_empty())
    };
    let unmet = |condition: &&serde_json::Value| {
        let (kind, status) = (text(condition, "type"), text(condition, "status"));
        match kind.as_deref() {
            // Volcano rejects with a condition that is true.
            Some("Unschedulable") => status.as_deref() == Some("True"),
            _ => status.as_deref() == Some("False"),
        }
    };
    let latest = conditions.iter().rfind(unmet)?;
    text(latest, "message").or_else(|| text(latest, "reason"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(conditions: serde_json::Value) -> Option<String> {
        let kind = answers_in(&Placement::Volcano { queue: "q".into() }).unwrap();
        answer(&DynamicObject::new("a", &kind).data(json!({"status": {"conditions": conditions}})))
    }

    #[test]
    fn the_condition_that_is_not_met_is_the_answer() {
        let kueue = json!([
            {"type": "QuotaReserved", "status": "False", "message": "insufficient quota for cpu"},
        ]);
        assert_eq!(said(kueue).as_deref(), Some("insufficient quota for cpu"));
        let volcano = json!([
            {"type": "Unschedulable", "status": "True", "message": "2/2 tasks in gang unschedulable"},
        ]);
        assert_eq!(said(volcano).as_deref(), Some("2/2 tasks in gang unschedulable"));
        assert_eq!(said(json!([{"type": "Scheduled", "status": "True"}])), None);
        assert_eq!(said(json!([])), None);
    }
}
