//! The Kubernetes engine: every worker is a pod, linked to the server by the launcher inside it (`crates/link`).
//!
//! Kubernetes places and runs pods. The job's state machine decides which workers should run and what their ends mean.
//! Only this crate uses the Kubernetes client.

// A lock that is held through a whole `for` or `match` and taken again inside once stopped the server.
#![warn(clippy::significant_drop_in_scrutinee)]

mod by_hand;
mod engine;
pub mod manifests;
pub mod names;
mod node_choice;
mod objects;
mod quantity;
pub mod render;
pub mod settings;

pub use by_hand::{CreateError, create_objects};
pub use engine::{ANY_NODE, Accounts, KubernetesEngine, NamespaceNames, Options, StartError, Tenancy};
pub use objects::{ObjectName, objects};
pub use paddlecloud_link::LinkSettings;
