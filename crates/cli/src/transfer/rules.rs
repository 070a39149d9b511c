//! Where each source of a copy ends up: the rules of cp(1), and the submit guide's rule of the trailing slash.
//!
//! Pure: what exists was determined before.

use std::collections::HashSet;

/// What a source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Folder,
}

/// What is at the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    File,
    Folder,
    Missing,
}

/// One source, as far as the rules need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferSource {
    /// As it was typed.
    pub shown: String,
    /// Its last name; `None` for `.` and similar paths, which mean the contents of a folder.
    pub name: Option<Vec<u8>>,
    pub kind: Kind,
    /// Whether it ends with a slash.
    pub slash: bool,
}

/// The request.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    pub target: Target,
    /// Whether the destination ends with a slash: then it is a folder, created if missing.
    pub slash: bool,
    /// Whether folders are copied.
    pub recursive: bool,
    pub style: Style,
}

/// Which rules apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// cp(1): a folder lands inside an existing folder, and takes the name of a missing one.
    Cp,
    /// As in the submit guide: `src` lands inside the destination, `src/` copies only its contents.
    Slash,
}

/// Where a source ends up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Landing {
    /// As the destination itself; a folder's contents are merged into it.
    Exactly,
    /// In the destination, under this name.
    Inside(Vec<u8>),
}

/// Why a source is not copied, or why nothing can be copied at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("it is a folder")]
    NeedsRecursive,
    #[error("a folder cannot take the place of a file")]
    FolderOverFile,
    #[error("another source has the same name")]
    SameName,
    #[error("there is no such folder, and several sources cannot share one name")]
    NoSuchFolder,
    #[error("it is a file, not a folder")]
    FileAsFolder,
}

/// Returns the destination of every source, in order. The outer error stops everything.
pub fn landings(
    sources: &[TransferSource],
    request: Request,
) -> Result<Vec<Result<Landing, RuleError>>, RuleError> {
    if request.target == Target::File && request.slash {
        return Err(RuleError::FileAsFolder);
    }
    let is_folder = request.target == Target::Folder || request.slash;
    if sources.len() > 1 && !is_folder && request.style == Style::Cp {
        return Err(match request.target {
            Target::File => RuleError::FileAsFolder,
            Target::Missing | Target::Folder => RuleError::NoSuchFolder,
        });
    }
    let mut taken: HashSet<Vec<u8>> = HashSet::new();
    let landing = |source: &TransferSource| {
        let landing = land(source, request, is_folder, sources.len())?;
        if let Landing::Inside(name) = &landing
            && !taken.insert(name.clone())
        {
            return Err(RuleError::SameName);
        }
        Ok(landing)
    };
    Ok(sources.iter().map(landing).collect())
}

fn land(
    source: &TransferSource,
    request: Request,
    is_folder: bool,
    count: usize,
) -> Result<Landing, RuleError> {
    if source.kind == Kind::Folder && !request.recursive {
        return Err(RuleError::NeedsRecursive);
    }
    if source.kind == Kind::Folder && request.target == Target::File {
        return Err(RuleError::FolderOverFile);
    }
    let brings_contents = request.style == Style::Slash && source.slash;
    let Some(name) = source.name.as_ref().filter(|_| !brings_contents) else {
        return Ok(Landing::Exactly);
    };
    let goes_inside = match (request.style, source.kind) {
        (Style::Slash, Kind::Folder) => true,
        (Style::Slash, Kind::File) => is_folder || count > 1,
        (Style::Cp, _) => is_folder,
    };
    Ok(if goes_inside {
        Landing::Inside(name.clone())
    } else {
        Landing::Exactly
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str, kind: Kind) -> TransferSource {
        let trimmed = text.trim_end_matches('/');
        let name = trimmed.rsplit('/').next().unwrap();
        TransferSource {
            shown: text.to_owned(),
            name: (name != ".").then(|| name.as_bytes().to_vec()),
            kind,
            slash: text.ends_with('/'),
        }
    }

    fn cp(target: Target, slash: bool) -> Request {
        Request {
            target,
            slash,
            recursive: true,
            style: Style::Cp,
        }
    }

    fn one(source: TransferSource, request: Request) -> Result<Landing, RuleError> {
        landings(&[source], request).and_then(|mut all| all.remove(0))
    }

    fn inside(name: &str) -> Result<Landing, RuleError> {
        Ok(Landing::Inside(name.as_bytes().to_vec()))
    }

    #[test]
    fn as_with_cp_sources_go_into_an_existing_folder_or_become_the_target() {
        for (text, kind) in [("d/a", Kind::File), ("d/a", Kind::Folder), ("d/a/", Kind::Folder)] {
            assert_eq!(one(source(text, kind), cp(Target::Folder, false)), inside("a"));
            assert_eq!(one(source(text, kind), cp(Target::Missing, true)), inside("a"));
            assert_eq!(
                one(source(text, kind), cp(Target::Missing, false)),
                Ok(Landing::Exactly)
            );
        }
        assert_eq!(
            one(source("a", Kind::File), cp(Target::File, false)),
            Ok(Landing::Exactly)
        );
    }

    #[test]
    fn a_trailing_dot_copies_the_contents() {
        assert_eq!(
            one(source("d/.", Kind::Folder), cp(Target::Folder, false)),
            Ok(Landing::Exactly)
        );
    }

    #[test]
    fn several_sources_need_a_folder() {
        let sources = [source("a", Kind::File), source("b", Kind::File)];
        assert_eq!(
            landings(&sources, cp(Target::Missing, false)),
            Err(RuleError::NoSuchFolder)
        );
        assert_eq!(
            landings(&sources, cp(Target::File, false)),
            Err(RuleError::FileAsFolder)
        );
        let landed = landings(&sources, cp(Target::Missing, true)).unwrap();
        assert_eq!(landed, [inside("a"), inside("b")]);
    }

    #[test]
    fn one_bad_source_does_not_stop_the_others() {
        let sources = [
            source("d", Kind::Folder),
            source("x/a", Kind::File),
            source("y/a", Kind::File),
        ];
        let request = Request {
            recursive: false,
            ..cp(Target::Folder, false)
        };
        let landed = landings(&sources, request).unwrap();
        assert_eq!(
            landed,
            [
                Err(RuleError::NeedsRecursive),
                inside("a"),
                Err(RuleError::SameName)
            ]
        );
    }

    #[test]
    fn a_folder_never_replaces_a_file() {
        assert_eq!(
            one(source("d", Kind::Folder), cp(Target::File, false)),
            Err(RuleError::FolderOverFile)
        );
        assert_eq!(
            one(source("a", Kind::File), cp(Target::File, true)),
            Err(RuleError::FileAsFolder)
        );
    }

    #[test]
    fn with_file_the_slash_after_the_source_decides_whether_its_folder_comes_along() {
        let request = |target| Request {
            style: Style::Slash,
            ..cp(target, false)
        };
        for target in [Target::Folder, Target::Missing] {
            assert_eq!(one(source("d", Kind::Folder), request(target)), inside("d"));
            assert_eq!(
                one(source("d/", Kind::Folder), request(target)),
                Ok(Landing::Exactly)
            );
        }
        assert_eq!(one(source("a", Kind::File), request(Target::Folder)), inside("a"));
        assert_eq!(
            one(source("a", Kind::File), request(Target::Missing)),
            Ok(Landing::Exactly)
        );
    }
}
