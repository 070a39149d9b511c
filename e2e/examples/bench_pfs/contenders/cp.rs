//! `cp`: no network, no check; what the file system itself takes.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Contender, Durable, shell, synced, twice};
use crate::stage::{Load, Stage};

struct Cp {
    folder: PathBuf,
    durable: Durable,
}

pub fn all(stage: &Stage) -> Vec<Box<dyn Contender>> {
    let folder = stage.empty("cp");
    let make = |durable| {
        Some(Cp {
            folder: folder.clone(),
            durable,
        })
    };
    twice(stage, make).expect("everybody has cp")
}

impl Cp {
    fn copy(&self, from: &Path, into: &Path) -> Command {
        let line = format!("cp -r '{}' '{}/'", from.display(), into.display());
        match self.durable {
            Durable::Yes => shell(synced(line, into)),
            Durable::No => shell(line),
        }
    }
}

impl Contender for Cp {
    fn name(&self) -> String {
        self.durable.named("cp")
    }

    fn up(&self, load: &Load) -> Command {
        self.copy(&load.path, &self.folder)
    }

    fn down(&self, load: &Load, into: &Path) -> Command {
        self.copy(&self.kept(load), into)
    }

    fn kept(&self, load: &Load) -> PathBuf {
        self.folder.join(load.name())
    }
}
