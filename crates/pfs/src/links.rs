//! Finds symbolic links that lead out of a tree, by walking them as the kernel would, on paper.
//!
//! Text alone is not enough: `up -> sub/..` is harmless unless `sub` is itself a link.

use std::collections::{HashMap, VecDeque};

use crate::entry::LinkTarget;
use crate::relpath::RelPath;

/// The links of one tree.
#[derive(Debug, Default)]
pub(crate) struct Links(HashMap<RelPath, LinkTarget>);

/// A link whose target lies outside the tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the symbolic link `{path}` leads out of the folder, to `{target}`")]
pub struct LinkOutside {
    pub path: RelPath,
    pub target: LinkTarget,
}

impl Links {
    /// More hops than the kernel follows (40): such a link opens nothing, so it leads nowhere.
    const MAX_HOPS: usize = 64;

    pub fn insert(&mut self, path: RelPath, target: LinkTarget) {
        self.0.insert(path, target);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Fails with the first link (in path order) that leaves the tree; links to nowhere are fine.
    pub fn check(&self) -> Result<(), LinkOutside> {
        let outside = self
            .0
            .iter()
            .filter(|(path, _)| self.leaves(path))
            .min_by_key(|(path, _)| *path);
        match outside {
            Some((path, target)) => Err(LinkOutside {
                path: path.clone(),
                target: target.clone(),
            }),
            None => Ok(()),
        }
    }

    fn leaves(&self, link: &RelPath) -> bool {
        let mut here = RelPath::root();
        let mut ahead: VecDeque<&[u8]> = link.parts().collect();
        let mut hops = 0;
        while let Some(part) = ahead.pop_front() {
            match part {
                b"" | b"." => continue,
                b".." => match here.parent() {
                    Some(parent) => here = parent,
                    None => return true,
                },
                name => match here.child(name) {
                    Ok(next) => here = next,
                    Err(_) => return false,
                },
            }
            if let Some(target) = self.0.get(&here) {
                hops += 1;
                if target.as_bytes().starts_with(b"/") {
                    return true;
                }
                if hops > Self::MAX_HOPS {
                    return false;
                }
                here = here.parent().expect("a link has a name, so it has a parent");
                for part in target.as_bytes().rsplit(|byte| *byte == b'/') {
                    ahead.push_front(part);
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outside(links: &[(&str, &str)]) -> Option<String> {
        let mut all = Links::default();
        for (path, target) in links {
            all.insert(path.parse().unwrap(), target.parse().unwrap());
        }
        all.check().err().map(|found| found.path.to_string())
    }

    #[test]
    fn links_that_stay_inside_are_fine() {
        assert_eq!(
            outside(&[
                ("a", "b"),
                ("d/e", "../a"),
                ("x/y/z", "../../w/./q"),
                ("self", "self")
            ]),
            None
        );
        assert_eq!(outside(&[("here", "."), ("d/up", "..")]), None);
    }

    #[test]
    fn links_that_leave_are_named() {
        assert_eq!(outside(&[("a", "..")]).as_deref(), Some("a"));
        assert_eq!(outside(&[("a", "/etc/passwd")]).as_deref(), Some("a"));
        assert_eq!(outside(&[("d/a", "../../x")]).as_deref(), Some("d/a"));
    }

    #[test]
    fn a_link_that_leaves_only_through_another_link_is_found() {
        assert_eq!(
            outside(&[("s/t/u", "../.."), ("l", "s/t/u/..")]).as_deref(),
            Some("l")
        );
        assert_eq!(outside(&[("s/t/u", "../../x"), ("l", "s/t/u/..")]), None);
    }

    #[test]
    fn loops_end() {
        assert_eq!(outside(&[("a", "b"), ("b", "a/x/y")]), None);
    }
}
