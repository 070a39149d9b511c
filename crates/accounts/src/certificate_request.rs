//! Parses certificate requests (PKCS #10): the public key, and the proof that the requester holds its private key.

use paddlecloud_api::der::{Der, SEQUENCE};
use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PublicKeyData, SignatureAlgorithm};
use ring::signature::{ECDSA_P256_SHA256_ASN1, ED25519, UnparsedPublicKey, VerificationAlgorithm};
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject as _;

/// 1.2.840.10045.2.1 and 1.2.840.10045.3.1.7: a key on the curve P-256.
const P256: &[u8] = &[
    0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03,
    0x01, 0x07,
];
/// 1.3.101.112
const ED25519_KEY: &[u8] = &[0x06, 0x03, 0x2b, 0x65, 0x70];

/// The public key of a request that was signed with this key.
pub struct RequestedKey {
    bits: Vec<u8>,
    algorithm: &'static SignatureAlgorithm,
}

impl RequestedKey {
    /// Returns `None` if the text is not a request, the kind of key is not supported, or the signature does not match the key.
    pub fn from_pem(text: &str) -> Option<RequestedKey> {
        let request = CertificateSigningRequestDer::from_pem_slice(text.as_bytes()).ok()?;
        let mut request = Der(Der(&request).expect(SEQUENCE)?);
        let signed = request.whole()?;
        // Skip the signature algorithm: it follows from the key.
        request.element()?;
        let signature = request.bits()?;
        let mut asked = Der(Der(signed).expect(SEQUENCE)?);
        // Skip version and name.
        asked.element()?;
        asked.element()?;
        let mut key = Der(asked.expect(SEQUENCE)?);
        let (algorithm, verification): (_, &'static dyn VerificationAlgorithm) = match key.expect(SEQUENCE)? {
            P256 => (&PKCS_ECDSA_P256_SHA256, &ECDSA_P256_SHA256_ASN1),
            ED25519_KEY => (&PKCS_ED25519, &ED25519),
            _ => return None,
        };
        let bits = key.bits()?;
        let proof = UnparsedPublicKey::new(verification, bits).verify(signed, signature);
        proof.ok().map(|()| RequestedKey {
            bits: bits.to_vec(),
            algorithm,
        })
    }
}

impl PublicKeyData for RequestedKey {
    fn der_bytes(&self) -> &[u8] {
        &self.bits
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.algorithm
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P384_SHA384};

    use super::*;

    fn request(key: &KeyPair) -> String {
        let params = CertificateParams::default();
        params.serialize_request(key).unwrap().pem().unwrap()
    }

    #[test]
    fn the_key_of_a_request_is_read_with_its_proof() {
        for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ED25519] {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let found = RequestedKey::from_pem(&request(&key)).unwrap();
            assert_eq!(found.der_bytes(), key.der_bytes());
        }
        let other = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
        assert!(RequestedKey::from_pem(&request(&other)).is_none());
    }

    #[test]
    fn a_damaged_request_proves_nothing_and_never_panics() {
        use base64::Engine as _;
        let key = KeyPair::generate().unwrap();
        let request = CertificateSigningRequestDer::from_pem_slice(request(&key).as_bytes()).unwrap();
        let pem = |der: &[u8]| {
            let text = base64::engine::general_purpose::STANDARD.encode(der);
            format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n")
        };
        assert!(RequestedKey::from_pem(&pem(&request)).is_some());
        for cut in 0..request.len() {
            assert!(RequestedKey::from_pem(&pem(&request[..cut])).is_none());
        }
        for at in 0..request.len() {
            let mut damaged = request.to_vec();
            damaged[at] ^= 0x11;
            if let Some(found) = RequestedKey::from_pem(&pem(&damaged)) {
                assert_eq!(found.der_bytes(), key.der_bytes(), "byte {at}");
            }
        }
    }
}
