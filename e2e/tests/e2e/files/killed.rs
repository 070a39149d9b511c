//! `kill -9` of either side at any moment of a transfer: the command is repeated, or resumes by itself, and in the end
//! everything is there and nothing else. After each kill `pfs fsck` reads every acknowledged file and finds nothing.

use std::env::var;
use std::fs;
use std::path::PathBuf;

use e2e::{TestEnvironment, wait_until};

use super::dice::{Dice, seed};
use super::network::Way;
use super::site::Site;
use super::trees::{Node, assert_identical, plant_mixed, snapshot};
use super::{arg, noise, staged};

const SMALL_FILES: usize = 2000;
/// What goes over the wire for the whole tree, a little less.
const WIRE: u64 = 36 << 20;
const HOME: &str = "/pfs/cloud/home/ada/";
const REMOTE: &str = "/pfs/cloud/home/ada/tree";

/// May run `pfs fsck`.
const ADMIN: &str = "  admin: true\n";

/// One kill each; `cargo xtask test --with crash` asks for many.
fn rounds() -> u64 {
    let requested = var("PADDLECLOUD_CRASH_ROUNDS").ok();
    requested.and_then(|text| text.parse().ok()).unwrap_or(4)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Client,
    Server,
}

/// The programs, the tree and where it comes back to.
struct Stage<'a> {
    site: Site<'a>,
    tree: PathBuf,
    back: PathBuf,
}

/// `pfs fsck` knows and reads as many files as were acknowledged, and all are as they were stored.
#[track_caller]
fn assert_sound(site: &Site<'_>, files: &str) {
    let checked = site.run("ada", &["pfs", "fsck"]).ok();
    assert_eq!(checked.stdout, "", "something is found\n{checked}");
    checked.says(&format!("{files} read, none damaged"));
}

impl Stage<'_> {
    /// Runs a command during which one side dies after this many bytes; repeats it if that was the client. Says
    /// whether somebody died.
    fn run(&mut self, words: &[&str], victim: Option<Victim>, after: u64) -> bool {
        let mut client = self.site.spawn("ada", words);
        match victim {
            Some(Victim::Client) => self.site.network().after(after, client.killer()),
            Some(Victim::Server) => {
                let killer = self.site.server().killer();
                self.site.network().after(after, killer);
            }
            None => {}
        }
        let mut server_died = false;
        if victim == Some(Victim::Server) {
            wait_until("the server must die or the client be done", || {
                (self.site.has_ended() || client.has_ended()).then_some(())
            });
            server_died = self.site.has_ended();
            if server_died {
                self.site.start_again();
            }
        }
        let (status, lines) = client.end();
        self.site.network().heal();
        let was_killed = status.code().is_none();
        assert!(
            status.success() || (was_killed && victim == Some(Victim::Client)),
            "{status}: {}",
            lines.join("\n")
        );
        if was_killed {
            self.run(words, None, 0);
        }
        was_killed || server_died
    }

    /// Comes before anything asks for digests: the server would learn then what it had lost.
    fn assert_sound(&self) {
        let files = snapshot(&self.tree).into_values();
        let files = files.filter(|node| matches!(node, Node::File { .. })).count();
        assert_sound(&self.site, &format!("{files} files"));
    }

    fn up(&mut self, victim: Option<Victim>, after: u64) -> bool {
        let tree = arg(&self.tree).to_owned();
        let died = self.run(&["cp", "-r", &tree, HOME], victim, after);
        self.assert_sound();
        self.site.run("ada", &["check", &tree, REMOTE]).ok();
        assert_identical(&self.tree, &self.site.home("ada").join("tree"));
        wait_until("nothing unfinished may stay on the server", || {
            staged(self.site.storage()).is_empty().then_some(())
        });
        died
    }

    fn down(&mut self, victim: Option<Victim>, after: u64) -> bool {
        let back = arg(&self.back).to_owned();
        let died = self.run(&["cp", REMOTE, &back], victim, after);
        self.assert_sound();
        assert_identical(&self.tree, &self.back.join("tree"));
        let left: Vec<_> = fs::read_dir(&self.back)
            .expect("it was made")
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        assert_eq!(left, ["tree"], "nothing unfinished stays here");
        died
    }

    fn clear(&mut self) {
        self.site.run("ada", &["rm", "-r", "-f", REMOTE]).ok();
        fs::remove_dir_all(&self.back).expect("it is ours");
        fs::create_dir(&self.back).expect("it is ours");
    }
}

#[test]
fn a_folder_survives_kills_of_client_and_server_both_ways() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, ADMIN);
    site.network();
    let (tree, back) = (env.folder("tree"), env.folder("back"));
    plant_mixed(&tree, SMALL_FILES);
    let mut stage = Stage { site, tree, back };
    let seed = seed();
    let mut deaths = 0;
    for round in 0..rounds() {
        let mut dice = Dice::new(seed.wrapping_add(round));
        let victim = [Victim::Client, Victim::Server][(round % 2) as usize];
        let is_up = round % 4 < 2;
        // The beginning and the end of a transfer are short and have the most to break.
        let after = match dice.within(0..4) {
            0 => dice.within(1..200_000),
            1 => dice.within(WIRE - 4_000_000..WIRE),
            _ => dice.within(1..WIRE),
        };
        eprintln!("round {round}: the {victim:?} dies after {after} bytes, up: {is_up}");
        let died_up = stage.up(is_up.then_some(victim), after);
        let died_down = stage.down((!is_up).then_some(victim), after);
        deaths += u64::from(died_up || died_down);
        stage.clear();
    }
    let rounds = rounds();
    eprintln!("somebody died in {deaths} of {rounds} rounds");
    // A transfer may be over before its time; that is the exception.
    assert!(deaths * 4 >= rounds * 3, "nobody died in most rounds");
    stage.site.stop();
    assert_eq!(staged(stage.site.data()), Vec::<PathBuf>::new());
}

/// Chunks travel two at a time: what is in flight when a server dies.
const IN_FLIGHT: u64 = 2 * (4 << 20);

#[test]
fn a_transfer_survives_killed_servers_and_resends_only_bytes_in_flight() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, ADMIN);
    let (file, back) = (env.folder("data").join("large"), env.folder("back").join("large"));
    let size: u64 = 64 << 20;
    fs::write(&file, noise(72, size as usize)).expect("a file can be written");
    let remote = "/pfs/cloud/home/ada/large";
    let mut dice = Dice::new(seed());
    for (way, ends) in [(Way::Up, [arg(&file), remote]), (Way::Down, [remote, arg(&back)])] {
        let before = site.network().passed(way);
        let words = ["cp", "--transfers", "2", ends[0], ends[1]];
        let kills = run_while_the_server_dies(&mut site, &words, &mut dice);
        let moved = site.network().passed(way) - before;
        assert_sound(&site, "1 file");
        let most = size + kills * IN_FLIGHT + (1 << 20);
        assert!(
            moved <= most,
            "{way:?}: {moved} bytes went for a file of {size}, {most} would do"
        );
    }
    assert!(fs::read(&file).expect("it is there") == fs::read(&back).expect("it is there"));
}

/// Runs one command to its good end, whatever happens to the server meanwhile: it dies three times.
fn run_while_the_server_dies(site: &mut Site<'_>, words: &[&str], dice: &mut Dice) -> u64 {
    let mut client = site.spawn("ada", words);
    let mut kills = 0;
    while kills < 3 && !client.has_ended() {
        let killer = site.server().killer();
        let disconnecter = site.network().disconnecter();
        site.network().after(dice.within(1 << 20..16 << 20), || {
            disconnecter();
            killer();
        });
        wait_until("the server must die or the client be done", || {
            (site.has_ended() || client.has_ended()).then_some(())
        });
        if site.has_ended() {
            kills += 1;
            site.start_again();
        }
    }
    let (status, lines) = client.end();
    site.network().heal();
    assert!(status.success(), "{}", lines.join("\n"));
    assert_eq!(kills, 3, "it died in the middle of the transfer");
    kills
}
