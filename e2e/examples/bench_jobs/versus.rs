//! This build and another one measure the same groups in turns, so that a busy minute affects both.

use std::path::{Path, PathBuf};

use e2e::link_names_to;

use crate::arguments::Arguments;
use crate::table::{Figure, Row};
use crate::{Measure, one_turn};

pub fn run(groups: &[&(&str, Measure)], arguments: &Arguments, program: &Path) {
    let program = program.canonicalize().expect("the other build exists");
    let bin = tempfile::tempdir().expect("a folder for the other build's names");
    link_names_to(&program, bin.path());
    let builds = [None, Some(bin.path().to_owned())];
    println!("best of {} rounds (middle)", arguments.rounds);
    line(["what", "this build", "other build", "better by, best", "middle"].map(str::to_owned));
    for (_, measure) in groups {
        let [ours, theirs] = turns(*measure, arguments, &builds);
        for (index, row) in ours[0].iter().enumerate() {
            let of = |rounds: &[Vec<Row>]| -> Vec<Vec<Figure>> {
                rounds.iter().map(|rows| rows[index].figures.clone()).collect()
            };
            print(&row.what, &of(&ours), &of(&theirs));
        }
    }
}

/// The rows of every round, by build.
fn turns(measure: Measure, arguments: &Arguments, builds: &[Option<PathBuf>; 2]) -> [Vec<Vec<Row>>; 2] {
    let mut rows = [Vec::new(), Vec::new()];
    for round in 0..arguments.rounds {
        // The first of a round is the last of the next one.
        for turn in 0..builds.len() {
            let build = (round + turn) % builds.len();
            rows[build].push(one_turn(measure, arguments.jobs, builds[build].as_deref()));
        }
    }
    rows
}

/// One line for each figure of a row; both sides have the figures of every round.
fn print(what: &str, ours: &[Vec<Figure>], theirs: &[Vec<Figure>]) {
    for index in 0..ours[0].len() {
        let of = |rounds: &[Vec<Figure>]| rounds.iter().map(|figures| figures[index]).collect::<Vec<_>>();
        let (ours, theirs) = (of(ours), of(theirs));
        let ratios = ours.iter().zip(&theirs).filter_map(|(a, b)| a.advantage(*b));
        let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}×"));
        let title = [what, ours[0].label].join(" ");
        line([
            title.trim_end().to_owned(),
            cell(&ours),
            cell(&theirs),
            ratio(best(&ours).advantage(best(&theirs))),
            ratio(middle(ratios.collect())),
        ]);
    }
}

fn cell(figures: &[Figure]) -> String {
    let values = middle(figures.iter().map(|figure| figure.value).collect());
    let middle = values.map(|value| Figure { value, ..figures[0] }.number());
    format!("{} ({})", best(figures).number(), middle.unwrap_or_default())
}

fn best(figures: &[Figure]) -> Figure {
    let better = |a: Figure, b: Figure| if b.is_better_than(a) { b } else { a };
    figures
        .iter()
        .copied()
        .reduce(better)
        .expect("there is at least one round")
}

fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn line([what, ours, theirs, best, middle]: [String; 5]) {
    let text = format!("{what:<52} {ours:>24} {theirs:>24} {best:>16} {middle:>8}");
    println!("{}", text.trim_end());
}
