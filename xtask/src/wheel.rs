//! `cargo xtask wheel`: the Python wheel as it is released, checked and tried in a bare environment.
//!
//! The work is done by `crates/py/release.sh`; this only finds it.

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
