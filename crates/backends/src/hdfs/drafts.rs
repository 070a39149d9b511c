//! Drafts that this process is writing. A sweep leaves them alone, however old they look.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The paths of all drafts in use.
#[derive(Default)]
pub(super) struct Drafts(Arc<Mutex<HashSet<String>>>);

/// One draft in use, until this is dropped.
pub(super) struct Draft {
    pub(super) path: String,
    all: Arc<Mutex<HashSet<String>>>,
}

impl Drafts {
    pub(super) fn hold(&self, path: String) -> Draft {
        lock(&self.0).insert(path.clone());
        Draft {
            path,
            all: Arc::clone(&self.0),
        }
    }

    pub(super) fn is_held(&self, path: &str) -> bool {
        lock(&self.0).contains(path)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        lock(&self.all).remove(&self.path);
    }
}

fn lock(all: &Mutex<HashSet<String>>) -> MutexGuard<'_, HashSet<String>> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_is_held_until_it_is_dropped() {
        let drafts = Drafts::default();
        let draft = drafts.hold("/home/ann/.pfs-staging/1".to_owned());
        assert!(drafts.is_held(&draft.path));
        assert!(!drafts.is_held("/home/ann/.pfs-staging/2"));
        let path = draft.path.clone();
        drop(draft);
        assert!(!drafts.is_held(&path));
    }
}
