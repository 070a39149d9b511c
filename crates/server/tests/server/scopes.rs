//! Every route declares what a login needs for it.

use std::collections::BTreeMap;

use paddlecloud_accounts::auth::Peer;
use paddlecloud_core::access::Scopes;
use serde_json::Value;

use crate::client::Request;
use crate::stage::Stage;

/// Names of the documents for routes that `openapi.json` has under another name.
const OTHER_NAMES: [(&str, &str); 12] = [
    ("POST", "/v1/submit"),
    ("POST", "/v2/submit"),
    ("GET", "/api/v2/jobs"),
    ("POST", "/api/v2/jobs"),
    ("DELETE", "/api/v2/jobs"),
    ("GET", "/api/v2/jobs/last"),
    ("DELETE", "/api/v2/jobs/last"),
    ("GET", "/api/v1/pfs/files"),
    ("POST", "/api/v1/pfs/files"),
    ("GET", "/api/v1/pfs/chunks"),
    ("GET", "/api/v1/pfs/storage/chunks"),
    ("POST", "/api/v1/pfs/storage/chunks"),
];

/// A token of an administrator with these scopes alone.
async fn token(stage: &Stage, scopes: &str) -> String {
    let scopes: Scopes = scopes.parse().unwrap();
    let auth = &stage.app.auth;
    let token = auth.token_create(&Peer::default(), "me", "secret", scopes).await;
    format!("Token {}", token.unwrap())
}

/// What a login without any scope is refused for; `None` when it is let in.
async fn scope_of(stage: &Stage, method: &'static str, path: &str, login: &str) -> Option<String> {
    let request = Request::new(method, path).header("authorization", login);
    let reply = request.send(&stage.address).await;
    if reply.status != 403 {
        return None;
    }
    let message = reply.json()["msg"].as_str().unwrap().to_owned();
    let scope = message.split('`').nth(1).unwrap_or("admin");
    Some(scope.to_owned())
}

fn method_of(text: &str) -> &'static str {
    match text {
        "get" => "GET",
        "post" => "POST",
        "put" => "PUT",
        "delete" => "DELETE",
        "patch" => "PATCH",
        other => panic!("{other} is a new method"),
    }
}

#[tokio::test]
async fn every_route_has_a_scope_or_is_open_to_all_by_declaration() {
    let stage = Stage::new().await;
    let none = token(&stage, "").await;
    let document: Value = serde_json::from_str(&paddlecloud_server::http::openapi::document()).unwrap();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let path = path.replace(['{', '}'], "");
            // These end the token that they are called with.
            let ends_it = path.ends_with("/logout") || path.ends_with("/renew");
            let none = match ends_it {
                true => token(&stage, "").await,
                false => none.clone(),
            };
            let ways = operation["security"].as_array();
            let needs_no_login = ways.is_some_and(|ways| ways.contains(&serde_json::json!({})));
            let scope = match needs_no_login {
                true => "nothing".to_owned(),
                false => scope_of(&stage, method_of(method), &path, &none)
                    .await
                    .unwrap_or_else(|| "any login".to_owned()),
            };
            let name = operation["operationId"].as_str().unwrap();
            found.entry(scope).or_default().push(name.to_owned());
        }
    }
    let table: String = found
        .iter()
        .map(|(scope, routes)| format!("{scope}: {}\n", routes.join(" ")))
        .collect();
    // A route that appears under `any login` or `nothing` needs a reason: they tell a caller about itself, are for
    // machines, or carry their own secret.
    insta::assert_snapshot!(table, @r"
    admin: audit_list audit_verify certificate_list certificate_issue certificate_revoke group_list group_delete group_set secrets_rotate usage_list user_list user_add user_delete user_show user_set file_fsck server_stop
    any login: token_logout password_change server_show token_list token_issue token_renew token_revoke whoami
    files: file_content file_copy file_glob file_list file_mkdir pack_send pack_receive file_storage file_remove file_rename share_list share_create share_revoke file_signature file_stat file_stats upload_list upload_begin upload_discard upload_show upload_chunk upload_commit upload_range upload_reuse file_usage
    nothing: token_create device_login device_login_poll share_read health_show metrics_show openapi_show ready_show
    read: job_list job_show log_stream job_wait job_why log_show quota_show registry_list secret_list worker_list
    submit: job_kill_named job_submit job_kill job_rerun package_announce job_prune registry_delete registry_create secret_delete secret_set
    ");
    stage.finish().await;
}

#[tokio::test]
async fn other_names_of_a_route_need_its_scope_too() {
    let stage = Stage::new().await;
    let none = token(&stage, "").await;
    for (method, path) in OTHER_NAMES {
        let scope = scope_of(&stage, method, path, &none).await;
        let expected = match (method, path.contains("/pfs/")) {
            (_, true) => "files",
            ("GET", false) => "read",
            _ => "submit",
        };
        assert_eq!(scope.as_deref(), Some(expected), "{method} {path}");
    }
    stage.finish().await;
}

#[tokio::test]
async fn a_narrow_token_does_what_it_is_for_and_nothing_else() {
    let stage = Stage::new().await;
    let reader = token(&stage, "read").await;
    let status = async |method, path: &str| {
        let request = Request::new(method, path).header("authorization", &reader);
        request.send(&stage.address).await.status
    };
    assert_eq!(status("GET", "/api/v1/jobs").await, 200);
    assert_eq!(status("GET", "/api/v1/whoami").await, 200);
    assert_eq!(status("POST", "/api/v1/jobs").await, 403);
    assert_eq!(status("GET", "/api/v1/pfs/list?path=/pfs/dc1/home/me").await, 403);
    // Its owner is an administrator; the token is not one's.
    assert_eq!(status("POST", "/api/v1/server/stop").await, 403);
    stage.finish().await;
}
