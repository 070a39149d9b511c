//! `cargo xtask wheel`: builds the release wheel, checks it and tests it in a bare environment.
//!
//! `crates/py/release.sh` does the work.

use anyhow::{Result, bail};

use crate::workspace::Workspace;
use crate::{no_arguments, step, test};

pub fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    no_arguments("wheel", args)?;
    if test::python().is_none() {
        bail!("there is no python3 on this machine");
    }
    step::run(&mut workspace.program("bash", &["crates/py/release.sh"]))
}
