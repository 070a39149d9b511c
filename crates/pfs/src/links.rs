//! Finds symbolic links that lead out of a tree, by resolving them as the kernel would, without touching the disk.
//!
//! Text alone is not enough: `up -> sub/..` is harmless unless `sub` is itself a link.

use std::collections::{HashMap, VecDeque};

use crate::entry::{Entry, LinkTarget, Node};
use crate::relpath::RelPath;

/// The links of one tree.
#[derive(Debug, Default)]
pub(crate) struct Links {
    targets: HashMap<RelPath, LinkTarget>,
    bytes: u64,
}

/// A link whose target is outside the tree, or could not be shown to be inside.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the symbolic link `{path}` {}", why(.target, *.tangled))]
pub struct LinkOutside {
    pub path: RelPath,
    pub target: LinkTarget,
    /// Whether resolving was given up, because the links of the tree lead through each other too often.
    pub tangled: bool,
}

fn why(target: &LinkTarget, tangled: bool) -> String {
    match tangled {
        true => format!("to `{target}` is part of a chain of too many links"),
        false => format!("points outside the folder, to `{target}`"),
    }
}

/// All links of a tree that lead out of it, directly or through another link, in the tree's order.
pub fn links_outside(entries: &[Entry]) -> Vec<LinkOutside> {
    Links::of(entries).outside()
}

impl Links {
    /// More hops than the kernel follows (40). A longer chain cannot be opened, so it does not leave the tree.
    const MAX_HOPS: usize = 64;

    /// Limit on the names resolved for all links of a tree together: enough for a hundred thousand ordinary links, and a few
    /// seconds of work.
    const MAX_STEPS: usize = 4_000_000;

    /// Names allowed per link, on average, in a larger tree.
    const MEAN_STEPS: usize = 64;

    /// The links among some entries.
    pub fn of(entries: &[Entry]) -> Self {
        let mut links = Self::default();
        for entry in entries {
            if let Node::Symlink { target } = &entry.node {
                links.insert(entry.path.clone(), target.clone());
            }
        }
        links
    }

    pub fn insert(&mut self, path: RelPath, target: LinkTarget) {
        self.bytes += (path.as_bytes().len() + target.as_bytes().len()) as u64;
        self.targets.insert(path, target);
    }

    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Total bytes of all paths and targets.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fails with the first link (in path order) that leaves the tree. Dangling links are fine.
    pub fn check(&self) -> Result<(), LinkOutside> {
        self.outside().into_iter().next().map_or(Ok(()), Err)
    }

    /// All links that leave the tree, in path order.
    fn outside(&self) -> Vec<LinkOutside> {
        self.outside_in(Self::MAX_STEPS.max(self.len().saturating_mul(Self::MEAN_STEPS)))
    }

    fn outside_in(&self, mut steps: usize) -> Vec<LinkOutside> {
        let mut paths: Vec<&RelPath> = self.targets.keys().collect();
        paths.sort();
        let mut outside = Vec::new();
        for path in paths {
            if self.leaves(path, &mut steps) {
                outside.push(LinkOutside {
                    path: path.clone(),
                    target: self.targets[path].clone(),
                    tangled: steps == 0,
                });
            }
        }
        outside
    }

    /// Whether a link leaves the tree. If the steps run out, the answer is yes.
    fn leaves(&self, link: &RelPath, steps: &mut usize) -> bool {
        let mut here = RelPath::root();
        let mut ahead: VecDeque<&[u8]> = link.parts().collect();
        let mut hops = 0;
        while let Some(part) = ahead.pop_front() {
            if *steps == 0 {
                return true;
            }
            *steps -= 1;
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
            if let Some(target) = self.targets.get(&here) {
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
    fn links_leading_outside_are_reported() {
        assert_eq!(outside(&[("a", "..")]).as_deref(), Some("a"));
        assert_eq!(outside(&[("a", "/etc/passwd")]).as_deref(), Some("a"));
        assert_eq!(outside(&[("d/a", "../../x")]).as_deref(), Some("d/a"));
    }

    #[test]
    fn a_link_leading_outside_through_another_link_is_found() {
        assert_eq!(
            outside(&[("s/t/u", "../.."), ("l", "s/t/u/..")]).as_deref(),
            Some("l")
        );
        assert_eq!(outside(&[("s/t/u", "../../x"), ("l", "s/t/u/..")]), None);
    }

    #[test]
    fn all_links_leading_outside_are_reported_in_order() {
        let entry = |(path, target): &(&str, &str)| Entry {
            path: path.parse().unwrap(),
            node: match target.is_empty() {
                true => Node::Dir,
                false => Node::Symlink {
                    target: target.parse().unwrap(),
                },
            },
            mtime: Default::default(),
        };
        let tree = [
            ("a", "z/y"),
            ("b", "d"),
            ("d", ""),
            ("d/e", "../../x"),
            ("f", "/etc/passwd"),
            ("z", ".."),
        ];
        let entries: Vec<Entry> = tree.iter().map(entry).collect();
        let outside = links_outside(&entries);
        let reported: Vec<String> = outside.iter().map(|link| link.path.to_string()).collect();
        assert_eq!(reported, ["a", "d/e", "f", "z"]);
        assert!(outside.iter().all(|link| !link.tangled));
    }

    #[test]
    fn long_chains_of_links_are_reported_as_tangled() {
        let mut all = Links::default();
        for number in 0..10 {
            let target = format!("{}l{}", "./".repeat(50), number + 1);
            all.insert(format!("l{number}").parse().unwrap(), target.parse().unwrap());
        }
        assert_eq!(all.outside_in(10_000), []);
        assert!(all.outside_in(1000).iter().all(|link| link.tangled));
    }

    #[test]
    fn link_loops_terminate() {
        assert_eq!(outside(&[("a", "b"), ("b", "a/x/y")]), None);
    }
}
