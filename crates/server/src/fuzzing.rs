//! Entry points for the fuzzer (`fuzz/targets.rs`) to the parsers of untrusted bytes that are private to this crate.
//!
//! Not for other use: nothing here has an effect.

use std::path::Path;

use paddlecloud_accounts::auth;
use paddlecloud_accounts::certificate_request::RequestedKey;
use paddlecloud_accounts::oidc;
use paddlecloud_files::ByteRange;

use crate::config::Config;
use crate::{http, logs};

/// A certificate request, as `POST /api/v1/admin/certificates` gets it.
pub fn certificate_request(bytes: &[u8]) {
    let _ = RequestedKey::from_pem(&String::from_utf8_lossy(bytes));
}

/// A client's certificate.
pub fn certificate(bytes: &[u8]) {
    let _ = auth::ClientCertificate::read(bytes, false);
}

/// The configuration file of the server. Its files do not exist.
pub fn configuration(bytes: &[u8]) {
    let _ = Config::parse(&String::from_utf8_lossy(bytes), Path::new("/nowhere/server.yaml"));
}

/// The header `Authorization`.
pub fn authorization(bytes: &[u8]) {
    auth::parse_header(bytes);
}

/// An ID token of a login provider with these keys.
pub fn id_token(bytes: &[u8], keys: &str) {
    oidc::parse_id_token(bytes, keys);
}

/// A reply of a login provider: its description, its keys, a device code, tokens or claims.
pub fn provider_reply(bytes: &[u8], token: &str) {
    oidc::parse_every_reply(bytes, token);
}

/// The header `Range`, for files of several sizes.
pub fn range_header(bytes: &[u8]) {
    let range = ByteRange::parse(&String::from_utf8_lossy(bytes));
    for size in [0, 1, 1000, u64::MAX] {
        if let Some((offset, length)) = range.within(size) {
            assert!(offset.checked_add(length).is_some_and(|end| end <= size));
        }
    }
}

/// The JSON body of every request.
pub fn json_bodies(bytes: &[u8]) {
    if let Some(request) = http::parse_every_body(bytes) {
        let _ = request.to_spec(None);
        let _ = request.package_path("/pfs/dc1/home/ada");
    }
}

/// The position in logs from which a client resumes.
pub fn log_cursors(bytes: &[u8]) {
    logs::parse_position(&String::from_utf8_lossy(bytes));
}

/// A backup, up to the point where it would change the database.
pub fn backup(bytes: &[u8], path: &Path) {
    if std::fs::write(path, bytes).is_ok() {
        let _ = paddlecloud_store::check_backup(path);
    }
}
