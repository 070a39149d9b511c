//! Partly received packages: lists and discards them.
//!
//! They are in the staging folder of the home, named by their package, and expire three days after their last change, as
//! unfinished uploads of files do.

use paddlecloud_core::names::UserName;
use paddlecloud_pfs::pack::StagedTree;
use paddlecloud_pfs::package::PackageId;
use paddlecloud_pfs::staging::{UnfinishedPackage, unfinished_packages};

use crate::homes::{Storage, StorageError};

impl Storage {
    /// Partly received packages, including those in flight.
    pub fn unfinished_packages(&self, user: &UserName) -> Result<Vec<UnfinishedPackage>, StorageError> {
        Ok(unfinished_packages(&*self.home(user)?)?)
    }

    /// Discards the staged tree of a package; [`paddlecloud_pfs::RootError::Busy`] while it is being sent.
    pub fn give_up_unfinished(&self, user: &UserName, id: PackageId) -> Result<(), StorageError> {
        Ok(StagedTree::keep(&*self.home(user)?, id)?.discard()?)
    }
}
