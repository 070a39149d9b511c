//! Plans what to transfer to make one tree like another. Pure: lists in, a plan out.
//!
//! `--dry-run` prints this plan, and a transfer does exactly what it lists.

use crate::entry::{Entry, Mtime, Node};
use crate::relpath::RelPath;
use crate::root::Existing;
use crate::sys::KEEPS_EXECUTABLE_BITS;

/// How to decide whether two files are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compare {
    /// Same size and modification time.
    #[default]
    SizeAndTime,
    /// Same digest; both sides must have been hashed.
    Digest,
}

/// What to do with entries that only the target has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extra {
    #[default]
    Keep,
    Delete,
}

/// Options for a plan.
#[derive(Debug, Clone, Copy)]
pub struct SyncOptions {
    pub compare: Compare,
    pub extra: Extra,
    /// Whether existing files may be replaced.
    pub existing: Existing,
}

impl Default for SyncOptions {
    fn default() -> Self {
        Self {
            compare: Compare::default(),
            extra: Extra::default(),
            existing: Existing::Replace,
        }
    }
}

/// What to do, in this order: delete, then send.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SyncPlan {
    /// Nodes to remove; a folder includes everything below it. Empty under [`Extra::Keep`].
    pub delete: Vec<RelPath>,
    /// Entries to send, including the parents of files; every folder precedes its contents.
    pub send: Vec<Entry>,
    /// Files left alone because they must not be replaced.
    pub kept: Vec<RelPath>,
    /// Entries that cannot be sent, with all their contents: folder and non-folder collide, and nothing may be deleted or
    /// replaced.
    pub blocked: Vec<RelPath>,
    /// Number of files and links that are the same on both sides.
    pub unchanged: u64,
}

/// Compares two listings, both in the order of [`RelPath`].
pub fn plan(source: &[Entry], target: &[Entry], options: SyncOptions) -> SyncPlan {
    let mut plan = SyncPlan::default();
    let mut target_side = target.iter().peekable();
    for entry in source {
        while let Some(extra) = target_side.next_if(|other| other.path < entry.path) {
            plan.on_extra(extra, options);
        }
        let other = target_side.next_if(|other| other.path == entry.path);
        plan.on_entry(entry, other, options);
    }
    target_side.for_each(|extra| plan.on_extra(extra, options));
    plan.drop_needless_folders(target);
    plan
}

impl SyncPlan {
    fn on_extra(&mut self, extra: &Entry, options: SyncOptions) {
        let lies_in = |folder: &RelPath| extra.path.is_within(folder);
        // The contents of a blocked folder stay too.
        let is_settled = self.delete.last().is_some_and(lies_in) || self.blocked.last().is_some_and(lies_in);
        if options.extra == Extra::Delete && !is_settled {
            self.delete.push(extra.path.clone());
        }
    }

    fn on_entry(&mut self, entry: &Entry, other: Option<&Entry>, options: SyncOptions) {
        if self
            .blocked
            .last()
            .is_some_and(|blocked| entry.path.is_within(blocked))
        {
            return;
        }
        match other {
            Some(other) if is_same(entry, other, options.compare) => {
                self.unchanged += u64::from(!entry.is_dir());
                // Kept for now as the parent of entries below it.
                if entry.is_dir() {
                    self.send.push(entry.clone());
                }
            }
            // A node cannot replace one of another kind: that must be deleted first.
            Some(other) if other.is_dir() != entry.is_dir() => {
                if options.existing == Existing::Keep || options.extra == Extra::Keep {
                    self.blocked.push(entry.path.clone());
                    return;
                }
                self.delete.push(entry.path.clone());
                self.send.push(entry.clone());
            }
            Some(_) if options.existing == Existing::Keep => self.kept.push(entry.path.clone()),
            _ => self.send.push(entry.clone()),
        }
    }

    /// Drops folders that the target has, unless an entry below them is sent.
    fn drop_needless_folders(&mut self, target: &[Entry]) {
        let has = |path: &RelPath| Entry::find(target, path).is_some_and(Entry::is_dir);
        let mut kept: Vec<Entry> = Vec::with_capacity(self.send.len());
        for entry in self.send.drain(..).rev() {
            let leads_to_something = kept.last().is_some_and(|next| next.path.is_within(&entry.path));
            if !entry.is_dir() || leads_to_something || !has(&entry.path) {
                kept.push(entry);
            }
        }
        kept.reverse();
        self.send = kept;
    }
}

fn is_same(a: &Entry, b: &Entry, compare: Compare) -> bool {
    match (&a.node, &b.node) {
        (Node::Dir, Node::Dir) => true,
        (Node::Symlink { target }, Node::Symlink { target: other }) => target == other,
        (
            Node::File {
                size,
                executable,
                digest,
            },
            Node::File {
                size: other_size,
                executable: other_executable,
                digest: other_digest,
            },
        ) => {
            size == other_size
                && (executable == other_executable || !KEEPS_EXECUTABLE_BITS)
                && match compare {
                    Compare::Digest => digest.is_some() && digest == other_digest,
                    Compare::SizeAndTime => is_same_time(a.mtime, b.mtime),
                }
        }
        _ => false,
    }
}

/// Some backends keep only whole seconds.
fn is_same_time(a: Mtime, b: Mtime) -> bool {
    let ((a_seconds, a_nanos), (b_seconds, b_nanos)) = (a.parts(), b.parts());
    a.is_same_moment(b) || (a_seconds == b_seconds && (a_nanos == 0 || b_nanos == 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Digest;
    use crate::testing::rel;

    fn file(path: &str, content: &str, mtime: i64) -> Entry {
        let digest = Some(Digest::of(content.as_bytes()));
        let node = Node::File {
            size: content.len() as u64,
            executable: false,
            digest,
        };
        Entry {
            path: rel(path),
            node,
            mtime: Mtime::new(mtime, 0),
        }
    }

    fn dir(path: &str) -> Entry {
        Entry {
            path: rel(path),
            node: Node::Dir,
            mtime: Mtime::default(),
        }
    }

    fn names(entries: &[Entry]) -> Vec<String> {
        entries.iter().map(|entry| entry.path.to_string()).collect()
    }

    fn is_nothing(plan: &SyncPlan) -> bool {
        plan.delete.is_empty() && plan.send.is_empty()
    }

    #[test]
    fn only_differing_files_and_their_parent_folders_are_sent() {
        let source = [
            dir("a"),
            file("a/same", "1", 1),
            file("a/touched", "2", 9),
            dir("b"),
            file("b/same", "3", 1),
        ];
        let target = [
            dir("a"),
            file("a/same", "1", 1),
            file("a/touched", "2", 1),
            dir("b"),
            file("b/same", "3", 1),
        ];
        let made = plan(&source, &target, SyncOptions::default());
        assert_eq!(names(&made.send), ["a", "a/touched"]);
        assert_eq!(made.unchanged, 2);
        let by_digest = SyncOptions {
            compare: Compare::Digest,
            ..SyncOptions::default()
        };
        assert!(is_nothing(&plan(&source, &target, by_digest)));
    }

    #[test]
    fn extra_target_entries_are_kept_or_deleted_with_their_folder() {
        let source = [file("m", "", 1)];
        let target = [
            dir("a"),
            dir("a/b"),
            file("a/b/c", "", 1),
            file("m", "", 1),
            file("z", "", 1),
        ];
        assert!(is_nothing(&plan(&source, &target, SyncOptions::default())));
        let delete = SyncOptions {
            extra: Extra::Delete,
            ..SyncOptions::default()
        };
        assert_eq!(plan(&source, &target, delete).delete, [rel("a"), rel("z")]);
    }

    #[test]
    fn existing_files_are_kept_if_requested() {
        let keep = SyncOptions {
            existing: Existing::Keep,
            ..SyncOptions::default()
        };
        let made = plan(
            &[file("a", "new", 2), file("b", "", 1)],
            &[file("a", "old", 1)],
            keep,
        );
        assert_eq!(made.kept, [rel("a")]);
        assert_eq!(names(&made.send), ["b"]);
    }

    #[test]
    fn kept_entries_of_another_kind_are_conflicts_with_their_contents() {
        for extra in [Extra::Keep, Extra::Delete] {
            let keep = SyncOptions {
                existing: Existing::Keep,
                extra,
                ..SyncOptions::default()
            };
            let made = plan(
                &[
                    dir("a"),
                    file("a/b", "", 1),
                    file("c", "", 1),
                    file("e", "", 1),
                    file("g", "", 1),
                ],
                &[
                    file("a", "x", 1),
                    dir("e"),
                    dir("g"),
                    dir("g/d"),
                    file("g/d/h", "", 1),
                    file("g/h", "", 1),
                    file("z", "", 1),
                ],
                keep,
            );
            assert_eq!(made.blocked, [rel("a"), rel("e"), rel("g")]);
            assert!(made.kept.is_empty(), "only a file in the place of a file is kept");
            assert_eq!(names(&made.send), ["c"]);
            let extra: &[RelPath] = match extra {
                Extra::Keep => &[],
                Extra::Delete => &[rel("z")],
            };
            assert_eq!(made.delete, extra);
        }
    }

    #[test]
    fn a_file_replaces_a_folder_after_its_removal() {
        let (source, target) = ([file("a", "x", 1)], [dir("a"), file("a/b", "", 1)]);
        let delete = SyncOptions {
            extra: Extra::Delete,
            ..SyncOptions::default()
        };
        let made = plan(&source, &target, delete);
        assert_eq!(made.delete, [rel("a")]);
        assert_eq!(names(&made.send), ["a"]);
    }

    #[test]
    fn a_node_of_another_kind_is_kept_unless_deleting_is_allowed() {
        let made = plan(
            &[
                file("a", "x", 1),
                file("b", "y", 1),
                file("c", "", 1),
                dir("d"),
                file("d/e", "", 1),
            ],
            &[dir("a"), file("a/b", "", 1), dir("c"), file("d", "", 1)],
            SyncOptions::default(),
        );
        assert!(made.delete.is_empty());
        assert_eq!(made.blocked, [rel("a"), rel("c"), rel("d")]);
        assert_eq!(names(&made.send), ["b"], "the rest goes");
    }

    #[test]
    fn empty_folders_are_sent_once() {
        let source = [dir("a"), dir("a/empty")];
        assert_eq!(
            names(&plan(&source, &[], SyncOptions::default()).send),
            ["a", "a/empty"]
        );
        assert!(is_nothing(&plan(&source, &source, SyncOptions::default())));
    }

    #[test]
    fn whole_seconds_are_the_same_time() {
        let mut precise = file("a", "x", 7);
        precise.mtime = Mtime::new(7, 123);
        assert!(is_nothing(&plan(
            &[precise],
            &[file("a", "x", 7)],
            SyncOptions::default()
        )));
    }
}
