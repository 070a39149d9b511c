//! The first steps of a new user: only the README, an empty home, their own package.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use e2e::TestEnvironment;

/// The shell lines of the README's first five minutes.
fn readme_lines() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = fs::read_to_string(path).expect("the README lies in the root");
    let (_, section) = readme
        .split_once("## The first five minutes")
        .expect("the README has this section");
    let (_, block) = section.split_once("```sh\n").expect("it has shell lines");
    block.split_once("```").expect("the block ends").0.to_owned()
}

#[track_caller]
fn run_shell(env: &TestEnvironment, script: &str) -> String {
    let paddlectl = env.command("paddlectl", &[]);
    let mut shell = Command::new("sh");
    shell
        .args(["-euc", script])
        .current_dir(env.folder("work-of-a-stranger"))
        .env_clear();
    shell.envs(
        paddlectl
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let output = shell.output().expect("there is a shell");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{script}\n{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

#[test]
fn the_readme_works_as_printed() {
    let env = TestEnvironment::new();
    let lines = readme_lines();
    let (before, after) = lines
        .split_once("paddlectl logs -f hello")
        .expect("the README follows the log");

    run_shell(&env, before);
    let mut follower = env.start(&["logs", "-f", "hello"]);
    follower.wait_for_line("trainer 0 reads data/part-0");
    follower.interrupt();
    let (status, lines) = follower.end();
    assert_eq!(
        status.code(),
        Some(0),
        "leaving by Ctrl-C is no failure: {lines:?}"
    );

    let (_, rest) = after.split_once('\n').unwrap();
    let printed = run_shell(&env, rest);
    let runs = printed
        .lines()
        .filter(|line| line.split_whitespace().nth(1) == Some("hello"))
        .count();
    assert_eq!(runs, 2, "both runs are in the table:\n{printed}");
}

#[test]
fn bash_completes_with_the_help_of_the_program() {
    let env = TestEnvironment::new();
    let package = env.package("job").file("train.sh", "true\n");
    env.submit("completed", &package, &["-entry", "sh train.sh", "-f"]);
    let offered = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let script = format!(
            "bash --norc -c 'source <(paddlectl completion bash); COMP_WORDS=({}); COMP_CWORD={}; _paddlectl; echo ${{COMPREPLY[*]}}'",
            quoted.join(" ").replace('\'', "\""),
            words.len() - 1
        );
        run_shell(&env, &script).trim().to_owned()
    };
    assert_eq!(offered("paddlectl desc"), "describe");
    assert_eq!(offered("paddlectl submit -job"), "-jobname");
    // A completion that asks the server offers nothing if a busy machine keeps it waiting for two seconds.
    let wait_until_offered = |line: &str, word: &str| {
        e2e::wait_until(&format!("`{line}` must be completed with `{word}`"), || {
            (offered(line) == word).then_some(())
        });
    };
    wait_until_offered("paddlectl logs co", "completed");
    wait_until_offered("paddlectl logs completed -w tr", "trainer-0");
    wait_until_offered("paddlectl ls /pfs/l", "/pfs/local/");
    let home = env.paddlectl(&["whoami", "-o", "json"]).ok().json()["home"].clone();
    let home = home.as_str().expect("everybody has a home");
    wait_until_offered(
        &format!("paddlectl ls {home}/.padd"),
        &format!("{home}/.paddlecloud/"),
    );
}

#[test]
fn the_parameter_server_prints_its_help_and_ends() {
    let env = TestEnvironment::new();
    let help = env.run("paddle", &["pserver", "--help"]).ok();
    drop(help.prints("--ports_num_for_sparse"));
}

#[test]
fn paddle_train_without_its_package_says_what_to_install() {
    let env = TestEnvironment::new();
    env.run("paddle", &["train"])
        .refused(1)
        .says("error: `paddle train` needs the Python package `paddlecloud`")
        .says("hint: install `paddlecloud` and `paddlepaddle`");
}

/// As in a container: the server and all it starts get no namespaces.
#[test]
fn the_readme_works_where_namespaces_are_not_permitted() {
    let env = TestEnvironment::new();
    let mut start = env.command("paddlectl", &["server", "start"]);
    // SAFETY: between fork and exec only system calls are made, on values of this frame.
    unsafe {
        start.pre_exec(refuse_namespaces);
    }
    let started = start.output().expect("the program is there");
    assert!(
        started.status.success(),
        "{}",
        String::from_utf8_lossy(&started.stderr)
    );
    let status = env.paddlectl(&["server", "status"]).ok().stdout;
    assert!(status.contains("namespaces are not permitted"), "{status}");

    let lines = readme_lines();
    let (before, _) = lines
        .split_once("paddlectl logs -f hello")
        .expect("the README follows the log");
    // Root may offer files in `/`, which older programs read.
    let reads_file = "assert me == int(open('/trainer_id').read())\nfor path in sorted";
    let before = match rustix::process::geteuid().is_root() {
        true => before.replace("for path in sorted", reads_file),
        false => before.to_owned(),
    };
    run_shell(&env, &before);
    // The workers' lines come in any order.
    e2e::wait_until("every trainer reads its share", || {
        let log = env.logs("hello").join("\n");
        let reads = |index: u32| log.contains(&format!("trainer {index} reads data/part-{index}"));
        (0..3).all(reads).then_some(())
    });
    env.paddlectl(&["kill", "--now", "hello"]).ok();
    assert_eq!(env.paddlectl(&["wait", "hello"]).code, Some(1));
    assert_eq!(env.status("hello"), "Killed");

    let package = env
        .package("views")
        .file("train.sh", "cat /pfs/local/public/missing\n");
    env.submit("views", &package, &["-entry", "sh train.sh"]);
    assert_eq!(env.paddlectl(&["wait", "views"]).code, Some(1));
    env.paddlectl(&["why", "views"])
        .ok()
        .prints("this machine permits no namespaces, so a worker may not find `/pfs/`");
}

/// Makes the kernel refuse this process, and all it starts, namespaces of their own.
fn refuse_namespaces() -> std::io::Result<()> {
    const NAMESPACES: u32 = (libc::CLONE_NEWNS | libc::CLONE_NEWUSER | libc::CLONE_NEWPID) as u32;
    let load = |at: u32| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0, 0);
    let is = |call: libc::c_long, then: u8, other: u8| {
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            call as u32,
            then,
            other,
        )
    };
    let end = |with: u32| step(libc::BPF_RET | libc::BPF_K, with, 0, 0);
    let error = |number: i32| end(libc::SECCOMP_RET_ERRNO | number as u32);
    let mut steps = [
        load(0),
        is(libc::SYS_clone3, 5, 0),
        is(libc::SYS_unshare, 3, 0),
        is(libc::SYS_clone, 0, 4),
        // The first argument's lower half.
        load(16),
        step(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, NAMESPACES, 0, 2),
        error(libc::EPERM),
        // Without it the C library makes do with clone.
        error(libc::ENOSYS),
        end(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the program and its steps outlive the calls.
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) != 0
        {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

fn step(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

#[test]
fn three_trainers_read_different_files_in_the_submitters_virtual_environment() {
    let mut env = TestEnvironment::new();
    let venv = env.folder("venv");
    let made = Command::new("python3")
        .args(["-m", "venv", "--without-pip"])
        .arg(&venv)
        .status()
        .unwrap();
    assert!(made.success());
    env.set("VIRTUAL_ENV", venv.to_str().unwrap());
    env.search_first(venv.join("bin"));
    let package = env
        .package("reader")
        .file("share.py", SHARE)
        .file("train.py", "import share\nshare.read()\n")
        .file("data/a", "")
        .file("data/b", "")
        .file("data/c", "")
        .file("data/d", "");

    let flags = [
        "-parallelism",
        "3",
        "-pservers",
        "2",
        "-memory",
        "128Mi",
        "-entry",
        "python train.py",
        "-f",
    ];
    env.submit("reader", &package, &flags);

    let log = env
        .paddlectl(&["logs", "--raw", "--role", "trainer", "reader"])
        .ok()
        .stdout;
    let mut read: Vec<&str> = log.lines().filter(|line| line.starts_with("read ")).collect();
    read.sort_unstable();
    assert_eq!(
        read,
        ["read 0 0 3 a", "read 0 0 3 d", "read 1 1 3 b", "read 2 2 3 c"]
    );
    let prefixes = log
        .lines()
        .filter(|line| *line == format!("python of {}", venv.display()))
        .count();
    assert_eq!(prefixes, 3, "`python` is the one the submitter sees:\n{log}");
    assert_eq!(env.status("reader"), "Succeeded");
}

/// Prints this trainer's number from the variable and from the file, the number of trainers, and its files.
const SHARE: &str = r#"
import os, sys

def read():
    me = int(os.environ["PADDLE_INIT_TRAINER_ID"])
    in_file = open("/trainer_id").read()[:-1]
    trainers = int(open("/trainer_count").read()[:-1])
    print("python of " + sys.prefix)
    for index, name in enumerate(sorted(os.listdir("data"))):
        if index % trainers == me:
            print("read", me, in_file, trainers, name)
"#;
