//! Packages: which files of a folder belong to one (`scan`), and how it is identified (`Manifest`).
//!
//! The bytes are sent as a pack stream; see `pack`.

mod credentials;
mod filter;
mod hashing;
mod manifest;
mod rules;
mod scan;

pub use self::filter::{Filter, FilterError, Sense};
pub use self::manifest::{Manifest, ManifestError, PackageId};
pub use self::rules::BuiltIn;
pub use self::scan::{Scan, ScanError, ScanOptions, scan};

#[cfg(test)]
mod tests;
