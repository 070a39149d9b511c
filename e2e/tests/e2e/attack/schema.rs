//! schemathesis sends what `openapi.json` allows and what it forbids: no 5xx, no reply that the document does not describe, no hang.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use e2e::{PASSWORD, Shared, TestEnvironment};

use super::rounds;

/// What would end the login that the run uses, or the server.
const LEFT_OUT: [&str; 5] = [
    "password_change",
    "server_stop",
    "token_logout",
    "token_renew",
    "token_revoke",
];

const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance";

/// The program, which is installed if necessary.
fn installed() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemathesis.sh");
    let install = Command::new("bash")
        .arg(script)
        .output()
        .expect("bash can be run");
    assert!(
        install.status.success(),
        "{}",
        String::from_utf8_lossy(&install.stderr)
    );
    String::from_utf8_lossy(&install.stdout).trim_end().into()
}

/// Fields are dropped in their order: the server ends before its user's environment is checked for leftovers.
struct Scene {
    shared: Shared,
    env: TestEnvironment,
    program: PathBuf,
}

impl Scene {
    fn set(program: PathBuf) -> Self {
        let env = TestEnvironment::new();
        // Without limits of rates: what is tested is everything behind them.
        let limits = "limits: {requests_per_user: 0, requests_before_login: 0}\n";
        let shared = Shared::start(&env, limits, "  admin: true\n");
        shared.configure(&env, PASSWORD);
        let package = env.package("keeper").file("train.sh", "echo kept\n");
        env.submit("keeper", &package, &["-entry", "sh train.sh", "-f"]);
        Self { env, shared, program }
    }

    fn token(&self, scopes: &str) -> String {
        let args = ["token", "create", "schema", "--scopes", scopes];
        self.env.paddlectl(&args).ok().stdout.trim().to_owned()
    }

    /// One run of this many seconds, with names of things that exist or with any.
    fn run(&self, token: &str, seconds: u64, parameters: &str) -> Output {
        let folder = self.env.folder("schemathesis");
        fs::write(folder.join("schemathesis.toml"), parameters).expect("a file in the test's own folder");
        let mut command = Command::new(&self.program);
        command
            .current_dir(&folder)
            .arg("run")
            .arg(format!("http://{}/openapi.json", self.shared.endpoint))
            .args(["--header", &format!("Authorization: Token {token}")])
            .args([
                "--checks",
                CHECKS,
                "--phases",
                "examples,coverage,fuzzing",
                "--no-color",
            ])
            .args([
                "--request-timeout",
                "60",
                "--max-time",
                &seconds.to_string(),
                "--warnings",
                "off",
            ]);
        for operation in LEFT_OUT {
            command.args(["--exclude-operation-id", operation]);
        }
        command.output().expect("schemathesis runs")
    }
}

fn check(output: &Output, server: &mut Shared) {
    let text = String::from_utf8_lossy(&output.stdout);
    let tested = text.lines().find(|line| line.contains(" generated, "));
    assert!(
        output.status.success() && tested.is_some(),
        "{text}\n--- the server's log\n{}",
        server.log()
    );
    eprintln!("{}", tested.unwrap_or_default().trim());
    assert!(Path::new(&format!("/proc/{}", server.pid())).exists());
}

#[test]
#[ignore = "needs schemathesis"]
fn no_request_generated_by_schemathesis_gets_an_undocumented_reply() {
    let program = installed();
    let mut scene = Scene::set(program);
    let seconds = if rounds() > 1 { 600 } else { 10 };
    let any = "";
    let real = "[parameters]\n\"path.job\" = \"keeper\"\n\"query.job\" = \"keeper\"\n\
                \"query.path\" = \"/pfs/cloud/home/ada\"\n\"path.name\" = \"ada\"\n";
    for scopes in ["read,submit,files", "read,submit,files,admin"] {
        for parameters in [any, real] {
            let token = scene.token(scopes);
            let output = scene.run(&token, seconds, parameters);
            check(&output, &mut scene.shared);
        }
    }
}
