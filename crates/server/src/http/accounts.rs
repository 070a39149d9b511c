//! `/api/v1/admin/…`: accounts, groups and the audit log. For administrators.

use std::sync::Arc;

use axum::extract::State;
use jiff::Timestamp;
use paddlecloud_api::Envelope;
use paddlecloud_api::admin::{
    AuditCheck, AuditView, CertificateIssued, CertificateRequest, CertificateView, Dispose, GroupRequest,
    GroupView, UsageView, UserDeleted, UserRequest, UserView,
};
use paddlecloud_api::error::{ErrorBody, ErrorName};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::query::{QueryParams, bounded};
use super::reply::{Refused, Reply, envelope};
use super::request::{Body, Named};
use super::{Shared, scope};
use crate::app::App;

/// All routes except the removal of a user, which may take long.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(user_list, user_add))
        .routes(routes!(user_show, user_set))
        .routes(routes!(group_list))
        .routes(routes!(group_set, group_delete))
        .routes(routes!(certificate_list, certificate_issue))
        .routes(routes!(certificate_revoke))
        .routes(routes!(audit_list))
        .routes(routes!(audit_verify))
        .routes(routes!(usage_list))
}

/// All accounts. For administrators.
#[utoipa::path(get, path = "/api/v1/admin/users", tag = "admin", responses((status = 200, body = Envelope<Vec<UserView>>)))]
pub(super) async fn user_list(State(app): Shared, _: scope::Admin) -> Reply<Envelope<Vec<UserView>>> {
    Ok(envelope(app.user_list().await))
}

/// Adds an account. For administrators.
#[utoipa::path(
    post, path = "/api/v1/admin/users", tag = "admin", request_body = UserRequest,
    responses((status = 200, body = Envelope<UserView>))
)]
pub(super) async fn user_add(
    State(app): Shared,
    scope::Admin(caller): scope::Admin,
    Body(request): Body<UserRequest>,
) -> Reply<Envelope<UserView>> {
    Ok(envelope(app.user_add(&caller, request).await?))
}

/// One account. For administrators.
#[utoipa::path(
    get, path = "/api/v1/admin/users/{name}", tag = "admin", params(("name" = String, Path)),
    responses((status = 200, body = Envelope<UserView>))
)]
pub(super) async fn user_show(
    State(app): Shared,
    _: scope::Admin,
    Named(name): Named<String>,
) -> Reply<Envelope<UserView>> {
    Ok(envelope(app.user_show(&name).await?))
}

/// Changes an account; omitted fields stay unchanged. A disabled user's requests and streams end, and their queued jobs
/// are killed. For administrators.
#[utoipa::path(
    patch, path = "/api/v1/admin/users/{name}", tag = "admin", params(("name" = String, Path)),
    request_body = UserRequest, responses((status = 200, body = Envelope<UserView>))
)]
pub(super) async fn user_set(
    State(app): Shared,
    scope::EndingAdmin(caller): scope::EndingAdmin,
    Named(name): Named<String>,
    Body(request): Body<UserRequest>,
) -> Reply<Envelope<UserView>> {
    Ok(envelope(app.user_set(&caller, &name, request).await?))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct DeleteParams {
    /// What happens to the user's jobs and home: `keep`, `give-to` or `purge`.
    dispose: Option<Dispose>,
    /// The user who gets them.
    to: Option<String>,
}

/// Deletes an account. Its jobs are stopped first; its name can be used again and inherits nothing. For administrators.
#[utoipa::path(
    delete, path = "/api/v1/admin/users/{name}", tag = "admin", params(("name" = String, Path), DeleteParams),
    responses((status = 200, body = Envelope<UserDeleted>))
)]
pub(super) async fn user_delete(
    State(app): Shared,
    scope::EndingAdmin(caller): scope::EndingAdmin,
    Named(name): Named<String>,
    QueryParams(params): QueryParams<DeleteParams>,
) -> Reply<Envelope<UserDeleted>> {
    let Some(dispose) = params.dispose else {
        let problem =
            "`dispose` must be keep, give-to or purge: it says what happens to the user's jobs and home";
        return Err(Refused(ErrorBody::new(ErrorName::BadRequest, problem)));
    };
    let deleted = app.user_delete(&caller, &name, dispose, params.to.as_deref());
    Ok(envelope(deleted.await?))
}

/// The valid certificates that the server's authority signed for users. For administrators.
#[utoipa::path(get, path = "/api/v1/admin/certificates", tag = "admin", responses((status = 200, body = Envelope<Vec<CertificateView>>)))]
pub(super) async fn certificate_list(
    State(app): Shared,
    _: scope::Admin,
) -> Reply<Envelope<Vec<CertificateView>>> {
    Ok(envelope(app.certificate_list().await))
}

/// Signs a certificate, which the user presents as `usercert`. For administrators.
#[utoipa::path(
    post, path = "/api/v1/admin/certificates", tag = "admin", request_body = CertificateRequest,
    responses((status = 200, body = Envelope<CertificateIssued>))
)]
pub(super) async fn certificate_issue(
    State(app): Shared,
    scope::Admin(caller): scope::Admin,
    Body(request): Body<CertificateRequest>,
) -> Reply<Envelope<CertificateIssued>> {
    Ok(envelope(app.certificate_issue(&caller, request).await?))
}

/// Revokes a certificate; requests and streams that use it end. For administrators.
#[utoipa::path(
    delete, path = "/api/v1/admin/certificates/{id}", tag = "admin", params(("id" = String, Path)),
    responses((status = 200, body = Envelope<String>))
)]
pub(super) async fn certificate_revoke(
    State(app): Shared,
    scope::EndingAdmin(caller): scope::EndingAdmin,
    Named(id): Named<String>,
) -> Reply<Envelope<String>> {
    app.certificate_revoke(&caller, &id).await?;
    Ok(envelope("OK".to_owned()))
}

/// All groups. For administrators.
#[utoipa::path(get, path = "/api/v1/admin/groups", tag = "admin", responses((status = 200, body = Envelope<Vec<GroupView>>)))]
pub(super) async fn group_list(State(app): Shared, _: scope::Admin) -> Reply<Envelope<Vec<GroupView>>> {
    Ok(envelope(app.group_list().await))
}

/// Adds a group or changes its limits. For administrators.
#[utoipa::path(
    put, path = "/api/v1/admin/groups/{name}", tag = "admin", params(("name" = String, Path)),
    request_body = GroupRequest, responses((status = 200, body = Envelope<GroupView>))
)]
pub(super) async fn group_set(
    State(app): Shared,
    scope::Admin(caller): scope::Admin,
    Named(name): Named<String>,
    Body(request): Body<GroupRequest>,
) -> Reply<Envelope<GroupView>> {
    Ok(envelope(app.group_set(&caller, &name, request).await?))
}

/// Removes a group; its members leave it. For administrators.
#[utoipa::path(
    delete, path = "/api/v1/admin/groups/{name}", tag = "admin", params(("name" = String, Path)),
    responses((status = 200, body = Envelope<String>))
)]
pub(super) async fn group_delete(
    State(app): Shared,
    scope::Admin(caller): scope::Admin,
    Named(name): Named<String>,
) -> Reply<Envelope<String>> {
    app.group_delete(&caller, &name).await?;
    Ok(envelope("OK".to_owned()))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditParams {
    /// Only rows with smaller numbers.
    before: Option<i64>,
    /// Rows of the reply: 100 by default.
    #[serde(deserialize_with = "bounded::<1, 1000, _, _>")]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// The audit log, latest rows first. For administrators.
#[utoipa::path(
    get, path = "/api/v1/admin/audit", tag = "admin", params(AuditParams),
    responses((status = 200, body = Envelope<Vec<AuditView>>))
)]
pub(super) async fn audit_list(
    State(app): Shared,
    _: scope::Admin,
    QueryParams(params): QueryParams<AuditParams>,
) -> Reply<Envelope<Vec<AuditView>>> {
    Ok(envelope(app.audit_list(params.before, params.limit).await?))
}

/// Reads the whole audit log and checks that no row is missing or altered. For administrators.
#[utoipa::path(
    get, path = "/api/v1/admin/audit/verify", tag = "admin", responses((status = 200, body = Envelope<AuditCheck>))
)]
pub(super) async fn audit_verify(State(app): Shared, _: scope::Admin) -> Reply<Envelope<AuditCheck>> {
    Ok(envelope(app.audit_verify().await?))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct UsageParams {
    /// Only use after this time, RFC 3339.
    since: Option<String>,
}

/// Core-, GiB- and GPU-hours of every user, including jobs that were removed from the history. For administrators.
#[utoipa::path(
    get, path = "/api/v1/admin/usage", tag = "admin", params(UsageParams),
    responses((status = 200, body = Envelope<Vec<UsageView>>))
)]
pub(super) async fn usage_list(
    State(app): Shared,
    _: scope::Admin,
    QueryParams(params): QueryParams<UsageParams>,
) -> Reply<Envelope<Vec<UsageView>>> {
    let since = params.since.as_deref().map(str::parse::<Timestamp>).transpose();
    let since = since.map_err(|_| {
        let refused = ErrorBody::new(ErrorName::BadRequest, "`since` is not a time");
        Refused(refused.with_hint("write it like 2026-01-31T12:00:00Z"))
    })?;
    Ok(envelope(app.usage_list(since).await?))
}
