//! A job flips a link between its own folder and somebody else's, as fast as it can, while every file command runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use e2e::{TestEnvironment, wait_until};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::dice::{Dice, seed};
use super::site::Site;
use super::{arg, plant};

const SECRET: &str = "nobody but ada reads this";
const ROUNDS: usize = 40;

/// Swaps `d`, a folder, with a link to `target`, each time in one step, until told to stop.
fn flip(home: &Path, target: &Path, is_over: &AtomicBool, flips: &AtomicU64) {
    let (place, other) = (home.join("d"), home.join("other"));
    fs::create_dir(&place).expect("the home is there");
    fs::write(place.join("own"), "bob's own").expect("the home is there");
    symlink(target, &other).expect("the home is there");
    while !is_over.load(Ordering::Relaxed) {
        renameat_with(CWD, &place, CWD, &other, RenameFlags::EXCHANGE).expect("both are there");
        flips.fetch_add(1, Ordering::Relaxed);
    }
}

/// Ends the flipping however the test ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_link_that_flips_while_commands_run_leads_nowhere() {
    let env = TestEnvironment::new();
    let Some(site) = Site::start(&env, "") else {
        return;
    };
    let data = env.folder("data");
    plant(&data, &[("secret", SECRET), ("new", "from bob")]);
    site.run(
        "ada",
        &["cp", arg(&data.join("secret")), "/pfs/cloud/home/ada/own"],
    )
    .ok();
    let (ada, bob) = (site.home("ada"), site.home("bob"));
    let (is_over, flips) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut dice = Dice::new(seed());
    std::thread::scope(|scope| {
        scope.spawn(|| flip(&bob, &ada, &is_over, &flips));
        let _over = Over(&is_over);
        wait_until("the link must flip", || {
            (flips.load(Ordering::Relaxed) > 10).then_some(())
        });
        let back = env.folder("back");
        let new = data.join("new");
        let at = "/pfs/cloud/home/bob/d";
        for round in 0..ROUNDS {
            let before = flips.load(Ordering::Relaxed);
            let inside = format!("{at}/own");
            let made = format!("{at}/made-{round}");
            let words: &[&str] = match dice.within(0..8) {
                0 => &["cat", &inside],
                1 => &["ls", "-r", at],
                2 => &["cp", arg(&new), &inside],
                3 => &["cp", "-r", at, arg(&back)],
                4 => &["rm", "-r", &made],
                5 => &["mkdir", "-p", &made],
                6 => &["stat", "--digest", &inside],
                _ => &["mv", &inside, &made],
            };
            let ran = site.run("bob", words);
            assert!(!ran.stdout.contains(SECRET), "{ran}");
            assert!(!ran.stderr.contains("panicked"), "{ran}");
            assert!(flips.load(Ordering::Relaxed) > before, "it flipped meanwhile");
        }
    });
    let left: Vec<_> = fs::read_dir(&ada)
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name())
        .filter(|name| name != ".paddlecloud")
        .collect();
    assert_eq!(left, ["own"], "nothing was made or removed there");
    assert_eq!(fs::read_to_string(ada.join("own")).unwrap(), SECRET);
    let fetched = walk(&env.folder("back"));
    assert!(
        !fetched.iter().any(|text| text.contains(SECRET)),
        "nothing of hers came down"
    );
}

fn walk(folder: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).expect("it is ours").flatten() {
        match entry.file_type().expect("it is there") {
            kind if kind.is_dir() => texts.extend(walk(&entry.path())),
            kind if kind.is_file() => texts.push(fs::read_to_string(entry.path()).expect("it is text")),
            _ => {}
        }
    }
    texts
}
