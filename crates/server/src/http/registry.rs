//! `/api/v1/registry`: part of the contract, filled in by a later version.

use paddlecloud_api::Envelope;
use paddlecloud_api::error::{ErrorBody, ErrorName};

use super::reply::{Refused, Reply, envelope};
use crate::auth::Caller;

/// Registries of the caller, never their secrets.
#[utoipa::path(
    get, path = "/api/v1/registry", tag = "registry", responses((status = 200, body = Envelope<Vec<String>>))
)]
pub(super) async fn registry_list(_: Caller) -> Reply<Envelope<Vec<String>>> {
    Ok(envelope(Vec::new()))
}

/// Stores a registry's credentials.
#[utoipa::path(post, path = "/api/v1/registry", tag = "registry", responses((status = 501, body = ErrorBody)))]
pub(super) async fn registry_create(_: Caller) -> Refused {
    not_there_yet()
}

/// Forgets a registry.
#[utoipa::path(delete, path = "/api/v1/registry", tag = "registry", responses((status = 501, body = ErrorBody)))]
pub(super) async fn registry_delete(_: Caller) -> Refused {
    not_there_yet()
}

fn not_there_yet() -> Refused {
    Refused(ErrorBody::new(
        ErrorName::NotThereYet,
        "registries come with a later version of the server",
    ))
}
