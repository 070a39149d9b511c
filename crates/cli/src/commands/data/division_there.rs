//! A split into a folder of the cluster: created locally, uploaded to a staging folder, then published node by node.
//!
//! The manifest is the same as in a local folder: it says which nodes' data is ours, so local and remote runs can
//! follow each other.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paddlecloud_dataprep::split::{DATA_SET, FOREIGN, LOCK_FOLDER, MANIFEST, Names, Note};
use paddlecloud_pfs::{Existing, Node, PfsPath};
use tempfile::TempDir;

use super::cluster::Cluster;
use super::file_there::temporary_folder;
use super::upload::inside;
use crate::commands::Context;
use crate::error::CliError;
use crate::messages::Messages;
use crate::transfer::rules::Target;

/// A folder of the cluster that data is being split into.
pub struct DivisionThere {
    cluster: Arc<Cluster>,
    out: PfsPath,
    parts: u32,
    /// How many nodes an earlier run wrote, and its manifest.
    parts_before: u32,
    before: Option<Note>,
    folder: TempDir,
}

impl DivisionThere {
    /// Refuses early what could not be published later.
    pub fn open(out: &Path, parts: u32, context: &mut Context<'_>) -> Result<Self, CliError> {
        let cluster = Cluster::open(context)?;
        let out = cluster.place(out)?;
        if cluster.target(&out)? == Target::File {
            return Err(CliError::refused(format!("`{out}` is a file")));
        }
        let mut division = Self {
            cluster,
            out,
            parts,
            parts_before: 0,
            before: None,
            folder: temporary_folder()?,
        };
        division.look()?;
        Ok(division)
    }

    /// The local output folder.
    pub fn here(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// The data set of the document, for a call that names no files.
    pub fn data_set(&self) -> PathBuf {
        PathBuf::from(format!("{}/{DATA_SET}", self.out))
    }

    /// The output of a split must not be part of the next input.
    pub fn check_inputs(&self, inputs: &[PathBuf]) -> Result<(), CliError> {
        for input in inputs.iter().filter(|path| super::sources::is_remote(path)) {
            let place = PathBuf::from(self.cluster.place(input)?.to_string());
            let Ok(below) = place.strip_prefix(self.out.to_string()) else {
                continue;
            };
            let mut names = below.iter().map(|name| name.to_string_lossy());
            let first = names.next().unwrap_or_default();
            let is_node = !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit());
            if first.is_empty() || (is_node && names.next().is_none_or(|name| name == "data")) {
                return Err(CliError::refused(format!(
                    "`{}` is or contains the output folder: name the data set itself",
                    input.display()
                )));
            }
        }
        Ok(())
    }

    /// Uploads and publishes the split data. Until the last moment existing data is unchanged.
    pub fn publish(self, messages: &mut Messages) -> Result<(), CliError> {
        let stage = self.stage()?;
        let published = self.publish_through(&stage, messages);
        if published.is_ok() || self.holds_nothing_old(&stage) {
            // Leftovers are hidden and harmless.
            let _ = self.cluster.remove(&stage);
        }
        published
    }

    fn publish_through(&self, stage: &PfsPath, messages: &mut Messages) -> Result<(), CliError> {
        for part in 0..self.parts {
            let data = self.here().join(part.to_string()).join("data");
            let place = inside(stage, &part.to_string())?;
            self.cluster
                .send_folder(&data, &place, &self.data_of(part)?, messages)?;
        }
        let lock = inside(&self.out, LOCK_FOLDER)?;
        self.lock(&lock)?;
        let exchanged = self.exchange(stage, messages);
        let unlocked = self.cluster.remove(&lock);
        exchanged.and(unlocked)
    }

    /// Publishing is serialized. Uploads before it may overlap: each has its own folder.
    fn lock(&self, lock: &PfsPath) -> Result<(), CliError> {
        self.cluster.make_new_folder(lock).map_err(|error| {
            CliError::refused(format!(
                "cannot start to replace the data in `{}`: {error}",
                self.out
            ))
            .with_hint(format!(
                "another split is running, or one was killed: if none is running, `rm -r {lock}`"
            ))
        })
    }

    fn exchange(&self, stage: &PfsPath, messages: &mut Messages) -> Result<(), CliError> {
        let done = fs::read(self.here().join(MANIFEST))
            .map_err(|error| CliError::refused(format!("cannot read the split data: {error}")))?;
        let note = Note::parse(&done).map_err(CliError::refused)?;
        // Uploading takes time, in which another user may have added files.
        self.refuse_foreign_files()?;
        let all = self.parts.max(self.parts_before);
        self.write_note(&note.exchanging(all, self.before.as_ref()), messages)?;
        for part in 0..all {
            self.exchange_one(part, stage).map_err(|error| {
                CliError::refused(format!(
                    "cannot publish the data of node {part}: {error}; earlier nodes have the new data, \
                     this one and later ones the old data or none"
                ))
                .with_hint(format!(
                    "run the same command again to repair it; the old data is in `{stage}`"
                ))
            })?;
        }
        self.cluster.make_folder(&inside(&self.out, "output")?)?;
        self.write_note(&note, messages)
    }

    fn exchange_one(&self, part: u32, stage: &PfsPath) -> Result<(), CliError> {
        let (node, data) = (inside(&self.out, &part.to_string())?, self.data_of(part)?);
        if self.cluster.target(&data)? != Target::Missing {
            self.cluster
                .rename(&data, &inside(stage, &format!("old-{part}"))?)?;
        }
        if part < self.parts {
            self.cluster.make_folder(&node)?;
            self.cluster.rename(&inside(stage, &part.to_string())?, &data)?;
        } else {
            // The folder of a former node is removed, unless it contains other files.
            let _ = self.cluster.remove_if_empty(&node);
        }
        Ok(())
    }

    fn write_note(&self, note: &Note, messages: &mut Messages) -> Result<(), CliError> {
        let draft = self.folder.path().join("note");
        fs::write(&draft, note.to_json())
            .map_err(|error| CliError::refused(format!("cannot write `{}`: {error}", draft.display())))?;
        let place = inside(&self.out, MANIFEST)?;
        self.cluster
            .send_file(&draft, &place, Existing::Replace, messages)
    }

    /// Reads the manifest of an earlier run, and refuses to touch files that no run of ours created.
    fn look(&mut self) -> Result<(), CliError> {
        let note = inside(&self.out, MANIFEST)?;
        if self.cluster.target(&note)? == Target::File {
            let note = Note::parse(&self.cluster.content(&note)?).map_err(CliError::refused)?;
            self.parts_before = note.parts();
            self.before = Some(note);
        }
        self.refuse_foreign_files()?;
        for part in self.parts_before..self.parts {
            let place = self.data_of(part)?;
            if self.cluster.target(&place)? != Target::Missing {
                return Err(CliError::refused(format!(
                    "`{place}` already exists and was not created by a split"
                ))
                .with_hint("move it away, or choose another output folder"));
            }
        }
        Ok(())
    }

    /// Files that a user added to the split data are kept.
    fn refuse_foreign_files(&self) -> Result<(), CliError> {
        let Some(before) = &self.before else {
            return Ok(());
        };
        let names = before.names();
        for part in 0..self.parts_before {
            let data = self.data_of(part)?;
            if let Some(foreign) = self.foreign_in(&data, &names)? {
                return Err(CliError::refused(format!("`{foreign}` {FOREIGN}")));
            }
        }
        Ok(())
    }

    fn foreign_in(&self, data: &PfsPath, names: &Names<'_>) -> Result<Option<String>, CliError> {
        match self.cluster.target(data)? {
            Target::Missing => return Ok(None),
            Target::File => return Ok(Some(data.to_string())),
            Target::Folder => {}
        }
        let mut listed = self.cluster.entries(data)?;
        if let Some(special) = listed.special.pop() {
            return Ok(Some(format!("{data}/{special}")));
        }
        let foreign = listed.entries.into_iter().find(|entry| {
            let name = PathBuf::from(entry.path.to_string());
            match entry.node {
                Node::Dir => !names.has_folder(&name),
                _ => !names.has_file(&name),
            }
        });
        Ok(foreign.map(|entry| format!("{data}/{}", entry.path)))
    }

    fn data_of(&self, part: u32) -> Result<PfsPath, CliError> {
        inside(&self.out, &format!("{part}/data"))
    }

    /// This run's own folder, which no listing of data shows.
    fn stage(&self) -> Result<PfsPath, CliError> {
        let unique = self.folder.path().file_name().unwrap_or_default();
        inside(
            &self.out,
            &format!(".paddle-data-{}.tmp", unique.to_string_lossy()),
        )
    }

    /// Whether the staging folder contains no data of an earlier run whose publishing was interrupted.
    fn holds_nothing_old(&self, stage: &PfsPath) -> bool {
        (0..self.parts_before).all(|part| {
            let aside = inside(stage, &format!("old-{part}"));
            aside.is_ok_and(|aside| matches!(self.cluster.target(&aside), Ok(Target::Missing)))
        })
    }
}
