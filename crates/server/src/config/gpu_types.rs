//! `gpu_types`: what the names in `-gpu-type` mean. Which nodes have a type is decided in `machine` and by the engine.

use std::collections::BTreeMap;
use std::path::Path;

use paddlecloud_core::gpu::GpuType;
use paddlecloud_core::spec::{check_labels, is_label_key};
use paddlecloud_k8s::settings::GpuTypeSettings;

use super::ConfigError;
use super::machine::GpuLabels;

/// Refuses labels that no node can have, and what has no effect on one machine. Returns the labels of each type.
pub(super) fn check_gpu_types(
    types: &BTreeMap<GpuType, GpuTypeSettings>,
    on_one_machine: bool,
    path: &Path,
) -> Result<GpuLabels, ConfigError> {
    for (name, of_type) in types {
        let refused = |problem: String| ConfigError::in_file(path, format!("`gpu_types.{name}`: {problem}"));
        check_labels(&of_type.labels).map_err(refused)?;
        if let Some(resource) = of_type
            .resource
            .as_ref()
            .filter(|resource| !is_label_key(resource))
        {
            return Err(refused(format!("`{resource}` is not the name of a resource"))
                .with_hint("for example `amd.com/gpu`"));
        }
        let for_pods = !of_type.tolerations.is_empty() || of_type.resource.is_some();
        if for_pods && on_one_machine {
            return Err(
                refused("`tolerations` and `resource` have no effect on one machine".to_owned())
                    .with_hint("remove them, or set `engine: kubernetes`"),
            );
        }
    }
    let labels = types.iter();
    Ok(labels
        .map(|(name, of_type)| (name.clone(), of_type.labels.clone()))
        .collect())
}
