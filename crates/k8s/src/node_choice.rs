//! Which nodes the pods of a worker may use, in the words of Kubernetes: labels, tolerations and the GPU resource.
//!
//! Which of these nodes it gets is the scheduler's decision, or the cluster's.

use std::collections::{BTreeMap, BTreeSet};

use paddlecloud_core::gpu::{GpuType, NVIDIA_PRODUCT, has_type, models_beside, products};
use paddlecloud_core::spec::{JobSpec, Resources};

use crate::settings::{GpuTypeSettings, PodSettings, Toleration};

/// The resource of GPUs that no type defines.
pub const GPU: &str = "nvidia.com/gpu";

/// A label, and the values of which a node has one.
pub type LabelValues = (String, Vec<String>);

impl PodSettings {
    /// The definition of the type of a worker's GPUs.
    fn gpu_type(&self, spec: &JobSpec, each: &Resources) -> Option<&GpuTypeSettings> {
        let name = spec.gpu_type.as_ref().filter(|_| each.gpu > 0)?;
        self.gpu_types.get(name)
    }

    /// The labels of the nodes that a worker may use. The server's own come last, so no job replaces them.
    pub fn labels_for(&self, spec: &JobSpec, each: &Resources) -> BTreeMap<String, String> {
        let mut labels = spec.node_labels.clone();
        if let Some(of_type) = self.gpu_type(spec, each) {
            labels.extend(of_type.labels.clone());
        }
        labels.extend(self.node_selector.clone());
        labels
    }

    pub fn tolerations_for(&self, spec: &JobSpec, each: &Resources) -> Vec<Toleration> {
        let of_type = self.gpu_type(spec, each);
        let of_type = of_type.into_iter().flat_map(|of_type| &of_type.tolerations);
        self.tolerations.iter().chain(of_type).cloned().collect()
    }

    /// The name of a worker's GPUs as a resource.
    pub fn resource_for(&self, spec: &JobSpec, each: &Resources) -> &str {
        self.gpu_type(spec, each).map_or(GPU, GpuTypeSettings::resource)
    }

    /// All resources that count as GPUs, the usual one first.
    pub fn gpu_resources(&self) -> Vec<&str> {
        let others: BTreeSet<&str> = self.gpu_types.values().map(GpuTypeSettings::resource).collect();
        let others = others.into_iter().filter(|resource| *resource != GPU);
        std::iter::once(GPU).chain(others).collect()
    }

    /// The type of a worker's GPUs, if only the vendors' labels tell which nodes have it.
    pub fn type_by_vendor<'a>(&self, spec: &'a JobSpec, each: &Resources) -> Option<&'a GpuType> {
        let name = spec.gpu_type.as_ref().filter(|_| each.gpu > 0)?;
        let defined = self.gpu_types.get(name);
        defined
            .is_none_or(|of_type| of_type.labels.is_empty())
            .then_some(name)
    }

    /// The types of the GPUs of a node with these labels and this resource.
    pub fn types_on(
        &self,
        labels: &BTreeMap<String, String>,
        resource: &str,
        tolerates: impl Fn(&GpuTypeSettings) -> bool,
    ) -> BTreeSet<GpuType> {
        let here = self.gpu_types.iter().filter(|(name, of_type)| {
            of_type.resource() == resource && has_type(labels, name, &of_type.labels) && tolerates(of_type)
        });
        here.map(|(name, _)| name.clone()).collect()
    }

    /// The models of the GPUs of a node with these labels.
    pub fn models_on(&self, labels: &BTreeMap<String, String>) -> BTreeSet<GpuType> {
        let table = self
            .gpu_types
            .iter()
            .map(|(name, of_type)| (name, &of_type.labels));
        models_beside(labels, table)
    }
}

impl GpuTypeSettings {
    pub fn resource(&self) -> &str {
        self.resource.as_deref().unwrap_or(GPU)
    }
}

/// The models that nodes of the cluster have or had, by the vendors' labels. A node that reboots comes back with its label.
#[derive(Debug, Default)]
pub struct Products(BTreeMap<&'static str, BTreeSet<String>>);

impl Products {
    pub fn add(&mut self, labels: &BTreeMap<String, String>) {
        for (key, product) in products(labels) {
            self.0.entry(key).or_default().insert(product.clone());
        }
    }

    /// The labels of models of this type, one of which a node must have. If none is known, a value that no node has: a pod
    /// never runs on other GPUs than its job asked for.
    pub fn of(&self, asked: &GpuType) -> Vec<LabelValues> {
        let is_asked = |product: &&String| GpuType::of_model(product).is_some_and(|model| model.is_a(asked));
        let found = self.0.iter().map(|(key, products)| {
            let values: Vec<String> = products.iter().filter(is_asked).cloned().collect();
            ((*key).to_owned(), values)
        });
        let found: Vec<LabelValues> = found.filter(|(_, values)| !values.is_empty()).collect();
        match found.is_empty() {
            true => vec![(NVIDIA_PRODUCT.to_owned(), vec![asked.to_string()])],
            false => found,
        }
    }
}
