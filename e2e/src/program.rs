//! Where the built program is, and the names it is given.

use std::env;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Every name that a person, a script or the server calls the program by.
const NAMES: &[&str] = &[
    "paddlectl",
    "paddlecloud",
    "paddlecloud-server",
    "paddle",
    "paddle-data",
];

/// The program of the profile these tests were built with.
///
/// # Panics
/// When it was not built: cargo gives tests the programs of their own package only.
pub fn built() -> PathBuf {
    let this = env::current_exe().expect("a running program has a path");
    // target/<profile>/deps/<test> or target/<profile>/examples/<bench>
    let profile = this
        .ancestors()
        .nth(2)
        .expect("cargo builds two folders below the profile's");
    let program = profile.join("paddlecloud");
    assert!(
        program.is_file(),
        "{} is not there: run `cargo build -p paddlecloud` first, or `cargo xtask test`, which does",
        program.display()
    );
    program
}

/// Fills a folder with the names.
pub fn link_names(bin: &Path) {
    let program = built();
    for name in NAMES {
        symlink(&program, bin.join(name)).expect("a fresh folder takes a link");
    }
}
