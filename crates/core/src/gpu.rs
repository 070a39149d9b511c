//! Names of GPU types: those of a server's table, and those that the vendors' labels of a node give.
//!
//! Which nodes a job gets is decided in `scheduler::eligible`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The label in which NVIDIA's feature discovery has the model of a node's GPUs.
pub const NVIDIA_PRODUCT: &str = "nvidia.com/gpu.product";
/// The labels in which vendors and clouds have the model of a node's GPUs.
const PRODUCT_LABELS: [&str; 4] = [
    NVIDIA_PRODUCT,
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
];
/// Words before the part of a model's name that users know.
const MAKERS: [&str; 6] = ["nvidia", "tesla", "geforce", "quadro", "amd", "instinct"];
/// Maximum characters, as of a label's value.
const LONGEST: usize = 63;

/// The type of a GPU: lower-case words joined by `-`, such as `a100` or `a100-sxm4-80gb`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GpuType(String);

/// A text that names no GPU type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not the name of a GPU type: at most {LONGEST} characters, with a letter or digit", .0.escape_debug())]
pub struct NotAGpuType(String);

impl FromStr for GpuType {
    type Err = NotAGpuType;

    /// Accepts a model's name in any spelling: `A100`, `NVIDIA A100-SXM4-80GB`.
    fn from_str(text: &str) -> Result<GpuType, NotAGpuType> {
        let wrong = || NotAGpuType(text.chars().take(LONGEST).collect());
        let readable = text.len() <= LONGEST && !text.chars().any(char::is_control);
        let model = readable.then(|| GpuType::of_model(text)).flatten();
        model.ok_or_else(wrong)
    }
}

impl TryFrom<String> for GpuType {
    type Error = NotAGpuType;

    fn try_from(text: String) -> Result<GpuType, NotAGpuType> {
        text.parse()
    }
}

impl From<GpuType> for String {
    fn from(own: GpuType) -> String {
        own.0
    }
}

impl fmt::Display for GpuType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl GpuType {
    /// The type of a model by its maker's name, without the maker; `None` if nothing is left.
    pub fn of_model(model: &str) -> Option<GpuType> {
        let model = model.to_ascii_lowercase();
        let words = model
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty());
        let words: Vec<&str> = words.skip_while(|word| MAKERS.contains(word)).collect();
        (!words.is_empty()).then(|| GpuType(words.join("-")))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the other type or a kind of it: `a100-sxm4-80gb` is an `a100`.
    pub fn is_a(&self, other: &GpuType) -> bool {
        let rest = self.0.strip_prefix(other.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }
}

/// The label's value for a model as its driver names it, as NVIDIA's feature discovery writes it.
pub fn product_label(model: &str) -> String {
    model.split_whitespace().collect::<Vec<_>>().join("-")
}

/// A node's values of the vendors' labels.
pub fn products(labels: &BTreeMap<String, String>) -> impl Iterator<Item = (&'static str, &String)> {
    PRODUCT_LABELS
        .into_iter()
        .filter_map(|key| Some((key, labels.get(key)?)))
}

/// Whether a node with these labels has GPUs of a type of the table: it has the type's labels, or the type names none and a
/// vendor's label names such a model.
pub fn has_type(
    labels: &BTreeMap<String, String>,
    name: &GpuType,
    of_type: &BTreeMap<String, String>,
) -> bool {
    match of_type.is_empty() {
        false => has_labels(labels, of_type),
        true => models(labels).any(|model| model.is_a(name)),
    }
}

/// Whether a node has all these labels.
pub fn has_labels(labels: &BTreeMap<String, String>, required: &BTreeMap<String, String>) -> bool {
    required.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// The types that the vendors' labels of a node give.
pub fn models(labels: &BTreeMap<String, String>) -> impl Iterator<Item = GpuType> {
    products(labels).filter_map(|(_, product)| GpuType::of_model(product))
}

/// The models of a node's GPUs that users may name although the server's table does not: what it defines by labels is taken from
/// it alone.
pub fn models_beside<'a>(
    labels: &BTreeMap<String, String>,
    table: impl Iterator<Item = (&'a GpuType, &'a BTreeMap<String, String>)> + Clone,
) -> BTreeSet<GpuType> {
    let is_defined = |model: &GpuType| {
        let mut defined = table.clone();
        defined.any(|(name, of_type)| !of_type.is_empty() && model.is_a(name))
    };
    models(labels).filter(|model| !is_defined(model)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(text: &str) -> GpuType {
        text.parse().unwrap()
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_type_is_the_model_without_its_maker() {
        for (model, expected) in [
            ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
            ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "a100-sxm4-40gb-mig-1g-5gb"),
            ("NVIDIA GeForce RTX 4090", "rtx-4090"),
            ("Tesla T4", "t4"),
            ("nvidia-tesla-v100", "v100"),
            ("AMD_Instinct_MI300X_OAM", "mi300x-oam"),
            ("A100", "a100"),
        ] {
            assert_eq!(gpu(model).as_str(), expected);
        }
        for wrong in ["", "nvidia", "--", "a\nb", &"a".repeat(64)] {
            assert!(wrong.parse::<GpuType>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_type_includes_the_models_that_begin_with_its_words() {
        let model = gpu("NVIDIA-A100-SXM4-80GB");
        assert!(model.is_a(&gpu("a100")) && model.is_a(&gpu("a100-sxm4-80gb")));
        assert!(!model.is_a(&gpu("a10")) && !model.is_a(&gpu("h100")));
        assert!(!gpu("a100").is_a(&model));
    }

    #[test]
    fn what_the_table_defines_is_taken_from_it_alone() {
        let product = (NVIDIA_PRODUCT, "NVIDIA-A100-SXM4-80GB");
        let (plain, pool) = (labels(&[product]), labels(&[product, ("pool", "new")]));
        let by_vendor = (gpu("a100"), labels(&[]));
        let by_pool = (gpu("a100"), labels(&[("pool", "new")]));
        let beside = |(name, of_type): &(GpuType, BTreeMap<String, String>)| {
            models_beside(&plain, std::iter::once((name, of_type)))
        };
        assert_eq!(beside(&by_vendor), BTreeSet::from([gpu("a100-sxm4-80gb")]));
        assert!(beside(&by_pool).is_empty());
        assert!(has_type(&plain, &by_vendor.0, &by_vendor.1));
        assert!(!has_type(&plain, &by_pool.0, &by_pool.1), "it lacks the label");
        assert!(has_type(&pool, &by_pool.0, &by_pool.1));
    }
}
