//! A run that continues another one: the bits of the unbroken run, or one sentence about what is wrong.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use paddlecloud_pserver::client::{Client, ClientError};
use paddlecloud_pserver::message::{Limits, TableSpec};
use paddlecloud_pserver::optimizer::{Pace, Rule};
use paddlecloud_pserver::schedule::Schedule;
use paddlecloud_pserver::steps::Mode;

use crate::restarts::Fragile;
use crate::training::{ADAM, dense, table};

/// A run that was killed at step 12, with checkpoints of steps 0, 5 and 10.
fn killed(servers: u32) -> Fragile {
    let job = Fragile::new(servers, 2, Mode::Sync);
    job.train(12, |_| {});
    job.wait_for_checkpoint(10);
    job
}

/// A run on other servers that continues `other`.
fn continuing(other: &Fragile, servers: u32, trainers: u32) -> Fragile {
    let mut job = Fragile::new(servers, trainers, other.mode);
    job.resume = other.folder.path().to_str().unwrap().to_owned();
    job
}

#[test]
fn any_number_of_servers_continues_with_the_bits_of_the_unbroken_run() {
    let unbroken = Fragile::new(2, 2, Mode::Sync).train(18, |_| {});
    let other = killed(2);
    for servers in [1, 2, 3, 5] {
        let job = continuing(&other, servers, 2);
        let first = std::sync::Mutex::new(None);
        let model = job.train(18, |step| {
            first.lock().unwrap().get_or_insert(step);
        });
        assert_eq!(first.into_inner().unwrap(), Some(10));
        assert!(model == unbroken, "{servers} servers");
    }
}

#[test]
fn a_server_that_is_lost_after_the_resume_does_not_need_the_other_run() {
    let unbroken = Fragile::new(2, 2, Mode::Sync).train(18, |_| {});
    let mut other = killed(2);
    // The run is resumed on one server, which is lost; then by another run on two servers.
    for servers in [1, 2] {
        let job = continuing(&other, servers, 2);
        let has_crashed = AtomicBool::new(false);
        let crash = || {
            if !has_crashed.swap(true, Ordering::Relaxed) {
                job.wait_for_checkpoint(10);
                fs::remove_dir_all(&job.resume).unwrap();
                fs::create_dir(&job.resume).unwrap();
                job.crash(servers - 1);
            }
        };
        let steps = if servers == 1 { 12 } else { 18 };
        let model = job.train(steps, |step| {
            if step == 11 {
                crash();
            }
        });
        assert!(has_crashed.into_inner());
        if servers == 2 {
            assert!(model == unbroken);
        }
        other = job;
    }
}

/// It is lost before the first checkpoint of its own is complete.
#[test]
fn a_server_that_is_lost_before_its_first_checkpoint_loads_the_other_runs_again() {
    let unbroken = Fragile::new(2, 2, Mode::Sync).train(18, |_| {});
    let other = killed(2);
    let job = continuing(&other, 2, 2);
    let file = job.folder.path().join("step-000000000010");
    fs::write(&file, b"in the way of a folder").unwrap();
    let has_crashed = AtomicBool::new(false);
    let crash = || {
        if !has_crashed.swap(true, Ordering::Relaxed) {
            job.crash(1);
            fs::remove_file(&file).unwrap();
        }
    };
    let model = job.train(18, |step| {
        if step == 12 {
            crash();
        }
    });
    assert!(has_crashed.into_inner());
    assert!(model == unbroken);
}

fn end_step(client: &mut Client) {
    let state = format!("{} at {}", client.trainer(), client.step() + 1);
    client.finish_step(&mut [], Some(state.as_bytes())).unwrap();
}

/// Trainer 1 leaves after step 3; trainer 0 ends step 9 and the run is killed.
fn unequal(mode: Mode) -> Fragile {
    let job = Fragile::new(2, 2, mode);
    let (mut first, mut second) = (job.connect(0), job.connect(1));
    std::thread::scope(|scope| {
        scope.spawn(|| (0..3).for_each(|_| end_step(&mut second)));
        (0..3).for_each(|_| end_step(&mut first));
    });
    second.leave().unwrap();
    (0..7).for_each(|_| end_step(&mut first));
    job.wait_for_checkpoint(10);
    job
}

#[test]
fn trainers_continue_with_their_states_even_if_they_had_left() {
    let other = unequal(Mode::Sync);
    let job = continuing(&other, 3, 2);
    for trainer in [0, 1] {
        let mut client = job.connect(trainer);
        let left = ["0 at 10", "1 at 3"][trainer as usize];
        assert_eq!((client.step(), client.kept().unwrap()), (10, left.into()));
    }
    let fewer = continuing(&other, 1, 1);
    assert_eq!(fewer.connect(0).kept().unwrap(), b"0 at 10");
    let more = continuing(&other, 1, 3);
    let mut third = more.connect(2);
    assert_eq!((third.step(), third.kept().unwrap()), (10, Vec::new()));
}

#[test]
fn an_asynchronous_run_continues_where_each_trainer_was() {
    let other = unequal(Mode::Async);
    let job = continuing(&other, 2, 2);
    let (mut first, mut second) = (job.connect(0), job.connect(1));
    assert_eq!((first.step(), second.step()), (10, 3));
    assert_eq!(second.kept().unwrap(), b"1 at 3");
    end_step(&mut first);
    end_step(&mut second);
}

fn error(job: &Fragile) -> String {
    job.try_connect(0, 1).err().unwrap().to_string()
}

#[test]
fn a_run_without_an_intact_checkpoint_is_refused() {
    let other = Fragile::new(2, 1, Mode::Sync);
    declare(&other, 4, &["w"]).unwrap();
    other.wait_for_checkpoint(0);
    let (folder, latest) = (other.folder.path(), other.folder.path().join("step-000000000000"));
    let job = continuing(&other, 1, 1);
    let file = latest.join("server-1-of-2");
    let mut bytes = fs::read(&file).unwrap();
    bytes[7] = b'5';
    fs::write(&file, &bytes).unwrap();
    let name = file.display().to_string();
    assert_eq!(
        error(&job),
        format!(
            "the run cannot be resumed: the checkpoint `{name}` has a newer format (5) than this version of PaddleCloud reads (4)"
        )
    );
    bytes[7] = b'4';
    fs::write(&file, &bytes[..100]).unwrap();
    assert_eq!(
        error(&job),
        format!(
            "the run cannot be resumed: the checkpoint `{name}` is damaged: a record is larger than the file"
        )
    );
    fs::remove_dir_all(latest).unwrap();
    let name = folder.display();
    assert_eq!(
        error(&job),
        format!("the run cannot be resumed: there is no intact checkpoint in `{name}`")
    );
}

/// Declares a tensor, the table and ends a step.
fn declare(job: &Fragile, elements: u64, names: &[&str]) -> Result<(), ClientError> {
    let mut client = job.connect(0);
    for name in names {
        client.create_dense(dense(name, elements, Rule::Sgd), &vec![0.0; elements as usize])?;
    }
    client.create_table(table("emb"))?;
    client.push(&[("w", &vec![1.0; elements as usize])], Pace::default())?;
    client.finish_step(&mut [], None)
}

#[test]
fn a_checkpoint_of_another_model_is_refused() {
    let other = Fragile::new(1, 1, Mode::Sync);
    declare(&other, 4, &["w", "b"]).unwrap();
    other.wait_for_checkpoint(0);
    let job = || continuing(&other, 2, 1);
    declare(&job(), 4, &["w", "b"]).unwrap();
    let refused = |elements, names: &[&str]| declare(&job(), elements, names).unwrap_err().to_string();
    let at = "the checkpoint of step 0, at which this run continues another one, has";
    assert_eq!(
        refused(4, &["w", "c"]),
        format!("{at} `b`, which this program does not declare: it is of another model")
    );
    declare(&job(), 4, &["w", "b", "c"]).unwrap();
    assert_eq!(
        refused(4, &["w"]),
        format!("{at} `b`, which this program does not declare: it is of another model")
    );
    let folder = other.folder.path().display();
    assert_eq!(
        refused(5, &["w", "b"]),
        format!(
            "`w` is declared as shape [5], but the checkpoint of step 0 in `{folder}`, which this run resumes, has it as \
             shape [4]: resume with the same model and the same kinds of optimizers"
        )
    );
}

#[test]
fn rows_of_another_size_are_refused() {
    let other = killed(1);
    let job = continuing(&other, 1, 2);
    let spec = TableSpec {
        row: 8,
        ..table("emb")
    };
    let folder = other.folder.path().display();
    assert_eq!(
        job.connect(0).create_table(spec).unwrap_err().to_string(),
        format!(
            "`emb` is declared as rows of 8, but the checkpoint of step 10 in `{folder}`, which this run resumes, has it as \
             rows of 3: resume with the same model and the same kinds of optimizers"
        )
    );
}

/// A run that another system starts again under the same name has the same folder.
#[test]
fn a_run_does_not_train_in_the_folder_of_an_earlier_one() {
    let other = killed(2);
    let mut again = Fragile::new(2, 2, Mode::Sync);
    again.folder = other.folder;
    assert_eq!(
        error(&again),
        format!(
            "`{}` has checkpoints of an earlier run, the latest of step 10: delete it, train with another `checkpoints=`, or \
             move it and continue that run with `resume=`",
            again.folder.path().display()
        )
    );
}

/// It is then a new trainer of a run that has not begun, so it meets the others at the barrier.
#[test]
fn a_trainer_knows_whether_the_resumed_run_has_begun() {
    let other = killed(1);
    let job = continuing(&other, 1, 2);
    let first = job.connect(0);
    assert_eq!((first.step(), first.first_step()), (10, 10));
    job.train(12, |_| {});
    let late = job.connect(0);
    assert_eq!((late.step(), late.first_step()), (12, 0));
}

const EVICTS: Limits = Limits {
    admit_after: 0,
    rows: 64,
    evict: true,
    idle_steps: 0,
};

/// Declares what `Fragile::train` trains, with another rate and another beta.
fn declare_with_other_constants(job: &Fragile) {
    let mut client = job.connect(0);
    let elements = 2 * 65_536 + 5;
    let mut spec = dense("w", elements, ADAM);
    let Rule::Adam { beta1, .. } = &mut spec.optimizer.rule else {
        unreachable!("ADAM is Adam")
    };
    *beta1 = 0.5;
    spec.optimizer.schedule = Schedule::constant(0.25);
    client.create_dense(spec, &vec![0.0; elements as usize]).unwrap();
    client.create_table(job.table()).unwrap();
}

/// Continues a run of two trainers on two servers with others; a program of its own, whose output is what the servers say.
fn continue_with_everything_else(servers: u32, trainers: u32) {
    let mut other = Fragile::new(2, 2, Mode::Sync);
    other.limits = EVICTS;
    other.train(7, |_| {});
    other.wait_for_checkpoint(5);
    let mut job = continuing(&other, servers, trainers);
    job.limits = EVICTS;
    declare_with_other_constants(&job);
}

const CASE: &str = "PADDLECLOUD_TEST_RESUME";

/// What the servers print in one of the cases above.
fn said(servers: u32, trainers: u32) -> Vec<String> {
    let program = std::env::current_exe().unwrap();
    let test = "resume::the_log_names_what_differs_from_the_unbroken_run";
    let done = std::process::Command::new(program)
        .args([test, "--exact", "--nocapture"])
        .env(CASE, format!("{servers} {trainers}"))
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = String::from_utf8(done.stdout).unwrap();
    let lines = text
        .lines()
        .filter(|line| line.starts_with("notice: ") || line.contains("was trained with"));
    // The harness begins a line with the name of the test.
    lines
        .map(|line| line.split(" ... ").last().unwrap_or(line).to_owned())
        .collect()
}

#[test]
fn the_log_names_what_differs_from_the_unbroken_run() {
    if let Ok(case) = std::env::var(CASE) {
        let (servers, trainers) = case.split_once(' ').unwrap();
        return continue_with_everything_else(servers.parse().unwrap(), trainers.parse().unwrap());
    }
    let constants = "`w` was trained with adam(lr=0.10000000149011612, beta1=0.9, beta2=0.999, epsilon=0.00000001); from here on, it is trained \
                     with adam(lr=0.25, beta1=0.5, beta2=0.999, epsilon=0.00000001)";
    assert_eq!(said(2, 2), [constants]);
    assert_eq!(
        said(3, 1),
        [
            "notice: 1 trainers continue a run of 2: the result is not that of the unbroken run; the states of trainers 1 to 1 \
             are dropped",
            "notice: 3 servers continue a run of 2: `emb` evicts other rows, so the result is not that of the unbroken run",
            constants,
        ]
    );
    assert_eq!(
        said(2, 3),
        [
            "notice: 3 trainers continue a run of 2: the result is not that of the unbroken run",
            constants,
        ]
    );
}

#[test]
fn another_rule_is_refused() {
    let other = killed(1);
    let job = continuing(&other, 1, 2);
    let elements = 2 * 65_536 + 5;
    let declare = |trainer, rule| {
        let spec = dense("w", elements, rule);
        job.connect(trainer)
            .create_dense(spec, &vec![0.0; elements as usize])
    };
    let folder = other.folder.path().display();
    let adam = "adam(lr=0.10000000149011612, beta1=0.9, beta2=0.999, epsilon=0.00000001)";
    let sgd = "sgd(lr=0.10000000149011612)";
    // Both trainers learn it: the first refusal is no declaration.
    for trainer in [0, 1] {
        assert_eq!(
            declare(trainer, Rule::Sgd).unwrap_err().to_string(),
            format!(
                "`w` is declared as {sgd}, but the checkpoint of step 10 in `{folder}`, which this run resumes, has it as \
                 {adam}: resume with the same model and the same kinds of optimizers"
            )
        );
    }
    declare(0, ADAM).unwrap();
    assert_eq!(
        declare(1, Rule::Sgd).unwrap_err().to_string(),
        format!("`w` is declared as {adam}; another declaration says {sgd}")
    );
}
