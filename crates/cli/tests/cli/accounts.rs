//! Accounts, tokens and secrets at a server that answers with fixed data.

use crate::scripted::server;
use crate::shell::Shell;

#[test]
fn accounts_are_listed_changed_and_deleted() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    let listed = shell.line("admin user list").out;
    assert_eq!(
        listed,
        "NAME\tKIND\tSTATE\tFROM\tGROUPS\tLIMITS\nann\tuser\tdisabled\tdatabase\tvision\tcpu=4,gpu=1\n"
    );
    let line = "admin user set ann --quota cpu=4,storage=none --groups vision,nlp --admin true";
    assert_eq!(shell.line(line).code, 0);
    let body: serde_json::Value = serde_json::from_slice(&server.bodies("PATCH")[0]).unwrap();
    assert_eq!(
        body,
        serde_json::json!({
            "admin": true, "groups": ["vision", "nlp"], "limits": {"cpu": "4", "storage": "none"}
        })
    );
    let deleted = shell.line("admin user delete ann --keep");
    assert!(
        deleted.err.contains("jobs: ann~7; home: /storage/home/ann~7"),
        "{}",
        deleted.err
    );
    assert!(
        server
            .lines()
            .contains(&"DELETE /api/v1/admin/users/ann?dispose=keep".to_owned())
    );
}

#[test]
fn missing_arguments_are_reported_before_anything_is_sent() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    for (line, words) in [
        ("admin user delete ann", "`--keep`, `--give-to NAME` or `--purge`"),
        ("admin user set ann", "nothing to change"),
        ("admin user set ann --quota cpu", "write `cpu=16`"),
        (
            "admin user set ann --quota cpu=",
            "or `cpu=none` to remove the limit",
        ),
        (
            "admin user add bob --quota cpu=many",
            "`cpu`: `many` is not a value",
        ),
        (
            "admin user add bob --quota gpu=1,cores=4",
            "`cores` is not a limit: use cpu, ",
        ),
    ] {
        let outcome = shell.line(line);
        assert_eq!(outcome.code, 2, "{line}: {}", outcome.err);
        assert!(outcome.err.contains(words), "{line}: {}", outcome.err);
    }
    assert!(server.bodies("DELETE").is_empty() && server.bodies("PATCH").is_empty());
}

/// A server with two tokens `twice` and one `nightly`.
fn with_tokens() -> crate::scripted::Server {
    crate::scripted::server_with(|line| {
        let token = |id: &str, name: &str| {
            serde_json::json!({
                "id": id, "name": name, "user": "me", "scopes": "read,submit,files,admin",
                "created": "2026-01-01T11:00:00Z", "expires": "2026-02-01T11:00:00Z"
            })
        };
        let tokens = [
            token("5b0a6c1e9f42", "nightly"),
            token("5b0a6c1e9f43", "twice"),
            token("5b0a6c1e9f44", "twice"),
        ];
        let by_name = ["nightly", "twice", "never"]
            .iter()
            .any(|name| line.ends_with(name));
        match line {
            "GET /api/v1/tokens" => {
                let list = serde_json::json!({ "code": 200, "msg": tokens });
                Some((200, list.to_string()))
            }
            line if line.starts_with("DELETE") && by_name => Some((
                404,
                r#"{"code":404,"msg":"there is no such token","error":"not-found"}"#.to_owned(),
            )),
            _ => None,
        }
    })
}

#[test]
fn a_token_is_revoked_by_its_id_or_its_only_name() {
    let server = with_tokens();
    let shell = Shell::at(&server.endpoint);
    assert_eq!(
        shell.line("token revoke nightly").err,
        "token 5b0a6c1e9f42 has been revoked\n"
    );
    let refused = shell.line("token revoke twice");
    assert_eq!(
        (refused.code, refused.err.as_str()),
        (
            1,
            "error: 2 tokens are called `twice`\nhint: name one by its id: 5b0a6c1e9f43, 5b0a6c1e9f44\n"
        )
    );
    assert_eq!(
        shell.line("token revoke never").err,
        "error: there is no such token\n"
    );
}

#[test]
fn tokens_fit_on_a_terminal_and_are_whole_in_a_pipe() {
    let server = with_tokens();
    let mut shell = Shell::at(&server.endpoint);
    let piped = shell.line("token list").out;
    assert!(
        piped.contains("\t2026-01-01T11:00:00Z\t2026-02-01T11:00:00Z\n"),
        "{piped}"
    );
    shell.is_terminal = true;
    let shown = shell.line("token list").out;
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    assert!(shown.contains("11:00:00Z  02-01 11:00Z"), "{shown}");
}

#[test]
fn a_tokens_secret_is_data_and_the_rest_is_for_people() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    let made = shell.line("token create ci --scopes read --expires 7d");
    assert_eq!(made.out, "pct_1234\n");
    assert!(made.err.contains("it is not shown again"), "{}", made.err);
    let body: serde_json::Value = serde_json::from_slice(&server.bodies("POST /api/v1/tokens")[0]).unwrap();
    assert_eq!(
        body,
        serde_json::json!({"name": "ci", "scopes": "read", "lifetime_seconds": 604_800})
    );
    assert_eq!(shell.line("token revoke 5b0a").code, 0);
}

#[test]
fn a_broken_audit_log_is_a_failure() {
    let server = server();
    let outcome = Shell::at(&server.endpoint).line("admin audit --verify");
    assert_eq!(
        (outcome.code, outcome.out.as_str()),
        (1, "broken at row 3: the row is missing\n")
    );
}

#[test]
fn registries_and_secrets_are_listed_without_what_is_in_them() {
    let server = server();
    let shell = Shell::at(&server.endpoint);
    assert_eq!(
        shell.line("get registry").out,
        "NAME\tSERVER\tUSERNAME\nmine\tregistry.example.org\tu\n"
    );
    let stored = shell.line("registry -username u -password p -server registry.example.org -name mine");
    assert!(stored.err.contains("visible to other users"), "{}", stored.err);
    let body: serde_json::Value = serde_json::from_slice(&server.bodies("POST /api/v1/registry")[0]).unwrap();
    assert_eq!(
        body,
        serde_json::json!({"name": "mine", "server": "registry.example.org", "username": "u", "password": "p"})
    );
    assert_eq!(shell.line("secret list -o name").out, "api-key\n");
}
