//! Which Python a job runs, and what is said about it.

use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::{PASSWORD, Package, Ran, Shared, TestEnvironment};

/// A virtual environment without packages.
fn environment(env: &TestEnvironment, name: &str) -> PathBuf {
    let folder = env.folder(name);
    let made = Command::new("python3")
        .args(["-m", "venv", "--without-pip"])
        .arg(&folder)
        .status()
        .expect("python3 starts");
    assert!(made.success());
    folder
}

fn activate(env: &mut TestEnvironment, environment: &Path) {
    env.set("VIRTUAL_ENV", environment.to_str().expect("a plain name"));
    env.search_first(environment.join("bin"));
}

fn package(env: &TestEnvironment) -> Package {
    env.package("which")
        .file("train.py", "import sys\nprint('python of', sys.prefix)\n")
        .file("lacking.py", "import nowhere.to_be_found\n")
}

/// Submits and follows the job to its end.
fn submit(env: &TestEnvironment, package: &Package, name: &str, entry: &str) -> Ran {
    let size = ["-cpu", "20m", "-memory", "128Mi", "-pservers", "0"];
    let job = ["submit", "-f", "-jobname", name, "-entry", entry, package.arg()];
    env.paddlectl(&[&job[..], &size].concat())
}

#[test]
fn a_shared_server_runs_the_configured_python_and_says_that_the_active_one_is_not_used() {
    let mut env = TestEnvironment::new();
    let (served, active) = (environment(&env, "served"), environment(&env, "active"));
    let shared = Shared::start(&env, &format!("python: {}\n", served.display()), "");
    shared.configure(&env, PASSWORD);
    let package = package(&env);
    let of = |environment: &Path| format!("python of {}\n", environment.display());

    let plain = submit(&env, &package, "plain", "python train.py").ok();
    assert!(
        !plain.stderr.contains("`python` in this job"),
        "nothing is active: {plain}"
    );
    plain.prints(&of(&served));

    activate(&mut env, &active);
    let note = format!(
        "note: `python` in this job is `{}/bin/python` of the server's machine; the virtual environment `{}`, which is \
         active here, is not used",
        served.display(),
        active.display()
    );
    submit(&env, &package, "other", "python train.py")
        .ok()
        .says(&note)
        .prints(&of(&served));
    let by_path = format!("{}/bin/python train.py", active.display());
    let named = submit(&env, &package, "named", &by_path).ok();
    assert!(!named.stderr.contains("`python` in this job"), "{named}");
    named.prints(&of(&active));

    let failed = submit(&env, &package, "lacking", "python lacking.py");
    assert_eq!(failed.code, Some(1), "{failed}");
    let why = format!(
        "; `{}/bin/python` on the server's machine has no module `nowhere`: name a Python there that has it (`-entry \
         \"ENV/bin/python …\"`), or ask your administrator for `python: ENV` in the server's configuration",
        served.display()
    );
    env.paddlectl(&["why", "lacking"]).ok().prints(&why);

    activate(&mut env, &served);
    let same = submit(&env, &package, "same", "python train.py").ok();
    assert!(!same.stderr.contains("`python` in this job"), "{same}");
}

#[test]
fn the_embedded_server_runs_the_active_python_and_says_what_it_lacks() {
    let mut env = TestEnvironment::new();
    let active = environment(&env, "active");
    activate(&mut env, &active);
    let package = package(&env);
    let ran = submit(&env, &package, "here", "python train.py").ok();
    assert!(!ran.stderr.contains("`python` in this job"), "{ran}");
    ran.prints(&format!("python of {}\n", active.display()));

    let failed = submit(&env, &package, "lacking", "python lacking.py");
    assert_eq!(failed.code, Some(1), "{failed}");
    let why = format!(
        "; `{}/bin/python` has no module `nowhere`: install it there, or activate a virtual environment that has it, and \
         submit again",
        active.display()
    );
    env.paddlectl(&["why", "lacking"]).ok().prints(&why);
}
