//! The table people read, and the figures behind it.

use std::path::Path;

use serde_json::{Value, json};

use crate::race::Turn;
use crate::stage::{Load, Place};

/// Which way the bytes went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Up,
    Down,
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// All turns of all contenders for one load in one direction. The first contender is ours.
#[derive(Debug)]
pub struct Race {
    place: Place,
    direction: Direction,
    files: usize,
    bytes: u64,
    turns: Vec<(String, Vec<Turn>)>,
}

impl Race {
    pub fn new(place: Place, direction: Direction, load: &Load, names: Vec<String>) -> Self {
        Self {
            place,
            direction,
            files: load.files,
            bytes: load.bytes,
            turns: names.into_iter().map(|name| (name, Vec::new())).collect(),
        }
    }

    pub fn add(&mut self, contender: usize, turn: Turn) {
        self.turns[contender].1.push(turn);
    }

    fn title(&self) -> String {
        let (place, direction) = (self.place.name(), self.direction.name());
        let megabytes = self.bytes / 1_000_000;
        match self.files {
            1 => format!("one file of {megabytes} MB, {direction}, {place}"),
            files => format!("{files} files, {megabytes} MB, {direction}, {place}"),
        }
    }

    /// What a turn's time means: MB/s for one file, files/s for many.
    fn rate(&self, turn: &Turn) -> f64 {
        let work = match self.files {
            1 => self.bytes as f64 / 1e6,
            files => files as f64,
        };
        work / turn.wall.as_secs_f64()
    }

    fn unit(&self) -> &'static str {
        if self.files == 1 { "MB/s" } else { "files/s" }
    }

    fn cpu_per_gb(&self, turn: &Turn) -> Option<f64> {
        Some(turn.cpu?.as_secs_f64() / (self.bytes as f64 / 1e9))
    }

    fn print(&self) {
        println!("\n{}", self.title());
        let head = [
            "",
            self.unit(),
            "from-to",
            "cpu s/GB",
            "ours is faster by",
            "cpu, ours to theirs",
        ];
        line(head.map(str::to_owned));
        let ours = &self.turns[0].1;
        for (index, (name, turns)) in self.turns.iter().enumerate() {
            let rates: Vec<f64> = turns.iter().map(|turn| self.rate(turn)).collect();
            let cpu: Vec<f64> = turns.iter().filter_map(|turn| self.cpu_per_gb(turn)).collect();
            let [least, most] = [f64::min, f64::max].map(|pick| rates.iter().copied().reduce(pick));
            let versus = |ratio: fn(&Turn, &Turn) -> Option<f64>| {
                let ratios: Vec<f64> = ours.iter().zip(turns).filter_map(|(a, b)| ratio(a, b)).collect();
                let shown = middle(ratios).filter(|_| index > 0);
                shown.map_or_else(String::new, |ratio| format!("{ratio:.2}×"))
            };
            let number = |value: Option<f64>, digits| {
                value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
            };
            line([
                name.clone(),
                number(middle(rates.clone()), 0),
                format!("{}-{}", number(least, 0), number(most, 0)),
                number(middle(cpu), 2),
                versus(|ours, theirs| Some(theirs.wall.as_secs_f64() / ours.wall.as_secs_f64())),
                versus(|ours, theirs| Some(ours.cpu?.as_secs_f64() / theirs.cpu?.as_secs_f64())),
            ]);
        }
    }

    fn raw(&self) -> Value {
        let turns = self.turns.iter().map(|(name, turns)| {
            let seconds =
                |turn: &Turn| json!([turn.wall.as_secs_f64(), turn.cpu.map(|cpu| cpu.as_secs_f64())]);
            json!({"contender": name, "wall_and_cpu_s": turns.iter().map(seconds).collect::<Vec<_>>()})
        });
        json!({
            "what": self.title(), "bytes": self.bytes, "files": self.files,
            "contenders": turns.collect::<Vec<_>>(),
        })
    }
}

/// Everything that was measured. Rows are printed as they come.
#[derive(Debug, Default)]
pub struct Report {
    raw: Vec<Value>,
}

impl Report {
    pub fn race(&mut self, race: Race) {
        race.print();
        self.raw.push(race.raw());
    }

    /// A single figure beside what is to be reached.
    pub fn figure(&mut self, what: &str, measured: &str, to_reach: &str, raw: Value) {
        println!("{what:<64} {measured:>24}   {to_reach}");
        self.raw.push(json!({"what": what, "measured": raw}));
    }

    pub fn heading(&self, text: &str) {
        println!("\n{text}");
    }

    pub fn save(&self, file: &Path) {
        let text = serde_json::to_string_pretty(&self.raw).expect("numbers and texts always become JSON");
        if let Err(error) = std::fs::write(file, text) {
            eprintln!("cannot write {}: {error}", file.display());
        }
    }
}

fn line([name, rate, range, cpu, faster, cpu_ratio]: [String; 6]) {
    let text = format!("{name:<22} {rate:>10} {range:>16} {cpu:>10} {faster:>18} {cpu_ratio:>20}");
    println!("{}", text.trim_end());
}

/// The one in the middle.
pub fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
