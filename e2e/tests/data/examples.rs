//! The readers of the documents, submitted as the jobs they were written for: one job prepares the data under `/pfs`,
//! the next one's trainers read it, each its own share.
//!
//! Workers run the Python that a user has: a virtual environment with the wheel of this checkout.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use e2e::TestEnvironment;

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The folder of a virtual environment with the wheel, made once; the wheel's own tests use the same.
pub fn virtual_environment() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| make_virtual_environment("bare"))
}

/// One of `environment.sh`, with its packages and the wheel.
pub fn make_virtual_environment(name: &str) -> PathBuf {
    let script = root().join("crates/py/tests/environment.sh");
    let mut command = Command::new("bash");
    command.arg(script).arg(name);
    let made = command.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let folder = String::from_utf8(made.stdout).unwrap();
    PathBuf::from(folder.trim_end())
}

/// A user who has activated the environment.
pub fn user() -> TestEnvironment {
    user_of(virtual_environment())
}

pub fn user_of(folder: &Path) -> TestEnvironment {
    let mut env = TestEnvironment::new();
    env.search_first(folder.join("bin"));
    env.set("VIRTUAL_ENV", folder.to_str().unwrap());
    env
}

/// A folder of the user on the cluster, as the jobs will see it.
fn folder_of(env: &TestEnvironment, name: &str) -> String {
    let me = env.paddlectl(&["whoami", "-o", "json"]).ok().json();
    format!("{}/{name}", me["home"].as_str().unwrap())
}

/// Submits an example and returns what its trainers printed, in order.
fn run(env: &TestEnvironment, job: &str, example: &str, trainers: &str, entry: &str) -> Vec<String> {
    let package = root().join("examples").join(example);
    let small = ["-cpu", "100m", "-memory", "256Mi", "-pservers", "0"];
    let flags = [
        "submit",
        "-jobname",
        job,
        "-parallelism",
        trainers,
        "-entry",
        entry,
    ];
    let place = [package.to_str().unwrap()];
    env.paddlectl(&[&flags[..], &small[..], &place[..]].concat()).ok();
    let ended = env.paddlectl(&["wait", job]);
    let log = env.paddlectl(&["logs", "--raw", job]).ok().stdout;
    assert_eq!(env.status(job), "Succeeded", "{ended:?}\n{log}");
    let mut lines: Vec<String> = log.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// How many samples each trainer had, and the sum over all of them.
fn shares(lines: &[String]) -> (Vec<u32>, u32) {
    let words = lines
        .iter()
        .filter_map(|line| line.strip_prefix("trainer ")?.split_once(": "));
    let pairs = words.map(|(_, text)| {
        let numbers: Vec<u32> = text
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|word| word.parse().ok())
            .collect();
        (numbers[0], numbers[1])
    });
    let (counts, sums): (Vec<u32>, Vec<u32>) = pairs.unzip();
    (counts, sums.iter().sum())
}

#[test]
#[ignore = "needs Python packages"]
fn recordio_reader_gives_each_file_to_one_trainer() {
    let env = user();
    let data = folder_of(&env, "squares");
    let prepare = format!("python prepare.py {data}");
    let made = run(&env, "prepare", "recordio_reader", "1", &prepare);
    let files = made.iter().filter(|line| line.starts_with("squares_train-"));
    assert_eq!(files.count(), 10, "{made:?}");

    let train = format!("python train.py {data}");
    let read = run(&env, "train", "recordio_reader", "3", &train);
    assert_eq!(shares(&read), (vec![35, 30, 30], (0..95).sum()), "{read:?}");
}

#[test]
#[ignore = "needs Python packages"]
fn dataset_from_reader_writes_what_dist_reader_shares_out() {
    let env = user();
    let data = folder_of(&env, "ngrams");
    let prepare = format!("python prepare.py {data}");
    let made = run(&env, "prepare", "dist_reader", "1", &prepare);
    assert!(made.contains(&format!("50 samples in {data}")), "{made:?}");

    let train = format!("python train.py {data}");
    let read = run(&env, "train", "dist_reader", "3", &train);
    assert_eq!(shares(&read), (vec![16, 17, 17], (0..50).sum()), "{read:?}");
}

#[test]
#[ignore = "needs Python packages"]
fn gen_train_list_lists_each_file_for_one_trainer() {
    let env = user();
    let prepare = format!("python prepare.py {}", folder_of(&env, ""));
    run(&env, "prepare", "gen_train_list", "1", &prepare);
    let read = run(&env, "train", "gen_train_list", "2", "python train.py");
    let listed: Vec<&String> = read.iter().filter(|line| line.contains(".list: ")).collect();
    assert_eq!(
        listed,
        [
            "/test.list: part-00000.gz, 10 lines",
            "/test.list: part-00001.gz, 10 lines",
            "/train.list: part-00000.gz part-00002.gz part-00004.gz, 30 lines",
            "/train.list: part-00001.gz part-00003.gz, 20 lines",
        ]
    );
}
