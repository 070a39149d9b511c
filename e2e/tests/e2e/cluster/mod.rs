//! Jobs on a real Kubernetes cluster, driven as on one machine.

mod api_server;
mod bad_input;
mod by_hand;
mod crash;
mod disruptions;
mod gangs;
mod installed;
mod life;
mod nodes;
mod rights;
mod secrets;
mod storage;
mod tenancy;
mod training;
