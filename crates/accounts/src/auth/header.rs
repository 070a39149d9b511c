//! Parses `Authorization` headers: `Token …`, `Bearer …`, `Basic …`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The credentials of a request.
#[derive(PartialEq, Eq)]
pub(super) enum Proof {
    Token(String),
    Basic { user: String, password: String },
}

impl Proof {
    /// Returns `None` for anything else. The header's content is never repeated in an error.
    pub fn parse(header: &[u8]) -> Option<Proof> {
        let text = std::str::from_utf8(header).ok()?.trim();
        let (scheme, rest) = text.split_once(' ')?;
        let rest = rest.trim();
        match scheme.to_ascii_lowercase().as_str() {
            "token" | "bearer" if !rest.is_empty() => Some(Proof::Token(rest.to_owned())),
            "basic" => {
                let login = String::from_utf8(STANDARD.decode(rest).ok()?).ok()?;
                let (user, password) = login.split_once(':')?;
                Some(Proof::Basic {
                    user: user.to_owned(),
                    password: password.to_owned(),
                })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_schemes_are_read_in_any_case() {
        assert!(Proof::parse(b"Token abc") == Some(Proof::Token("abc".into())));
        assert!(Proof::parse(b"bearer  abc ") == Some(Proof::Token("abc".into())));
        let login = Proof::Basic {
            user: "me".into(),
            password: "a:b".into(),
        };
        assert!(Proof::parse(b"Basic bWU6YTpi") == Some(login));
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [
            &b"Token"[..],
            b"Token ",
            b"Digest x",
            b"Basic ???",
            b"Basic bWU=",
            b"\xff\xfe",
            b"",
        ] {
            assert!(Proof::parse(bad).is_none(), "{bad:?}");
        }
    }
}
