//! What a user can rely on, one module per theme.
#![cfg(target_os = "linux")]

mod accounts;
mod attack;
mod backup;
mod bad_input;
mod bars;
mod cluster;
mod crash;
mod disk;
mod durability;
mod endings;
mod examples;
mod files;
mod first_job;
mod history;
mod interpreters;
mod logs;
mod manifests;
mod oidc;
mod outputs;
mod packages;
mod parameter_servers;
mod postgres;
mod reviving;
mod scheduling;
mod server;
mod shared_server;
mod tls;
mod upgrade;
mod worker;
