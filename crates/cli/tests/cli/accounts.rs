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
