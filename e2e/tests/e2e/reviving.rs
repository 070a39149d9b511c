//! The embedded server stops while commands wait for it: they continue with the next one, and nothing is lost.

use e2e::{Background, Gate, TestEnvironment};

/// Counts to 300 with a stop after each hundred.
const COUNTER: &str = "seq 1 100\ncat $FIRST\nseq 101 200\ncat $SECOND\nseq 201 300\n";

/// A job that three commands watch: `submit -f`, `logs -f` and `wait`.
struct Watched {
    first: Gate,
    second: Gate,
    submitting: Background,
    following: Background,
    waiting: Background,
}

impl Watched {
    fn start(env: &TestEnvironment) -> Watched {
        let (first, second) = (env.gate("first"), env.gate("second"));
        let package = env.package("count").file("train.sh", COUNTER);
        let variables = [first.variable("FIRST"), second.variable("SECOND")];
        let mut submitting = env.start(&[
            "submit",
            "-f",
            "-jobname",
            "count",
            "-cpu",
            "20m",
            "-memory",
            "32Mi",
            "-pservers",
            "0",
            "-env",
            &variables[0],
            "-env",
            &variables[1],
            "-entry",
            "sh train.sh",
            package.arg(),
        ]);
        submitting.wait_for_line("100");
        let mut following = env.start(&["logs", "-f", "--raw", "--role", "trainer", "count"]);
        following.wait_for_line("100");
        let mut waiting = env.start(&["wait", "count"]);
        waiting.wait_for_line("waiting for count");
        Watched {
            first,
            second,
            submitting,
            following,
            waiting,
        }
    }

    /// Lets the job run to its end and checks what the three saw of it.
    #[track_caller]
    fn end(self) {
        self.second.open();
        for watching in [self.submitting, self.following] {
            let (status, lines) = watching.end();
            assert_eq!(status.code(), Some(0), "{lines:?}");
            let numbers: Vec<u32> = lines.iter().filter_map(|line| line.parse().ok()).collect();
            assert_eq!(
                numbers,
                (1..=300).collect::<Vec<u32>>(),
                "no line lost, none twice: {lines:?}"
            );
        }
        let (status, lines) = self.waiting.end();
        assert_eq!(status.code(), Some(0), "{lines:?}");
        assert!(
            lines.iter().any(|line| line.contains("count Succeeded")),
            "{lines:?}"
        );
    }
}

#[test]
fn waiting_commands_restart_a_crashed_server() {
    let env = TestEnvironment::new();
    let mut watched = Watched::start(&env);
    let server = env.server_pid();
    env.crash_server();
    watched.first.open();
    // Nobody but the three starts it: they must get there without help.
    watched.submitting.wait_for_line("200");
    watched.following.wait_for_line("200");
    assert_ne!(env.server_pid(), server);
    watched.end();
}

#[test]
fn a_watching_client_restarts_a_stopped_server() {
    let env = TestEnvironment::new();
    let mut watched = Watched::start(&env);
    let server = env.server_pid();
    env.paddlectl(&["server", "stop"])
        .ok()
        .says("stopped; 1 job continues");
    watched.first.open();
    watched.submitting.wait_for_line("200");
    watched.following.wait_for_line("200");
    assert_ne!(env.server_pid(), server);
    watched.end();
}
