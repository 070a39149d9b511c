//! Who a caller is and what they may do: accounts, logins, tokens, certificates, secrets, and limits on requests.
//!
//! It decides and returns values or errors of its own. It knows no status of HTTP and no key of the configuration, runs no use
//! case and opens no listening socket. `paddlecloud_store` keeps what must survive; homes and files are above.

mod accounts;
pub mod auth;
pub mod authority;
#[doc(hidden)]
pub mod certificate_request;
pub mod connections;
pub mod key_source;
pub mod oidc;
pub mod rates;
pub mod refusals;
pub mod secrets;
pub mod tls;
pub mod users;

pub use accounts::{AccountError, AccountSettings, Accounts, ForeignHome, OWN_FOLDERS, claim_home};
