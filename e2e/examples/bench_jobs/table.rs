//! The table of figures: ours, the targets, and those of peers.

use std::time::Duration;

/// A figure that peers have too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Wall time of the smallest command.
    Command,
    /// From Enter to a job's first line.
    FirstLine,
    IdleMemory,
    IdleCpu,
    /// Jobs taken in per second.
    Submits,
}

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Milliseconds,
    Microseconds,
    Megabytes,
    PerSecond,
    MegabytesPerSecond,
    MillionLinesPerSecond,
    /// Of a core.
    Percent,
    Count,
}

/// A measured number.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    pub value: f64,
    pub unit: Unit,
    /// What it measures, if its row has several.
    pub label: &'static str,
}

impl Figure {
    pub fn new(value: f64, unit: Unit) -> Self {
        Self {
            value,
            unit,
            label: "",
        }
    }

    pub fn labelled(self, label: &'static str) -> Self {
        Self { label, ..self }
    }

    pub fn time(time: Duration) -> Self {
        Self::new(time.as_secs_f64() * 1000.0, Unit::Milliseconds)
    }

    /// A share of one core.
    pub fn share(share: f64) -> Self {
        Self::new(share * 100.0, Unit::Percent)
    }

    pub fn memory(kib: u64) -> Self {
        Self::new(kib as f64 / 1024.0, Unit::Megabytes)
    }

    /// The number with its unit.
    pub fn number(self) -> String {
        let value = self.value;
        match self.unit {
            Unit::Milliseconds => format!("{value:.1} ms"),
            Unit::Microseconds => format!("{value:.0} µs"),
            Unit::Megabytes => format!("{value:.1} MB"),
            Unit::PerSecond => format!("{value:.0}/s"),
            Unit::MegabytesPerSecond => format!("{value:.0} MB/s"),
            Unit::MillionLinesPerSecond => format!("{value:.1} M lines/s"),
            Unit::Percent => format!("{value:.2} %"),
            Unit::Count => format!("{value:.0}"),
        }
    }

    pub fn is_better_than(self, other: Figure) -> bool {
        match self.more_is_better() {
            true => self.value > other.value,
            false => self.value < other.value,
        }
    }

    /// How many times better it is than another one; nothing can be said about nothing.
    pub fn advantage(self, other: Figure) -> Option<f64> {
        let (better, worse) = match self.more_is_better() {
            true => (self.value, other.value),
            false => (other.value, self.value),
        };
        (better > 0.0 && worse > 0.0).then(|| better / worse)
    }

    fn more_is_better(self) -> bool {
        matches!(
            self.unit,
            Unit::PerSecond | Unit::MegabytesPerSecond | Unit::MillionLinesPerSecond
        )
    }
}

/// One row of ours.
pub struct Row {
    pub what: String,
    /// The first one is compared with peers.
    pub figures: Vec<Figure>,
    to_reach: &'static str,
    question: Option<Question>,
}

impl Row {
    pub fn new(what: impl Into<String>, figures: impl Into<Vec<Figure>>, to_reach: &'static str) -> Self {
        Self {
            what: what.into(),
            figures: figures.into(),
            to_reach,
            question: None,
        }
    }

    /// Says what peers' figure the first one stands beside.
    pub fn comparable_to(mut self, question: Question) -> Self {
        self.question = Some(question);
        self
    }

    /// Prints the row, each peer of it on a line of its own.
    pub fn print(&self, peers: &[PeerFigure]) {
        let measured = numbers(&self.figures);
        let mut columns = [self.what.as_str(), measured.as_str(), self.to_reach];
        let figures = self.peers(peers);
        if figures.is_empty() {
            line(columns, "", "");
        }
        for (text, ratio) in figures {
            line(columns, &text, &ratio);
            columns = [""; 3];
        }
    }

    fn peers(&self, peers: &[PeerFigure]) -> Vec<(String, String)> {
        let Some(question) = self.question else {
            return Vec::new();
        };
        let ours = self.figures[0];
        let same = peers.iter().filter(|peer| peer.question == question);
        same.map(|peer| {
            let advantage = peer.figure.and_then(|theirs| ours.advantage(theirs));
            let ratio = advantage.map(times).unwrap_or_default();
            (format!("{}: {}", peer.name, peer.text), ratio)
        })
        .collect()
    }
}

/// A peer's figure for a question.
#[derive(Debug)]
pub struct PeerFigure {
    question: Question,
    name: String,
    text: String,
    /// `None` where it was not measured here: such a figure gets no ratio.
    figure: Option<Figure>,
}

impl PeerFigure {
    /// The first figure is compared with ours.
    pub fn measured(question: Question, name: &str, remark: &str, figures: &[Figure]) -> Self {
        let separator = if remark.is_empty() { "" } else { ", " };
        Self {
            question,
            name: name.to_owned(),
            text: format!("{}{separator}{remark}", numbers(figures)),
            figure: figures.first().copied(),
        }
    }

    pub fn published(question: Question, name: &str, text: &str) -> Self {
        Self {
            question,
            name: name.to_owned(),
            text: format!("{text} (published)"),
            figure: None,
        }
    }
}

/// `2.7 ms, cpu 2.5 ms`.
fn numbers(figures: &[Figure]) -> String {
    let shown = |figure: &Figure| format!("{} {}", figure.label, figure.number());
    let shown = figures.iter().map(|figure| shown(figure).trim_start().to_owned());
    shown.collect::<Vec<_>>().join(", ")
}

pub fn print_head() {
    line(["what", "measured", "to reach"], "peer", "ours is better by");
}

fn line([what, measured, to_reach]: [&str; 3], peer: &str, ratio: &str) {
    let text = format!("{what:<44} {measured:>28}   {to_reach:<18} {peer:<52} {ratio}");
    println!("{}", text.trim_end());
}

fn times(advantage: f64) -> String {
    if advantage < 10.0 {
        format!("{advantage:.2}×")
    } else {
        format!("{advantage:.0}×")
    }
}

/// The one in the middle.
pub fn middle(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
