//! `/api/v1/registry`: credentials of image registries.

use axum::extract::State;
use paddlecloud_api::Envelope;
use paddlecloud_api::admin::{RegistryRequest, RegistryView};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::query::QueryParams;
use super::reply::{Reply, envelope};
use super::request::Body;
use super::{Shared, scope};

/// Lists the caller's registries, never their secrets.
#[utoipa::path(
    get, path = "/api/v1/registry", tag = "registry", responses((status = 200, body = Envelope<Vec<RegistryView>>))
)]
pub(super) async fn registry_list(
    State(app): Shared,
    scope::Read(caller): scope::Read,
) -> Reply<Envelope<Vec<RegistryView>>> {
    Ok(envelope(app.registry_list(&caller).await?))
}

/// Stores a registry's credentials, replacing those of the same name.
#[utoipa::path(
    post, path = "/api/v1/registry", tag = "registry", request_body = RegistryRequest,
    responses((status = 200, body = Envelope<String>))
)]
pub(super) async fn registry_create(
    State(app): Shared,
    scope::Submit(caller): scope::Submit,
    Body(request): Body<RegistryRequest>,
) -> Reply<Envelope<String>> {
    app.registry_create(&caller, request).await?;
    Ok(envelope("OK".to_owned()))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct DeleteParams {
    /// Optional if there is exactly one.
    name: Option<String>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(super) struct DeleteRequest {
    /// The same as in the query.
    name: Option<String>,
}

/// Deletes a registry. Replies with its name.
#[utoipa::path(
    delete, path = "/api/v1/registry", tag = "registry", params(DeleteParams), request_body = DeleteRequest,
    responses((status = 200, body = Envelope<String>))
)]
pub(super) async fn registry_delete(
    State(app): Shared,
    scope::Submit(caller): scope::Submit,
    QueryParams(params): QueryParams<DeleteParams>,
    Body(request): Body<DeleteRequest>,
) -> Reply<Envelope<String>> {
    let name = params.name.or(request.name);
    Ok(envelope(app.registry_delete(&caller, name.as_deref()).await?))
}
