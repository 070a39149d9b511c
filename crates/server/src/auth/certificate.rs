//! The common name of a certificate that the TLS layer has verified already.
//!
//! Reads just enough of DER to find it; nothing here decides whether a certificate is good.

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const EXPLICIT_VERSION: u8 = 0xa0;
const UTF8: u8 = 0x0c;
const PRINTABLE: u8 = 0x13;
const IA5: u8 = 0x16;
/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// The subject's common name; `None` if there is none or more than one.
pub fn common_name(certificate: &[u8]) -> Option<String> {
    let mut outer = Der(Der(certificate).expect(SEQUENCE)?);
    let mut body = Der(outer.expect(SEQUENCE)?);
    if body.peek() == Some(EXPLICIT_VERSION) {
        body.next()?;
    }
    // Serial number, signature algorithm, issuer and validity come before the subject.
    for _ in 0..4 {
        body.next()?;
    }
    let mut names = names_in(Der(body.expect(SEQUENCE)?));
    let name = names.pop()?;
    names.is_empty().then_some(name)
}

fn names_in(mut subject: Der<'_>) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(set) = subject.expect(SET) {
        let mut set = Der(set);
        while let Some(pair) = set.expect(SEQUENCE) {
            names.extend(common_name_of(Der(pair)));
        }
    }
    names
}

fn common_name_of(mut pair: Der<'_>) -> Option<String> {
    let is_common_name = pair.expect(OBJECT_ID)? == COMMON_NAME;
    let (tag, value) = pair.next()?;
    let readable = is_common_name && matches!(tag, UTF8 | PRINTABLE | IA5);
    readable.then(|| String::from_utf8(value.to_vec()).ok()).flatten()
}

/// What is left to read.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The next element's tag and content.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (
                    digits
                        .iter()
                        .fold(0, |length, digit| (length << 8) | usize::from(*digit)),
                    rest,
                )
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (found, content) = self.next()?;
        (found == tag).then_some(content)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn certificate(names: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, name) in names {
            params.distinguished_name.push(kind.clone(), *name);
        }
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_common_name_is_found_among_others() {
        let der = certificate(&[
            (DnType::OrganizationName, "Baidu"),
            (DnType::CommonName, "user1@gmail.com"),
            (DnType::CountryName, "CN"),
        ]);
        assert_eq!(common_name(&der).as_deref(), Some("user1@gmail.com"));
    }

    #[test]
    fn a_certificate_without_one_has_none() {
        assert_eq!(
            common_name(&certificate(&[(DnType::OrganizationName, "Baidu")])),
            None
        );
    }

    #[test]
    fn cut_and_damaged_certificates_never_panic() {
        let der = certificate(&[(DnType::CommonName, "me")]);
        for cut in 0..der.len() {
            common_name(&der[..cut]);
        }
        for at in 0..der.len() {
            let mut damaged = der.clone();
            damaged[at] = 0xff;
            common_name(&damaged);
        }
    }
}
