//! What a worker finds: its variables, files, address and view of the file system.

use e2e::TestEnvironment;

fn start(env: &TestEnvironment) {
    env.paddlectl(&["server", "start"]).ok();
}

#[test]
#[ignore = "needs full isolation"]
fn every_worker_has_an_address_and_a_host_name_that_resolves_to_it() {
    let env = TestEnvironment::new();
    start(&env);
    let program = "import os, socket\nname = socket.gethostname()\n\
                   print('at', socket.gethostbyname(name), os.environ['POD_IP'], name)\n";
    let package = env.package("job").file("train.py", program);
    let flags = [
        "-parallelism",
        "2",
        "-memory",
        "64Mi",
        "-entry",
        "python3 train.py",
        "-f",
    ];
    env.submit("where", &package, &flags);
    let log = env.paddlectl(&["logs", "--raw", "where"]).ok().stdout;
    let found: Vec<Vec<&str>> = log
        .lines()
        .filter(|line| line.starts_with("at "))
        .map(|line| line.split(' ').collect())
        .collect();
    assert_eq!(found.len(), 2, "{log}");
    for words in &found {
        assert_eq!(
            words[1], words[2],
            "the host name leads to the worker's own address"
        );
    }
    assert_ne!(found[0][1], found[1][1], "each has its own");
    assert_ne!(found[0][3], found[1][3]);
}

#[test]
#[ignore = "needs full isolation"]
fn files_in_a_workers_root_are_invisible_to_other_workers() {
    let env = TestEnvironment::new();
    start(&env);
    let gates = [env.gate("0"), env.gate("1")];
    let script = "me=$PADDLE_INIT_TRAINER_ID\n[ -e /train.list ] && exit 9\necho $me > /train.list\n\
                  cat $GATES/$me\necho list of $me: $(cat /train.list)\n";
    let package = env.package("job").file("train.sh", script);
    let folder = format!("GATES={}", env.folder("gates").display());
    env.submit(
        "lists",
        &package,
        &["-parallelism", "2", "-env", &folder, "-entry", "sh train.sh"],
    );
    // Both have written when both are at their gates.
    gates.iter().for_each(|gate| gate.open());
    env.paddlectl(&["wait", "lists"]).ok();
    let log = env.paddlectl(&["logs", "--raw", "lists"]).ok().stdout;
    assert!(
        log.contains("list of 0: 0\n") && log.contains("list of 1: 1\n"),
        "{log}"
    );
    assert!(
        !std::path::Path::new("/train.list").exists(),
        "nothing reached the machine itself"
    );
}

#[test]
#[ignore = "needs full isolation"]
fn the_home_is_a_real_folder_under_its_name() {
    let env = TestEnvironment::new();
    start(&env);
    let script = "cd /pfs/local/home/$PADDLE_CLOUD_USERNAME && echo home $PWD\n\
                  cd /pfs/local/user/$PADDLE_CLOUD_USERNAME && echo also $PWD\n";
    let package = env.package("job").file("train.sh", script);
    env.submit("home", &package, &["-entry", "sh train.sh", "-f"]);
    let log = env.paddlectl(&["logs", "--raw", "home"]).ok().stdout;
    assert!(
        log.contains("home /pfs/local/home/") && log.contains("also /pfs/local/user/"),
        "{log}"
    );
}

#[test]
#[ignore = "needs full isolation"]
fn public_files_are_readable_by_both_paths_and_writable_by_neither() {
    let env = TestEnvironment::new();
    start(&env);
    let public = env.home().join(".paddle/local/storage/public");
    std::fs::create_dir_all(&public).unwrap();
    std::fs::write(public.join("words"), "for everybody\n").unwrap();
    let script = "for name in /pfs/public /pfs/local/public; do\n\
                  echo $name: $(cat $name/words)\n\
                  touch $name/new && echo $name: new\n\
                  touch $name/words && echo $name: touched\n\
                  echo more >> $name/words && echo $name: changed\n\
                  rm -f $name/words && echo $name: removed\n\
                  done 2>/dev/null\nexit 0\n";
    let package = env.package("job").file("train.sh", script);
    env.submit("public", &package, &["-entry", "sh train.sh", "-f"]);
    env.paddlectl(&["logs", "--raw", "public"]).ok().prints(
        "/pfs/public: for everybody\n\
         /pfs/local/public: for everybody\n",
    );
    assert_eq!(std::fs::read_dir(&public).unwrap().count(), 1);
    assert_eq!(
        std::fs::read_to_string(public.join("words")).unwrap(),
        "for everybody\n"
    );
}

#[test]
fn a_worker_gets_the_requested_variables_and_none_of_the_shells() {
    let mut env = TestEnvironment::new();
    env.set("OF_MY_SHELL", "stays at home");
    let package = env.package("job").file(
        "train.sh",
        "echo \"[$GREETING] [$OF_MY_SHELL] [$TRAINING_ROLE]\"\n",
    );
    let flags = [
        "-env",
        "GREETING=good morning",
        "-env",
        "B=2",
        "-entry",
        "sh train.sh",
        "-f",
    ];
    env.submit("vars", &package, &flags);
    env.paddlectl(&["logs", "--raw", "vars"])
        .ok()
        .prints("[good morning] [] [TRAINER]\n");
}

#[test]
fn ignored_files_are_not_uploaded() {
    let env = TestEnvironment::new();
    let package = env
        .package("job")
        .file("train.sh", "ls\n")
        .file(".gitignore", "secret\n")
        .file(".paddleignore", "*.big\n")
        .file("secret", "x")
        .file("a.big", "x")
        .file("b.txt", "x");
    env.submit("files", &package, &["-entry", "sh train.sh", "-f"]);
    let log = env.paddlectl(&["logs", "--raw", "files"]).ok().stdout;
    assert!(log.contains("b.txt\n"), "{log}");
    assert!(!log.contains("secret") && !log.contains("a.big"), "{log}");
}

#[test]
fn a_running_job_keeps_the_files_it_was_submitted_with() {
    let env = TestEnvironment::new();
    let gate = env.gate("go");
    let package = env
        .package("job")
        .file("train.sh", "cat $GATE data\n")
        .file("data", "old\n");
    env.submit(
        "keeps",
        &package,
        &["-env", &gate.variable("GATE"), "-entry", "sh train.sh"],
    );
    let package = package.file("data", "new\n").file("train.sh", "cat data\n");
    env.submit("other", &package, &["-entry", "sh train.sh", "-f"]);
    env.paddlectl(&["logs", "--raw", "other"]).ok().prints("new\n");
    gate.open();
    env.paddlectl(&["wait", "keeps"]).ok();
    env.paddlectl(&["logs", "--raw", "keeps"]).ok().prints("old\n");
}

#[test]
#[ignore = "needs full isolation"]
fn a_packages_output_links_to_the_latest_run_and_no_run_overwrites_another() {
    let env = TestEnvironment::new();
    start(&env);
    let package = env
        .package("model")
        .file("train.sh", "mkdir -p output; echo $1 > output/result\n");
    env.submit("train", &package, &["-entry", "sh train.sh first", "-f"]);
    let first = env.describe("train")["job"]["output"]
        .as_str()
        .expect("a job has an output")
        .to_owned();
    env.submit("train", &package, &["-entry", "sh train.sh second", "-f"]);

    let reader = env.package("reader").file(
        "read.sh",
        "cd /pfs/local/home/$PADDLE_CLOUD_USERNAME\ncat model/output/result\n",
    );
    env.submit("latest", &reader, &["-entry", "sh read.sh", "-f"]);
    env.paddlectl(&["logs", "--raw", "latest"])
        .ok()
        .prints("second\n");
    let entry = format!("cat {first}/result");
    env.submit("earlier", &reader, &["-entry", &entry, "-f"]);
    env.paddlectl(&["logs", "--raw", "earlier"])
        .ok()
        .prints("first\n");
}
