//! A folder on its way to the cluster: what belongs to it (`scan`) and how it is named (`Manifest`).
//!
//! The bytes travel as a pack stream; see `pack`.

mod filter;
mod hashing;
mod manifest;
mod rules;
mod scan;

pub use self::filter::{Filter, FilterError, Sense};
pub use self::manifest::{Manifest, ManifestError, PackageId};
pub use self::rules::BuiltIn;
pub use self::scan::{LeftOut, Names, Reading, Scan, ScanError, ScanOptions, scan, scan_root};

#[cfg(test)]
mod tests;
