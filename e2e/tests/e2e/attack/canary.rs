//! A recognisable value goes into every secret field. Afterwards it may be found only in the worker it was given to.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use e2e::{Background, PASSWORD, Shared, TestEnvironment, wait_until};

use crate::oidc::{self, Provider};
use crate::tls::{Authority, start_with_tls};

/// Secrets by what they are.
type Secrets = BTreeMap<String, String>;

/// The places that are searched, each with its bytes.
struct Place {
    name: String,
    bytes: Vec<u8>,
}

impl Place {
    fn file(path: &Path) -> Option<Self> {
        Some(Self {
            name: path.display().to_string(),
            bytes: fs::read(path).ok()?,
        })
    }
}

/// Every secret that lies in a place, plain or in base64.
fn found(places: &[Place], secrets: &Secrets) -> Vec<String> {
    let mut found = Vec::new();
    for place in places {
        for (kind, secret) in secrets {
            let shapes = [vec![secret.as_bytes().to_vec()], base64(secret.as_bytes())].concat();
            let is_there = |shape: &Vec<u8>| place.bytes.windows(shape.len()).any(|window| window == shape);
            if shapes.iter().any(is_there) {
                found.push(format!("{kind} in {}", place.name));
            }
        }
    }
    found
}

/// What base64 makes of the bytes at each of the three positions they can have, without the characters that depend on the
/// neighbours.
fn base64(bytes: &[u8]) -> Vec<Vec<u8>> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let at = |skip: usize| {
        let whole = &bytes[skip..skip + (bytes.len() - skip) / 3 * 3];
        let digits = whole.chunks(3).flat_map(|three| {
            let bits = three
                .iter()
                .fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
            [18, 12, 6, 0].map(|shift| DIGITS[(bits >> shift & 63) as usize])
        });
        digits.collect()
    };
    (0..3).map(at).collect()
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let deeper = entries.flat_map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => files_below(&entry.path()),
        Ok(kind) if kind.is_file() => vec![entry.path()],
        _ => Vec::new(),
    });
    deeper.collect()
}

/// Arguments and variables of every process of this machine that is not a worker of a job.
fn processes() -> Vec<Place> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let places = pids.flat_map(|pid| {
        let arguments = Place::file(Path::new(&format!("/proc/{pid}/cmdline")));
        let variables = Place::file(Path::new(&format!("/proc/{pid}/environ"))).filter(|_| !is_worker(pid));
        arguments.into_iter().chain(variables)
    });
    places.collect()
}

/// Whether a supervisor started the process, or one of its ancestors.
fn is_worker(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    let Some(parent) = parent
        .and_then(|parent| parent.trim().parse::<u32>().ok())
        .filter(|pid| *pid > 1)
    else {
        return false;
    };
    let words = fs::read(format!("/proc/{parent}/cmdline")).unwrap_or_default();
    words.starts_with(b"paddlecloud-supervise\0") || is_worker(parent)
}

/// Text that no other test has.
fn own(env: &TestEnvironment) -> String {
    let folder = env.folder("server").display().to_string();
    folder.replace(['/', '.'], "-")
}

/// Fields are dropped in their order: the server ends before its user's environment is checked for leftovers.
struct Scene {
    shared: Shared,
    env: TestEnvironment,
    secrets: Secrets,
}

impl Scene {
    fn set() -> Self {
        let mut scene = Self::start(TestEnvironment::new(), "");
        // Other tests run at the same time: only values of this test's own are searched for in processes.
        let own = own(&scene.env);
        for kind in ["password", "registry password", "secret"] {
            let canary = format!("canary-{}{own}", kind.replace(' ', "-"));
            scene.secrets.insert(kind.to_owned(), canary);
        }
        scene.fill();
        scene
    }

    /// A server whose log says much, with an administrator and a token.
    fn start(mut env: TestEnvironment, settings: &str) -> Self {
        env.set("PADDLECLOUD_LOG", "debug");
        let shared = Shared::start(&env, settings, "  admin: true\n");
        shared.configure(&env, PASSWORD);
        let token = env.paddlectl(&["token", "create", "canary"]).ok().stdout;
        let secrets = Secrets::from([("token".to_owned(), token.trim().to_owned())]);
        Self { shared, env, secrets }
    }

    /// Runs `paddlectl` with a secret on its stdin.
    fn give(&self, kind: &str, args: &[&str]) -> String {
        let mut command = self.env.command("paddlectl", args);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut stdin = child.stdin.take().expect("it is piped");
        writeln!(stdin, "{}", self.secrets[kind]).expect("it reads");
        drop(stdin);
        let output = child.wait_with_output().expect("it ends");
        let shown = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{args:?}: {shown}");
        assert!(!shown.contains(&self.secrets[kind]), "{shown}");
        shown
    }

    /// Puts a secret into every field, and runs a job with them.
    fn fill(&mut self) {
        self.give(
            "registry password",
            &[
                "registry",
                "-name",
                "hub",
                "-username",
                "ada",
                "-server",
                "hub.example.org",
            ],
        );
        self.give("secret", &["secret", "set", "key"]);
        let script = "echo up; printf %s \"$KEY\" | wc -c; sleep 1000\n";
        let package = self.env.package("keeper").file("train.sh", script);
        self.env.submit(
            "keeper",
            &package,
            &["-entry", "sh train.sh", "-secret", "key=KEY"],
        );
        let length = self.secrets["secret"].len().to_string();
        wait_until("the worker has the secret", || {
            let logs = self.env.paddlectl(&["logs", "keeper"]);
            logs.stdout.lines().any(|line| line == length).then_some(())
        });
        let run = wait_until("the worker has the secret of its run", || {
            self.variables_of_workers().remove("PADDLE_PS_SECRET")
        });
        self.secrets.insert("the run's secret".to_owned(), run);
    }

    fn variables_of_workers(&self) -> BTreeMap<String, String> {
        let workers = self
            .env
            .processes()
            .into_iter()
            .filter(|process| is_worker(process.pid));
        let texts = workers.filter_map(|process| fs::read(format!("/proc/{}/environ", process.pid)).ok());
        let pairs = texts.flat_map(|text| {
            let text = String::from_utf8_lossy(&text).into_owned();
            let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
            pairs
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect::<Vec<_>>()
        });
        pairs.collect()
    }

    /// The replies to what a user and an administrator can ask for.
    fn replies(&self) -> Vec<Place> {
        let paths = [
            "/api/v1/jobs?all=true",
            "/api/v1/workers",
            "/api/v1/quota",
            "/api/v1/registry",
            "/api/v1/secrets",
            "/api/v1/tokens",
            "/api/v1/server",
            "/api/v1/whoami",
            "/api/v1/admin/users",
            "/api/v1/admin/groups",
            "/api/v1/admin/audit",
            "/api/v1/admin/usage",
            "/metrics",
            "/openapi.json",
        ];
        paths.map(|path| self.reply(path)).into()
    }

    fn reply(&self, path: &str) -> Place {
        let mut stream = TcpStream::connect(&self.shared.endpoint).expect("the server listens");
        let token = &self.secrets["token"];
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Token {token}\r\n\r\n"
        )
        .expect("the server reads");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("the server replies");
        assert!(
            bytes.starts_with(b"HTTP/1.1 200"),
            "{path}: {}",
            String::from_utf8_lossy(&bytes)
        );
        Place {
            name: format!("the reply of {path}"),
            bytes,
        }
    }

    /// Everything but the worker: the data folder with the database, a backup, the server's log, replies, processes.
    fn places(&mut self) -> Vec<Place> {
        let folder = self.env.folder("server");
        let words = |name: &str| folder.join(name).display().to_string();
        let (config, backup) = (words("config.yaml"), words("backup"));
        let _ = fs::remove_file(&backup);
        self.env
            .run("paddlecloud-server", &["backup", "--config", &config, &backup])
            .ok();
        let mut files = files_below(&folder.join("data"));
        files.push(backup.into());
        let mut places: Vec<Place> = files.iter().filter_map(|path| Place::file(path)).collect();
        places.push(Place {
            name: "the server's log".to_owned(),
            bytes: self.shared.log().into_bytes(),
        });
        places.extend(self.replies());
        places.extend(processes());
        places
    }

    /// The replies about the job of [`Scene::fill`].
    fn replies_of_job(&self) -> Vec<Place> {
        let paths = [
            "/api/v1/jobs/keeper",
            "/api/v1/jobs/keeper/why",
            "/api/v1/logs?jobname=keeper",
        ];
        paths.map(|path| self.reply(path)).into()
    }

    fn end(self) {
        self.env.paddlectl(&["kill", "keeper"]).ok();
        self.env.wait_for_status("keeper", "Killed");
    }
}

#[test]
fn secrets_are_found_only_in_the_worker_they_were_given_to() {
    let mut scene = Scene::set();
    scene.give("password", &["admin", "user", "add", "eve"]);
    let given = scene.variables_of_workers();
    assert_eq!(given.get("KEY"), scene.secrets.get("secret"), "the worker itself");
    let mut places = scene.places();
    places.extend(scene.replies_of_job());
    let leaks = found(&places, &scene.secrets);
    assert_eq!(leaks, Vec::<String>::new(), "secrets were found elsewhere");
    scene.end();
}

/// Between a login and its renewal the server holds all secrets of the login provider.
#[test]
#[ignore = "needs oidc-provider"]
fn secrets_of_the_login_provider_are_found_nowhere() {
    let (mut env, user) = (TestEnvironment::new(), TestEnvironment::new());
    let client_secret = format!("canary-client-secret{}", own(&env));
    let provider = Provider::start_with_secret(&mut env, "RS256", &client_secret);
    let settings = provider.settings("  groups_claim: groups\n  create_accounts: true\n");
    let mut scene = Scene::start(env, &settings);
    oidc::configure(&user, &scene.shared);
    let (done, said) = oidc::log_in(&user, "ann", "");
    assert!(done, "{said}");
    user.paddlectl(&["token", "renew"]).ok();
    scene.secrets.insert("client secret".to_owned(), client_secret);
    for (number, (name, secret)) in provider.issued().into_iter().enumerate() {
        scene.secrets.insert(format!("{name} {number}"), secret);
    }
    let kinds: Vec<&str> = scene
        .secrets
        .keys()
        .filter_map(|kind| kind.split(' ').next())
        .collect();
    for kind in ["device_code", "access_token", "id_token", "refresh_token"] {
        assert!(kinds.contains(&kind), "{kind} in {kinds:?}");
    }
    let mut places = scene.places();
    places.push(Place {
        name: "what the login printed".to_owned(),
        bytes: said.into_bytes(),
    });
    let leaks = found(&places, &scene.secrets);
    assert_eq!(leaks, Vec::<String>::new(), "secrets were found");
    // It runs in the scene's environment, which must be empty at its end.
    drop(provider);
}

/// What leaks in each kind of place is found: without this, the test above could pass by looking nowhere.
#[test]
fn a_planted_leak_is_found_everywhere() {
    let mut scene = Scene::set();
    let secret = scene.secrets["secret"].clone();
    let secret = secret.as_str();
    let file = scene.env.folder("server").join("data/leak");
    let encoded =
        String::from_utf8(base64(format!("x{secret}xx").as_bytes()).swap_remove(1)).expect("letters");
    fs::write(&file, format!("{{\"a\":\"{encoded}\"}}")).expect("the folder is ours");
    let arguments = sleeper(&scene.env, &["-f", "/dev/null", secret], None);
    let variables = sleeper(&scene.env, &["-f", "/dev/null"], Some(secret));
    // A variable of a job is no secret: it is in the job's record, in replies, and in the plan.
    let package = scene.env.package("leak").file("train.sh", "sleep 1000\n");
    let open = format!("OPEN={secret}");
    scene
        .env
        .submit("leak", &package, &["-entry", "sh train.sh", "--env", &open]);
    scene.env.wait_for_status("leak", "Running");
    let places = scene.places();
    let leaks = found(&places, &scene.secrets);
    let has = |place: &str| leaks.iter().any(|leak| leak.contains(place));
    for place in [
        "data/leak",
        &format!("/proc/{}/cmdline", arguments.id()),
        &format!("/proc/{}/environ", variables.id()),
        "data/server.db",
        "server/backup",
        "plan.json",
        "the reply of /api/v1/jobs",
    ] {
        assert!(has(place), "nothing was found in {place}: {leaks:#?}");
    }
    drop((arguments, variables));
    scene.env.paddlectl(&["kill", "leak"]).ok();
    scene.env.wait_for_status("leak", "Killed");
    scene.end();
}

/// A process that has the secret where others can read it.
fn sleeper(env: &TestEnvironment, args: &[&str], variable: Option<&str>) -> Background {
    match variable {
        None => env.start_program("/usr/bin/tail", args),
        Some(value) => {
            let set = format!("LEAK={value}");
            env.start_program("/usr/bin/env", &[&[set.as_str(), "/usr/bin/tail"], args].concat())
        }
    }
}

/// The private key of the server stays in its own file.
#[test]
fn the_servers_private_key_leaves_its_file_nowhere() {
    let env = TestEnvironment::new();
    let authority = Authority::new(&env, "ours");
    let mut shared = start_with_tls(&env, &authority);
    let key = fs::read_to_string(authority.path("server.key")).expect("the server's key");
    let line = key.lines().nth(1).expect("a line of base64").to_owned();
    let secrets = Secrets::from([("the server's key".to_owned(), line)]);
    let files = files_below(&env.folder("server").join("data"));
    let mut places: Vec<Place> = files.iter().filter_map(|path| Place::file(path)).collect();
    places.push(Place {
        name: "the server's log".to_owned(),
        bytes: shared.log().into_bytes(),
    });
    places.extend(processes());
    assert_eq!(found(&places, &secrets), Vec::<String>::new());
}
