//! The engines that run workers: as processes of this machine, or as pods of a cluster.

pub mod kubernetes;
pub mod local;
