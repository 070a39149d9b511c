//! Converts HDFS errors to the errors of the port.

use std::io;

use hdfs_native::HdfsError;
use paddlecloud_pfs::{RelPath, RootError};

/// Converts an error of the client or the cluster to one that the caller can act on.
pub(super) fn storage_error(action: &'static str, path: &RelPath, error: HdfsError) -> RootError {
    let at = path.clone();
    match &error {
        HdfsError::FileNotFound(_) | HdfsError::BlocksNotFound(_) => RootError::NotFound(at),
        HdfsError::AlreadyExists(_) => RootError::Exists(at),
        HdfsError::IsADirectoryError(_) => RootError::IsAFolder(at),
        HdfsError::IOError(_) => RootError::Unreachable {
            path: at,
            source: io::Error::other(error),
        },
        HdfsError::RPCError(class, text) | HdfsError::FatalRPCError(class, text) => {
            match by_class(class, text, path) {
                Some(found) => found,
                None => other(action, at, error),
            }
        }
        _ => other(action, at, error),
    }
}

fn other(action: &'static str, path: RelPath, error: HdfsError) -> RootError {
    RootError::Io {
        action,
        path,
        source: io::Error::other(error),
    }
}

/// The name node identifies errors by the names of its exceptions.
fn by_class(class: &str, text: &str, path: &RelPath) -> Option<RootError> {
    let at = path.clone();
    let class = class.rsplit(['.', '$']).next().unwrap_or(class);
    Some(match class {
        "FileNotFoundException" if text.contains("Parent") && text.contains("is not a directory") => {
            RootError::NotAFolder(at)
        }
        "FileNotFoundException" => RootError::NotFound(at),
        "FileAlreadyExistsException" => RootError::Exists(at),
        "ParentNotDirectoryException" => RootError::NotAFolder(at),
        "PathIsNotEmptyDirectoryException" => RootError::NotEmpty(at),
        "AccessControlException" => RootError::Denied(at),
        "DSQuotaExceededException" | "NSQuotaExceededException" | "QuotaByStorageTypeExceededException" => {
            RootError::FsQuota(at)
        }
        "PathComponentTooLongException" | "InvalidPathException" => RootError::Unsupported {
            path: at,
            reason: first_line(text),
        },
        "MaxDirectoryItemsExceededException" => RootError::Unsupported {
            path: at,
            reason: first_line(text),
        },
        "StandbyException" | "SafeModeException" | "RetriableException" => RootError::Unreachable {
            path: at,
            source: io::Error::other(first_line(text)),
        },
        _ => return None,
    })
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_become_actionable_errors() {
        let path: RelPath = "a".parse().unwrap();
        let error_of = |class: &str, text: &str| {
            let error = HdfsError::RPCError(class.to_owned(), text.to_owned());
            storage_error("write", &path, error)
        };
        assert!(matches!(
            error_of("org.apache.hadoop.fs.FileAlreadyExistsException", ""),
            RootError::Exists(_)
        ));
        assert!(matches!(
            error_of("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException", ""),
            RootError::FsQuota(_)
        ));
        let long = error_of(
            "org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException",
            "too long\n\tat org",
        );
        assert_eq!(long.to_string(), "`a` cannot be kept in this storage: too long");
        assert!(matches!(
            error_of("java.lang.Surprise", "x"),
            RootError::Io { action: "write", .. }
        ));
    }
}
