//! The path of the built program, and its names.

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
/// If it was not built: cargo gives tests the programs of their own package only.
pub fn built() -> PathBuf {
    let this = env::current_exe().expect("a running program has a path");
    // target/<profile>/deps/<test> or target/<profile>/examples/<bench>
    let profile = this
        .ancestors()
        .nth(2)
        .expect("cargo builds two folders below the profile's");
    let mut program = profile.join("paddlecloud");
    if !program.is_file() {
        // With `build.build-dir` tests are elsewhere; programs are still in target/.
        let name = profile.file_name().expect("a profile has a name");
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
        program = target.join(name).join("paddlecloud");
    }
    assert!(
        program.is_file(),
        "{} is not there: run `cargo build -p paddlecloud` first, or `cargo xtask test`, which does",
        program.display()
    );
    program
}

/// Fills a folder with the names.
pub fn link_names(bin: &Path) {
    link_names_to(&built(), bin);
}

/// Fills a folder with the names of another copy of the program.
pub fn link_names_to(program: &Path, bin: &Path) {
    for name in NAMES {
        symlink(program, bin.join(name)).expect("a fresh folder takes a link");
    }
}
