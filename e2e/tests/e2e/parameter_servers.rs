//! `paddlectl pserver`: models, checkpoints and running parameter servers, outside a job. `paddle pserver` is the same code.

use std::fs;
use std::net::TcpListener;

use e2e::{TestEnvironment, wait_until};

#[test]
fn a_model_is_imported_and_exported_again() {
    let env = TestEnvironment::new();
    let text = env.folder("text");
    fs::write(text.join("w.txt"), "1\n2\n0.5\n").unwrap();
    fs::write(
        text.join("words.txt"),
        "# id row\n7 1 2\n18446744073709551615 3 4\n",
    )
    .unwrap();
    for program in ["paddlectl", "paddle"] {
        let import = ["pserver", "import", "text", "model"];
        env.run(program, &import)
            .ok()
            .prints("imported 2 parameters into model\n");
        let export = ["pserver", "export", "--format=text", "model", "again"];
        env.run(program, &export)
            .ok()
            .prints("exported 2 parameters to again\n");
        for name in ["w.txt", "words.txt"] {
            let again = fs::read_to_string(text.with_file_name("again").join(name)).unwrap();
            assert_eq!(again, fs::read_to_string(text.join(name)).unwrap());
        }
    }
    env.paddlectl(&["pserver", "export", "model", "model.safetensors"])
        .ok();
    env.paddlectl(&["pserver", "export", "nowhere", "again"])
        .refused(1)
        .says("nowhere");
    env.paddlectl(&["pserver", "export", "--formt", "text", "model", "again"])
        .refused(2)
        .says("`--format`");
}

#[test]
fn a_running_server_shows_its_state() {
    let env = TestEnvironment::new();
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let address = format!("127.0.0.1:{port}");
    let _server = env.start_as(
        "paddle",
        &["pserver", &format!("--port={port}"), "--ports_num_for_sparse=0"],
    );
    let state = wait_until("the server answers", || {
        let stat = env.paddlectl(&["pserver", "stat", &address]);
        (stat.code == Some(0)).then_some(stat)
    });
    assert_eq!(
        state.json(),
        env.run("paddle", &["pserver", "stat", &address]).ok().json()
    );
    env.paddlectl(&["pserver", "stat", "127.0.0.1:1"])
        .refused(1)
        .says("127.0.0.1:1");
}

#[test]
fn damaged_checkpoints_are_named() {
    let env = TestEnvironment::new();
    let step = env.folder("checkpoints/j_1/step-000000000005");
    fs::write(step.join("server-0-of-1"), "not a checkpoint").unwrap();
    for program in ["paddlectl", "paddle"] {
        let list = env.run(program, &["pserver", "checkpoints", "checkpoints"]);
        assert_eq!(list.code, Some(1), "{list}");
        drop(
            list.prints("RUN  STEP  SERVERS  TRAINERS  BYTES  STATE\n")
                .prints("j_1  5     -        -         16     the checkpoint")
                .prints("server-0-of-1` is damaged"),
        );
    }
    env.paddlectl(&["pserver", "checkpoints", "packages"])
        .refused(1)
        .says("packages");
}

#[test]
fn options_that_nobody_knew_are_named() {
    let env = TestEnvironment::new();
    env.run("paddle", &["pserver", "--prot=7164"])
        .refused(1)
        .says("unknown option `--prot`; did you mean `--port`?");
    env.run("paddle", &["pserver", "statt"])
        .refused(1)
        .says("`statt` is not an option; did you mean `stat`?");
}
