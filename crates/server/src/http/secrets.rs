//! `/api/v1/secrets`.

use axum::extract::State;
use paddlecloud_api::Envelope;
use paddlecloud_api::admin::{SecretRequest, SecretView};

use super::reply::{Reply, envelope};
use super::request::{Body, Named};
use super::{Shared, scope};

/// The names of the caller's secrets, never their values.
#[utoipa::path(get, path = "/api/v1/secrets", tag = "secrets", responses((status = 200, body = Envelope<Vec<SecretView>>)))]
pub(super) async fn secret_list(
    State(app): Shared,
    scope::Read(caller): scope::Read,
) -> Reply<Envelope<Vec<SecretView>>> {
    Ok(envelope(app.secret_list(&caller).await?))
}

/// Stores a secret, replacing one of the same name.
#[utoipa::path(
    put, path = "/api/v1/secrets/{name}", tag = "secrets", params(("name" = String, Path)),
    request_body = SecretRequest, responses((status = 200, body = Envelope<String>))
)]
pub(super) async fn secret_set(
    State(app): Shared,
    scope::Submit(caller): scope::Submit,
    Named(name): Named<String>,
    Body(request): Body<SecretRequest>,
) -> Reply<Envelope<String>> {
    app.secret_set(&caller, &name, request).await?;
    Ok(envelope("OK".to_owned()))
}

/// Deletes a secret. Running workers keep it.
#[utoipa::path(
    delete, path = "/api/v1/secrets/{name}", tag = "secrets", params(("name" = String, Path)),
    responses((status = 200, body = Envelope<String>))
)]
pub(super) async fn secret_delete(
    State(app): Shared,
    scope::Submit(caller): scope::Submit,
    Named(name): Named<String>,
) -> Reply<Envelope<String>> {
    app.secret_delete(&caller, &name).await?;
    Ok(envelope("OK".to_owned()))
}

/// Reloads the key of the secrets and encrypts all of them with it. For administrators.
#[utoipa::path(
    post, path = "/api/v1/admin/secrets/rotate", tag = "admin", responses((status = 200, body = Envelope<usize>))
)]
pub(super) async fn secrets_rotate(
    State(app): Shared,
    scope::Admin(caller): scope::Admin,
) -> Reply<Envelope<usize>> {
    Ok(envelope(app.secrets_rotate(&caller).await?))
}
