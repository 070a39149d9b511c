//! The command line of the benchmark.

use std::path::PathBuf;

use crate::GROUPS;

pub const HELP: &str = "\
Usage: cargo xtask bench jobs [--jobs N] [--peers | --versus P [--rounds N]] [start|logs|followers|queue]...

  --jobs N    how many jobs to submit, and then to have in the history (default 20000)
  --peers     measure kubectl, HyperQueue and Ray beside; installs them into target/bench-peers, and
              needs root, because their servers get a network of their own
  --versus P  let another build of `paddlecloud`, such as an older one, take turns with this one
  --rounds N  turns that each of the two builds takes (default 3)
";

/// What this build is compared with.
#[derive(Debug)]
pub enum Rival {
    None,
    Peers,
    /// Another build of the program.
    Build(PathBuf),
}

/// What was asked for.
#[derive(Debug)]
pub struct Arguments {
    pub jobs: usize,
    pub rival: Rival,
    pub rounds: usize,
    groups: Vec<String>,
}

impl Arguments {
    /// `None` when the line makes no sense.
    pub fn read() -> Option<Self> {
        let mut read = Self {
            jobs: 20_000,
            rival: Rival::None,
            rounds: 3,
            groups: Vec::new(),
        };
        let (mut peers, mut versus, mut rounds) = (false, None, None);
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--jobs" => read.jobs = args.next()?.parse().ok()?,
                "--peers" => peers = true,
                "--versus" => versus = Some(PathBuf::from(args.next()?)),
                "--rounds" => rounds = Some(args.next()?.parse().ok().filter(|rounds| *rounds > 0)?),
                name if GROUPS.iter().any(|(known, _)| *known == name) => read.groups.push(arg),
                _ => return None,
            }
        }
        read.rival = match (peers, versus) {
            (false, None) => Rival::None,
            (true, None) => Rival::Peers,
            (false, Some(program)) => Rival::Build(program),
            (true, Some(_)) => return None,
        };
        if rounds.is_some() && !matches!(read.rival, Rival::Build(_)) {
            return None;
        }
        read.rounds = rounds.unwrap_or(read.rounds);
        Some(read)
    }

    pub fn wants(&self, group: &str) -> bool {
        self.groups.is_empty() || self.groups.iter().any(|wanted| wanted == group)
    }
}
