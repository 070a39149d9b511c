//! The command line of the benchmark.

use std::path::PathBuf;

use crate::stage::{Place, Sizes};

pub const HELP: &str = "\
Usage: cargo xtask bench pfs [--quick] [--rounds N] [--on tmpfs|disk] [--versus P] [--json FILE] [race|delta|submit|memory]...

  --quick      small files and two rounds, to see that everything works
  --rounds N   turns every contender takes (default 5)
  --on PLACE   only in memory (tmpfs), or only on the disk below the build's folder; both otherwise
  --versus P   let another build of `paddlecloud`, such as an older one, take turns with this one
  --json FILE  every single figure

  race         one file of 2 GB and 10,000 of 10 KB, up and down, beside nginx, rsync, scp and cp
  delta        what is sent of a 2 GB file of which 1 MB changed or was inserted
  submit       a package of 5,000 files that did not change, and with one line changed
  memory       what 64 transfers at once cost the server
";

const GROUPS: &[&str] = &["race", "delta", "submit", "memory"];

/// What was asked for.
#[derive(Debug)]
pub struct Arguments {
    pub rounds: usize,
    pub sizes: Sizes,
    pub places: Vec<Place>,
    pub versus: Option<PathBuf>,
    pub json: Option<PathBuf>,
    groups: Vec<String>,
}

impl Arguments {
    /// `None` when the line makes no sense.
    pub fn read() -> Option<Self> {
        let mut read = Self {
            rounds: 5,
            sizes: Sizes::FULL,
            places: vec![Place::Memory, Place::Disk],
            versus: None,
            json: None,
            groups: Vec::new(),
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--quick" => (read.rounds, read.sizes) = (2, Sizes::QUICK),
                "--rounds" => read.rounds = args.next()?.parse().ok().filter(|rounds| *rounds > 0)?,
                "--on" => read.places = vec![Place::named(&args.next()?)?],
                "--versus" => read.versus = Some(args.next()?.into()),
                "--json" => read.json = Some(args.next()?.into()),
                name if GROUPS.contains(&name) => read.groups.push(arg),
                _ => return None,
            }
        }
        Some(read)
    }

    pub fn wants(&self, group: &str) -> bool {
        self.groups.is_empty() || self.groups.iter().any(|wanted| wanted == group)
    }
}
