//! kubectl: the cost of the smallest command of a large Go client. It contacts no server.

use std::process::Command;

use super::Installed;
use crate::process::{cost, median};
use crate::table::{PeerFigure, Question};

const RUNS: usize = 41;

pub fn start(peer: &Installed) -> Result<Vec<PeerFigure>, String> {
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let run = || {
        let mut command = Command::new(peer.bin.join("kubectl"));
        command
            .args(["version", "--client"])
            .env_clear()
            .env("HOME", home.path());
        cost(&mut command)
    };
    let cost = median(RUNS, run);
    Ok(vec![PeerFigure::measured(
        Question::Command,
        &peer.name,
        "",
        &cost.figures(),
    )])
}
