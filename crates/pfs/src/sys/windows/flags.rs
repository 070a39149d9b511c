//! Flags and arguments of the calls.

use std::ops::BitOr;

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OFlags(u32);

impl OFlags {
    pub const RDONLY: Self = Self(0);
    pub const WRONLY: Self = Self(1);
    pub const RDWR: Self = Self(1 << 1);
    /// See `append`.
    pub const APPEND: Self = Self(0);
    pub const CREATE: Self = Self(1 << 3);
    pub const EXCL: Self = Self(1 << 4);
    pub const DIRECTORY: Self = Self(1 << 5);
    pub const NOFOLLOW: Self = Self(1 << 6);
    /// Handles are never inherited here, and nothing that is opened blocks.
    pub const CLOEXEC: Self = Self(0);
    pub const NONBLOCK: Self = Self(0);

    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub const fn writes(self) -> bool {
        self.0 & (Self::WRONLY.0 | Self::RDWR.0) != 0
    }
}

impl BitOr for OFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

/// Permissions of a new file. On Windows it inherits those of its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mode;

impl Mode {
    pub const fn empty() -> Self {
        Self
    }

    pub const fn from_raw_mode(_: u32) -> Self {
        Self
    }
}

/// How to treat a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AtFlags(u8);

impl AtFlags {
    pub const REMOVEDIR: Self = Self(1);
    pub const SYMLINK_NOFOLLOW: Self = Self(2);

    pub const fn empty() -> Self {
        Self(0)
    }
}

/// The check of `accessat`: only existence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access;

impl Access {
    pub const EXISTS: Self = Self;
}

/// What a rename does with an existing target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenameFlags {
    Noreplace,
    Exchange,
}

impl RenameFlags {
    pub const NOREPLACE: Self = Self::Noreplace;
    pub const EXCHANGE: Self = Self::Exchange;
}

/// A lock operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "one set of words for all systems")]
pub(crate) enum FlockOperation {
    LockShared,
    LockExclusive,
    Unlock,
    NonBlockingLockShared,
    NonBlockingLockExclusive,
}

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timespec {
    pub tv_sec: i64,
    pub tv_nsec: i64,
}

/// Leaves this time unchanged.
pub(crate) const UTIME_OMIT: i64 = -1;

/// The times to set; the access time is never set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timestamps {
    pub last_access: Timespec,
    pub last_modification: Timespec,
}
