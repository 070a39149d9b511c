//! The name in a client certificate, which is its user's.
//!
//! Parses just enough DER to find the name; nothing here verifies a certificate.

use crate::der::{Der, IA5, OBJECT_ID, PRINTABLE, SEQUENCE, SET, UTF8};

const EXPLICIT_VERSION: u8 = 0xa0;
/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// The subject's common name; `None` if there is none or more than one.
pub fn common_name(certificate: &[u8]) -> Option<String> {
    let mut outer = Der(Der(certificate).expect(SEQUENCE)?);
    let mut body = Der(outer.expect(SEQUENCE)?);
    if body.peek() == Some(EXPLICIT_VERSION) {
        body.element()?;
    }
    // Serial number, signature algorithm, issuer and validity come before the subject.
    for _ in 0..4 {
        body.element()?;
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
    let (tag, value) = pair.element()?;
    let readable = is_common_name && matches!(tag, UTF8 | PRINTABLE | IA5);
    readable.then(|| String::from_utf8(value.to_vec()).ok()).flatten()
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
    fn a_certificate_without_a_common_name_has_none() {
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
