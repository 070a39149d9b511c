//! Logs: every byte of every worker, followed to the end.

use std::io::Read;
use std::process::Stdio;

use e2e::{PASSWORD, Shared, TestEnvironment};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn following_ends_with_the_job_and_not_before_its_last_byte() {
    let env = TestEnvironment::new();
    let lines = 20_000;
    let package = env.package("job").file(
        "train.sh",
        format!("seq {lines}\nprintf 'no newline at the end'\n"),
    );
    env.submit("talk", &package, &["-entry", "sh train.sh"]);
    let followed = env
        .command("paddlectl", &["logs", "-f", "--raw", "--role", "trainer", "talk"])
        .output()
        .unwrap();
    assert_eq!(followed.status.code(), Some(0));
    let printed = String::from_utf8(followed.stdout).unwrap();
    let numbers: Vec<u32> = printed.lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(
        numbers,
        (1..=lines).collect::<Vec<u32>>(),
        "no line lost, none twice, in order"
    );
    assert_eq!(printed.lines().last(), Some("no newline at the end"));
}

#[test]
fn a_follower_of_a_failed_job_exits_with_1() {
    let env = TestEnvironment::new();
    let package = env.package("job").file("train.sh", "exit 4\n");
    env.submit("fails", &package, &["-entry", "sh train.sh"]);
    let (status, lines) = env.start(&["logs", "-f", "fails"]).end();
    assert_eq!(status.code(), Some(1), "{lines:?}");
}

#[test]
fn bytes_that_are_not_text_are_logged_unchanged() {
    let env = TestEnvironment::new();
    let package = env
        .package("job")
        .file("train.sh", "printf '10%%\\r20%%\\r\\377\\376\\000end\\n'\n");
    env.submit("bytes", &package, &["-entry", "sh train.sh", "-f"]);
    let output = env
        .command("paddlectl", &["logs", "--raw", "bytes"])
        .output()
        .unwrap();
    let expected = b"10%\r20%\r\xff\xfe\x00end\n";
    let found = output
        .stdout
        .windows(expected.len())
        .any(|window| window == expected);
    assert!(found, "{:?}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn logs_can_be_limited_to_the_last_lines_of_one_worker() {
    let env = TestEnvironment::new();
    let package = env
        .package("job")
        .file("train.sh", "seq 50 | sed \"s/^/$PADDLE_INIT_TRAINER_ID:/\"\n");
    env.submit(
        "many",
        &package,
        &["-parallelism", "2", "-entry", "sh train.sh", "-f"],
    );
    let workers = env.describe("many")["workers"].clone();
    let workers = workers.as_array().unwrap();
    let second = workers
        .iter()
        .find(|worker| worker["index"] == 1)
        .expect("trainer 1");
    let name = second["name"].as_str().unwrap();

    let log = env
        .paddlectl(&["logs", "-n", "3", "-w", name, "--raw", "many"])
        .ok()
        .stdout;
    assert_eq!(log, "1:48\n1:49\n1:50\n");
}

#[test]
fn lines_of_several_workers_are_prefixed_with_the_worker() {
    let env = TestEnvironment::new();
    let package = env
        .package("job")
        .file("train.sh", "echo I am $PADDLE_INIT_TRAINER_ID\n");
    env.submit(
        "both",
        &package,
        &["-parallelism", "2", "-entry", "sh train.sh", "-f"],
    );
    let log = env.logs("both");
    for index in ["0", "1"] {
        let said = format!("I am {index}");
        let line = log
            .iter()
            .find(|line| line.ends_with(&said))
            .expect("each trainer's line");
        assert!(
            line.len() > said.len() && line.contains("trainer"),
            "no prefix: {line}"
        );
    }
}

#[test]
fn a_workers_output_is_also_stored_in_the_output_folder() {
    let env = TestEnvironment::new();
    let package = env.package("job").file("train.sh", "echo kept\n");
    env.submit("kept", &package, &["-entry", "sh train.sh", "-f"]);
    let output = env.describe("kept")["job"]["output"]
        .as_str()
        .expect("a job has an output")
        .to_owned();
    let entry = format!("cat {output}/node_0/train.log");
    env.submit("reader", &package, &["-entry", &entry, "-f"]);
    env.paddlectl(&["logs", "--raw", "reader"]).ok().prints("kept\n");
}

#[test]
fn the_copy_in_the_output_folder_can_be_turned_off() {
    let mut env = TestEnvironment::new();
    env.set("PADDLECLOUD_LOG_COPY", "off");
    let package = env
        .package("job")
        .file("train.sh", "echo once; echo model > output/model\n");
    env.submit("once", &package, &["-entry", "sh train.sh", "-f"]);
    env.paddlectl(&["logs", "--raw", "once"]).ok().prints("once\n");
    let output = env.describe("once")["job"]["output"]
        .as_str()
        .expect("an output")
        .to_owned();
    let listed = env.paddlectl(&["ls", "-r", &output]).ok().stdout;
    assert!(
        listed.contains("model") && !listed.contains("train.log"),
        "{listed}"
    );

    env.paddlectl(&["prune", "--all"])
        .ok()
        .says("hint: `--outputs` removes them too");
    assert_eq!(
        env.paddlectl(&["ls", "-r", &output]).ok().stdout,
        listed,
        "outputs stay"
    );
    env.paddlectl(&["prune", "--all", "--outputs"]).ok();
    let left = env.paddlectl(&["ls", &output]);
    assert_eq!(left.stdout, "", "{left}");
}

#[test]
fn standard_output_and_error_of_a_worker_are_shown_in_the_order_written() {
    let env = TestEnvironment::new();
    let program = "import sys\n\
                   for step in range(500):\n    \
                   print('out', step, flush=True)\n    \
                   print('\\rbar', step, end='\\n', file=sys.stderr, flush=True)\n";
    let package = env.package("job").file("train.py", program);
    env.submit(
        "order",
        &package,
        &["-memory", "64Mi", "-entry", "python3 train.py", "-f"],
    );
    let log = env.paddlectl(&["logs", "--raw", "order"]).ok().stdout;
    let shown: Vec<&str> = log
        .lines()
        .map(|line| line.trim_start_matches('\r'))
        .filter(|line| line.starts_with("out ") || line.starts_with("bar "))
        .collect();
    let written: Vec<String> = (0..500)
        .flat_map(|step| [format!("out {step}"), format!("bar {step}")])
        .collect();
    assert_eq!(shown, written);
}

#[test]
fn a_rotated_log_reports_the_range_of_removed_bytes() {
    let env = TestEnvironment::new();
    let shared = Shared::start(&env, "logs: {segment: 64Ki, keep: 256Ki}\n", "");
    shared.configure(&env, PASSWORD);
    let lines = 200_000;
    let package = env.package("job").file("train.sh", format!("seq {lines}\n"));
    env.submit("talks", &package, &["-entry", "sh train.sh"]);
    env.paddlectl(&["wait", "talks"]).ok();
    let log = env
        .paddlectl(&["logs", "--raw", "--role", "trainer", "talks"])
        .ok();
    let (rest, mark) = (log.stdout, log.stderr);
    let gone: Vec<usize> = mark.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(mark.starts_with("note: bytes ") && gone.len() == 2, "{mark}");
    // What the mark says is missing and what is left are together all that was written, to the byte.
    let whole: String = (1..=lines).map(|number| format!("{number}\n")).collect();
    let preamble = gone[1] + rest.len() - whole.len();
    assert_eq!(gone[0], 0, "the oldest bytes go first: {mark}");
    assert_eq!(
        rest,
        whole[gone[1] - preamble..],
        "and nothing but the worker's own bytes"
    );
    // The limit, and the read that crossed a segment's end: at most 256 KiB, which is much only for a limit this small.
    assert!(rest.len() <= (256 + 256) << 10, "{} bytes were kept", rest.len());

    let log = env
        .paddlectl(&["logs", "--timestamps", "--role", "trainer", "talks"])
        .ok();
    assert!(log.stderr.starts_with("note: bytes 0 to "), "{}", log.stderr);
    assert!(log.stdout.starts_with("20"), "every line has its time");
}

#[test]
fn ctrl_c_leaves_the_job_running_and_only_wait_reports_it() {
    let env = TestEnvironment::new();
    let gate = env.gate("go");
    let package = env.package("job").file("train.sh", "echo up\ncat $GATE\n");
    let gate_flag = gate.variable("GATE");
    let submit = [
        "submit",
        "-f",
        "-jobname",
        "stays",
        "-pservers",
        "0",
        "-memory",
        "32Mi",
    ];
    let rest = ["-env", &gate_flag, "-entry", "sh train.sh", package.arg()];
    let mut submitting = env.start(&[&submit[..], &rest].concat());
    submitting.wait_for_line("up");
    let mut waiting = env.start(&["wait", "stays"]);
    waiting.wait_for_line("waiting for stays");
    for (command, code, says) in [
        (submitting, 0, "detached; stays continues"),
        (waiting, 130, "stopped waiting; stays continues"),
    ] {
        command.interrupt();
        let (status, lines) = command.end();
        assert_eq!(status.code(), Some(code), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains(says)), "{lines:?}");
    }
    assert_eq!(env.status("stays"), "Running");
    gate.open();
    env.paddlectl(&["wait", "stays"]).ok();
}

#[test]
fn ctrl_c_in_the_log_of_an_ended_job_does_not_say_that_it_continues() {
    let env = TestEnvironment::new();
    let package = env.package("job").file("train.sh", "seq 2000000\n");
    env.submit("talked", &package, &["-entry", "sh train.sh"]);
    env.paddlectl(&["wait", "talked"]).ok();
    let mut reading = env
        .command("paddlectl", &["logs", "talked"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // It is in the middle of the log, because nobody reads the rest yet.
    let stdout = reading.stdout.as_mut().expect("stdout is a pipe");
    stdout.read_exact(&mut [0]).expect("the log is not empty");
    kill_process(Pid::from_child(&reading), Signal::INT).expect("it runs");
    let output = reading.wait_with_output().expect("a child can be waited for");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("stopped reading; talked has ended: Succeeded"),
        "{said}"
    );
}
