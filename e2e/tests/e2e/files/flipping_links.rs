//! A job flips a link between its own folder and another user's files, as fast as it can, while every file command
//! runs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use e2e::{TestEnvironment, wait_until};

use super::dice::{Dice, seed};
use super::site::Site;
use super::{arg, ordinary_user, plant};

const SECRET: &str = "nobody else reads this";
const ROUNDS: usize = 40;

/// Each new link takes the old one's place in one step.
fn flipping(user: &str, other: &str) -> String {
    format!(
        "cd /pfs/cloud/home/{user}
mkdir real
echo own > real/own
while [ ! -e stop ]; do
    for target in ../{other} real /etc /proc/self/root/etc; do
        ln -s $target fresh
        mv -fT fresh d
    done
done
"
    )
}

/// Waits until the job has had the link lead to several places since the last look.
fn wait_for_flips(link: &Path) {
    let mut seen: BTreeSet<PathBuf> = BTreeSet::new();
    wait_until("the job must flip its link", || {
        seen.extend(fs::read_link(link).ok());
        (seen.len() > 2).then_some(())
    });
}

/// One of many commands about the link or something behind it.
fn command(dice: &mut Dice, round: usize, home: &str, here: &Path, back: &Path) -> Vec<String> {
    let at = &format!("{home}/d");
    let (inside, made) = (format!("{at}/own"), format!("{at}/made-{round}"));
    let (copy, pattern) = (format!("{home}/copy"), format!("{home}/*/own"));
    let words: &[&str] = match dice.within(0..10) {
        0 => &["cat", &inside],
        1 => &["ls", "-r", at],
        2 => &["cp", arg(here), &inside],
        3 => &["cp", "-r", at, arg(back)],
        4 => &["rm", "-r", &inside],
        5 => &["mkdir", "-p", &made],
        6 => &["stat", "--digest", &inside],
        7 => &["cp", "-r", at, &copy],
        8 => &["cat", &pattern],
        _ => &["mv", &inside, &made],
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
#[ignore = "needs root"]
fn a_link_that_a_job_flips_during_commands_exposes_no_other_files() {
    let env = TestEnvironment::new();
    let site = Site::start(&env, "");
    run_commands_while_a_job_flips(&env, &site, "bob", "ada");
}

#[test]
#[ignore = "needs root"]
fn a_flipped_link_exposes_no_other_files_without_root() {
    let env = TestEnvironment::new();
    let site = ordinary_user::site(&env);
    run_commands_while_a_job_flips(&env, &site, "ada", "eve");
}

/// A job of `user` flips a link to the home of `other`.
fn run_commands_while_a_job_flips(env: &TestEnvironment, site: &Site<'_>, user: &str, other: &str) {
    let (data, back) = (env.folder("data"), env.folder("back"));
    let (home, theirs) = (format!("/pfs/cloud/home/{user}"), site.home(other));
    plant(&data, &[("new", "from outside")]);
    fs::create_dir_all(&theirs).expect("root may write anywhere");
    fs::write(theirs.join("own"), SECRET).expect("root may write anywhere");
    let package = env.package("job").file("train.sh", flipping(user, other));
    let words = ["submit", "-jobname", "flip", "-pservers", "0", "-cpu", "500m"];
    let more = ["-memory", "64Mi", "-entry", "sh train.sh", package.arg()];
    site.run(user, &[&words[..], &more].concat()).ok();
    let mut dice = Dice::new(seed());
    for round in 0..ROUNDS {
        wait_for_flips(&site.home(user).join("d"));
        let words = command(&mut dice, round, &home, &data.join("new"), &back);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ran = site.run(user, &words);
        assert!(
            !ran.stdout.contains(SECRET) && !ran.stdout.contains("root:"),
            "{ran}"
        );
        assert!(!ran.stderr.contains("panicked"), "{ran}");
    }
    let stop = format!("{home}/stop");
    site.run(user, &["cp", arg(&data.join("new")), &stop]).ok();
    site.run(user, &["wait", "flip"]).ok();
    check_untouched(&theirs);
    for text in walk(&back).into_iter().chain(walk(&site.home(user).join("real"))) {
        let is_own = !text.contains(SECRET) && !text.contains("root:");
        assert!(is_own, "nothing of others came: {text}");
    }
}

fn check_untouched(home: &Path) {
    let names = fs::read_dir(home).expect("it is there").flatten();
    let left: Vec<_> = names
        .map(|entry| entry.file_name())
        .filter(|name| name != ".paddlecloud")
        .collect();
    assert_eq!(left, ["own"], "nothing was made or removed there");
    let own = fs::read_to_string(home.join("own")).expect("it is there");
    assert_eq!(own, SECRET);
}

fn walk(folder: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).expect("it is ours").flatten() {
        match entry.file_type().expect("it is there") {
            kind if kind.is_dir() => texts.extend(walk(&entry.path())),
            kind if kind.is_file() => texts
                .push(String::from_utf8_lossy(&fs::read(entry.path()).expect("it is a file")).into_owned()),
            _ => {}
        }
    }
    texts
}
