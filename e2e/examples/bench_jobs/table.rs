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

impl Question {
    /// How many times better ours is than theirs; nothing can be said about nothing.
    fn advantage(self, ours: f64, theirs: f64) -> Option<f64> {
        let (better, worse) = match self {
            Self::Submits => (ours, theirs),
            Self::Command | Self::FirstLine | Self::IdleMemory | Self::IdleCpu => (theirs, ours),
        };
        (better > 0.0 && worse > 0.0).then(|| better / worse)
    }
}

/// One figure of ours.
pub struct Row {
    what: String,
    measured: String,
    to_reach: &'static str,
    comparable: Option<(Question, f64)>,
}

impl Row {
    pub fn new(what: impl Into<String>, measured: impl Into<String>, to_reach: &'static str) -> Self {
        Self {
            what: what.into(),
            measured: measured.into(),
            to_reach,
            comparable: None,
        }
    }

    /// Says what peers' figure this one stands beside, as a number in the unit of that question.
    pub fn comparable_to(mut self, question: Question, value: f64) -> Self {
        self.comparable = Some((question, value));
        self
    }

    /// Prints the row, each peer of it on a line of its own.
    pub fn print(&self, peers: &[PeerFigure]) {
        let mut columns = [self.what.as_str(), self.measured.as_str(), self.to_reach];
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
        let Some((question, ours)) = self.comparable else {
            return Vec::new();
        };
        let same = peers.iter().filter(|peer| peer.question == question);
        same.map(|peer| {
            let advantage = peer.value.and_then(|theirs| question.advantage(ours, theirs));
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
    value: Option<f64>,
}

impl PeerFigure {
    pub fn measured(question: Question, name: &str, text: impl Into<String>, value: f64) -> Self {
        Self {
            question,
            name: name.to_owned(),
            text: text.into(),
            value: Some(value),
        }
    }

    pub fn published(question: Question, name: &str, text: &str) -> Self {
        Self {
            question,
            name: name.to_owned(),
            text: format!("{text} (published)"),
            value: None,
        }
    }
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
