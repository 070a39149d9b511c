//! Win32 error codes, with equivalent ones merged.

use std::io;

/// A Win32 error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(i32);

impl Errno {
    pub const NOENT: Self = Self(2);
    pub const ACCESS: Self = Self(5);
    pub const XDEV: Self = Self(17);
    /// A sharing violation: another process has the file open.
    pub const BUSY: Self = Self(32);
    pub const WOULDBLOCK: Self = Self(33);
    pub const OPNOTSUPP: Self = Self(50);
    pub const EXIST: Self = Self(183);
    pub const INVAL: Self = Self(87);
    pub const NOSPC: Self = Self(112);
    pub const NOSYS: Self = Self(120);
    pub const ILSEQ: Self = Self(123);
    pub const NOTEMPTY: Self = Self(145);
    pub const NAMETOOLONG: Self = Self(206);
    pub const NOTDIR: Self = Self(267);
    pub const ISDIR: Self = Self(336);
    pub const LOOP: Self = Self(681);
    pub const INTR: Self = Self(995);
    pub const DQUOT: Self = Self(1295);
    pub const NXIO: Self = Self(1920);
    /// The file is owned by the system.
    pub const PERM: Self = Self(1307);

    /// Maps codes that callers treat alike to one.
    pub fn from_raw_os_error(code: i32) -> Self {
        match code {
            // Path, drive or network share not found.
            3 | 15 | 53 | 67 => Self::NOENT,
            80 => Self::EXIST,
            39 => Self::NOSPC,
            // A write-protected medium; a pending delete.
            19 | 303 => Self::ACCESS,
            161 => Self::ILSEQ,
            111 => Self::NAMETOOLONG,
            other => Self(other),
        }
    }

    pub fn of(error: &io::Error) -> Self {
        match (error.raw_os_error(), error.kind()) {
            (Some(code), _) => Self::from_raw_os_error(code),
            (None, io::ErrorKind::NotFound) => Self::NOENT,
            (None, io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename) => Self::ILSEQ,
            (None, io::ErrorKind::WouldBlock) => Self::WOULDBLOCK,
            (None, _) => Self::INVAL,
        }
    }
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        Self::of(&error)
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        io::Error::from_raw_os_error(errno.0)
    }
}
