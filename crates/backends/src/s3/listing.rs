//! Lists keys page by page. The time limit applies to each page, not to the whole listing.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path as Key;
use object_store::{ListResult, ObjectMeta};
use paddlecloud_pfs::{Place, RelPath, RootError};

use super::S3Store;
use super::keys::MARKER;

/// One object below a folder.
pub(super) struct Below {
    pub(super) path: RelPath,
    pub(super) object: ObjectMeta,
    /// Whether it is the marker of a folder.
    pub(super) is_marker: bool,
}

/// The depth of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Deeper entries are represented by their folder.
    Here,
    All,
}

/// The direct children of a folder.
#[derive(Default)]
pub(super) struct Inside {
    pub(super) folders: BTreeSet<Key>,
    pub(super) objects: Vec<ObjectMeta>,
}

impl S3Store {
    /// Whether any key is below a path.
    pub(super) fn is_folder(&self, place: &Place) -> Result<bool, RootError> {
        let mut found = false;
        self.pages(place, Reach::All, Some(1), |page| {
            found = !page.objects.is_empty();
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// Whether a folder contains nothing but its marker; `None` if it is not a folder.
    pub(super) fn is_empty_folder(&self, place: &Place) -> Result<Option<bool>, RootError> {
        let marker = self.0.keys.marker(place)?;
        let (mut exists, mut is_empty) = (false, true);
        self.pages(place, Reach::All, Some(2), |page| {
            exists |= !page.objects.is_empty();
            is_empty &= page.objects.iter().all(|object| object.location == marker);
            match is_empty {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        Ok(exists.then_some(is_empty))
    }

    /// The direct children of a folder; empty if it does not exist.
    pub(super) fn inside(&self, place: &Place) -> Result<Inside, RootError> {
        let mut inside = Inside::default();
        self.pages(place, Reach::Here, None, |page| {
            inside.folders.extend(page.common_prefixes);
            inside.objects.extend(page.objects);
            ControlFlow::Continue(())
        })?;
        Ok(inside)
    }

    /// Everything below a path.
    pub(super) fn below(&self, place: &Place) -> Result<Vec<Below>, RootError> {
        let mut below = Vec::new();
        self.pages(place, Reach::All, None, |page| {
            // A key that is not a valid path was created by another program and cannot be shown.
            below.extend(page.objects.into_iter().filter_map(|object| {
                let path = self.0.keys.path_of(&place.space, &object.location)?;
                Some(Below {
                    is_marker: path.name() == Some(MARKER.as_bytes()),
                    path,
                    object,
                })
            }));
            ControlFlow::Continue(())
        })?;
        Ok(below)
    }

    /// Passes on one page after another until the callback stops. A page has at most `most` keys, or as many as the service
    /// chooses.
    pub(super) fn pages(
        &self,
        place: &Place,
        reach: Reach,
        most: Option<usize>,
        mut take: impl FnMut(ListResult) -> ControlFlow<()>,
    ) -> Result<(), RootError> {
        let folder = self.0.keys.of(place)?;
        let prefix = (!folder.as_ref().is_empty()).then(|| format!("{folder}/"));
        let mut page_token = None;
        loop {
            let options = PaginatedListOptions {
                delimiter: (reach == Reach::Here).then_some("/".into()),
                max_keys: most.or(self.0.page),
                page_token: page_token.take(),
                ..PaginatedListOptions::default()
            };
            let prefix = prefix.clone();
            let page = self.ask("list", &place.path, move |client| async move {
                client.list_paginated(prefix.as_deref(), options).await
            })?;
            page_token = page.page_token;
            if take(page.result).is_break() || page_token.is_none() {
                return Ok(());
            }
        }
    }
}
