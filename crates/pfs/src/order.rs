//! The order of the entries of a tree, and what that order proves.
//!
//! Paths strictly ascend and every folder precedes its contents. So a reader that remembers only the current folders detects
//! duplicates, orphans and files below a link.

use crate::entry::Entry;
use crate::relpath::RelPath;

/// Checks the order of entries one by one.
#[derive(Debug, Default)]
pub(crate) struct TreeOrder {
    last: Option<RelPath>,
    folders: Vec<RelPath>,
}

/// Why an entry is out of order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    #[error("the tree's own folder is listed as an entry")]
    Root,
    #[error("`{0}` is listed twice")]
    Duplicate(RelPath),
    #[error("`{path}` is listed after `{after}`")]
    Unsorted { path: RelPath, after: RelPath },
    #[error("the parent of `{0}` is not a listed folder")]
    Orphan(RelPath),
}

impl TreeOrder {
    /// Accepts the next entry, or returns what is wrong with it.
    pub fn accept(&mut self, entry: &Entry) -> Result<(), OrderError> {
        let Some(parent) = entry.path.parent() else {
            return Err(OrderError::Root);
        };
        self.check_ascends(&entry.path)?;
        while self
            .folders
            .last()
            .is_some_and(|open| !entry.path.is_within(open))
        {
            self.folders.pop();
        }
        if !parent.is_root() && self.folders.last() != Some(&parent) {
            return Err(OrderError::Orphan(entry.path.clone()));
        }
        if entry.is_dir() {
            self.folders.push(entry.path.clone());
        }
        self.last = Some(entry.path.clone());
        Ok(())
    }

    fn check_ascends(&self, path: &RelPath) -> Result<(), OrderError> {
        match &self.last {
            Some(last) if path == last => Err(OrderError::Duplicate(path.clone())),
            Some(last) if path < last => Err(OrderError::Unsorted {
                path: path.clone(),
                after: last.clone(),
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{LinkTarget, Mtime, Node};

    fn accept_all(entries: &[(&str, Node)]) -> Result<(), OrderError> {
        let mut order = TreeOrder::default();
        entries.iter().try_for_each(|(path, node)| {
            let path = path.parse().unwrap();
            order.accept(&Entry {
                path,
                node: node.clone(),
                mtime: Mtime::default(),
            })
        })
    }

    fn file() -> Node {
        Node::File {
            size: 0,
            executable: false,
            digest: None,
        }
    }

    #[test]
    fn a_tree_in_order_is_accepted() {
        let tree = [
            ("a", Node::Dir),
            ("a/b", Node::Dir),
            ("a/b/c", file()),
            ("a/d", file()),
            ("a.b", file()),
        ];
        assert_eq!(accept_all(&tree), Ok(()));
    }

    #[test]
    fn duplicates_orphans_and_wrong_order_are_refused() {
        assert!(matches!(
            accept_all(&[("a", file()), ("a", file())]),
            Err(OrderError::Duplicate(_))
        ));
        assert!(matches!(
            accept_all(&[("b", file()), ("a", file())]),
            Err(OrderError::Unsorted { .. })
        ));
        assert!(matches!(
            accept_all(&[("a/b", file())]),
            Err(OrderError::Orphan(_))
        ));
        assert!(matches!(
            accept_all(&[("a", Node::Dir), ("a/b/c", file())]),
            Err(OrderError::Orphan(_))
        ));
    }

    #[test]
    fn nothing_lies_below_a_link_or_a_file() {
        let link = Node::Symlink {
            target: LinkTarget::from_bytes(b"..").unwrap(),
        };
        assert!(matches!(
            accept_all(&[("a", link), ("a/b", file())]),
            Err(OrderError::Orphan(_))
        ));
        assert!(matches!(
            accept_all(&[("a", file()), ("a/b", file())]),
            Err(OrderError::Orphan(_))
        ));
    }
}
