//! The client for one bucket, and the conversion of its errors.

use std::io;
use std::time::Duration;

use object_store::RetryConfig;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use paddlecloud_pfs::{RelPath, RootError};

use super::http;
use crate::S3Settings;

/// Creates the client without sending a request.
pub(super) fn client(settings: &S3Settings, retries: usize) -> object_store::Result<AmazonS3> {
    let retry = RetryConfig {
        max_retries: retries,
        retry_timeout: Duration::from_secs(60),
        ..RetryConfig::default()
    };
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(&settings.bucket)
        .with_region(&settings.region)
        .with_retry(retry)
        .with_http_connector(http::Connector);
    if let Some(endpoint) = &settings.endpoint {
        builder = builder
            .with_endpoint(endpoint)
            .with_allow_http(endpoint.starts_with("http://"));
    }
    if let (Some(key), Some(secret)) = (&settings.access_key, &settings.secret_key) {
        builder = builder
            .with_access_key_id(key)
            .with_secret_access_key(secret.reveal());
    }
    builder.build()
}

/// Converts an error of the service to one of the port.
pub(super) fn storage_error(action: &'static str, path: &RelPath, error: object_store::Error) -> RootError {
    let at = path.clone();
    match error {
        object_store::Error::NotFound { .. } => RootError::NotFound(at),
        object_store::Error::AlreadyExists { .. } => RootError::Exists(at),
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
            RootError::Denied(at)
        }
        object_store::Error::Precondition { .. } => RootError::Changing(at),
        error @ object_store::Error::Generic { .. } => RootError::Unreachable {
            path: at,
            source: io::Error::other(error),
        },
        error => RootError::Io {
            action,
            path: at,
            source: io::Error::other(error),
        },
    }
}
