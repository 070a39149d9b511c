//! Converts paths to keys and back.

use object_store::path::Path as Key;
use paddlecloud_pfs::{Place, RelPath, RootError, Space};

/// The marker object of a folder.
pub(super) const MARKER: &str = ".pfs-folder";

/// Room for the name of a home's owner; longer names leave less for paths.
const OWNER: usize = 32;

/// Keys below one prefix.
pub(super) struct Keys {
    prefix: String,
    longest: usize,
}

impl Keys {
    pub(super) fn new(prefix: &str, longest: usize) -> Keys {
        Keys {
            prefix: prefix.to_owned(),
            longest,
        }
    }

    /// The prefix of all keys.
    pub(super) fn top(&self) -> Key {
        Key::from(self.prefix.as_str())
    }

    /// Bytes available for a path inside a space.
    pub(super) fn room(&self) -> usize {
        let taken = self.prefix.len() + "/home//".len() + OWNER + "/".len() + MARKER.len();
        self.longest.saturating_sub(taken)
    }

    /// The key of a path that is about to be created; a folder's marker must fit below it.
    pub(super) fn new_of(&self, place: &Place) -> Result<Key, RootError> {
        let key = self.of(place)?;
        match key.as_ref().len() + "/".len() + MARKER.len() <= self.longest {
            true => Ok(key),
            false => Err(RootError::Unsupported {
                path: place.path.clone(),
                reason: format!("keys have at most {} bytes here", self.longest),
            }),
        }
    }

    /// The key of a path. A path that is not a valid key cannot exist.
    pub(super) fn of(&self, place: &Place) -> Result<Key, RootError> {
        let not_found = || RootError::NotFound(place.path.clone());
        let inside = std::str::from_utf8(place.path.as_bytes()).map_err(|_| not_found())?;
        let text = [self.prefix.as_str(), &place.space.folder().to_string(), inside];
        let text: Vec<&str> = text.into_iter().filter(|part| !part.is_empty()).collect();
        Key::parse(text.join("/")).map_err(|_| not_found())
    }

    /// The key of a folder's marker object.
    pub(super) fn marker(&self, place: &Place) -> Result<Key, RootError> {
        let marker = Place {
            space: place.space.clone(),
            path: place.path.child(MARKER.as_bytes())?,
        };
        self.of(&marker)
    }

    /// The path of a key in a space.
    pub(super) fn path_of(&self, space: &Space, key: &Key) -> Option<RelPath> {
        let rest = match self.prefix.as_str() {
            "" => key.as_ref(),
            prefix => key.as_ref().strip_prefix(prefix)?.strip_prefix('/')?,
        };
        let inside = rest
            .strip_prefix(&space.folder().to_string())?
            .strip_prefix('/')?;
        RelPath::from_bytes(inside.as_bytes())
            .ok()
            .filter(|path| !path.is_root())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_paths_belong_together() {
        let home = Space::Home("ann".parse().unwrap());
        for prefix in ["", "a/b"] {
            let keys = Keys::new(prefix, 1024);
            for path in ["x", "d/été 数据/%2e%2e", "a b", "100%"] {
                let place = Place {
                    space: home.clone(),
                    path: path.parse().unwrap(),
                };
                let key = keys.of(&place).unwrap();
                assert_eq!(keys.path_of(&home, &key).as_ref(), Some(&place.path), "{key}");
                assert_eq!(keys.path_of(&Space::Public, &key), None);
            }
        }
        let keys = Keys::new("p", 1024);
        let place = Place {
            space: home,
            path: RelPath::root(),
        };
        assert_eq!(keys.of(&place).unwrap().as_ref(), "p/home/ann");
        assert_eq!(keys.marker(&place).unwrap().as_ref(), "p/home/ann/.pfs-folder");
    }
}
