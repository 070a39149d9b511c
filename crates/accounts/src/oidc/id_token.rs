//! Verifies ID tokens: signature, issuer, audience and time. Only RS256 and ES256 are accepted.
//!
//! It is written on `ring`, which the server has for TLS: a library for JSON web tokens would add a second crypto
//! library, for algorithms that are refused here anyway.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Clocks may differ by this many seconds.
const LEEWAY: i64 = 60;
/// The longest subject (OpenID Connect Core, section 2).
const LONGEST_SUBJECT: usize = 255;

/// The claims of a verified token.
pub type Claims = Map<String, Value>;

/// Why an ID token is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("it is not a JSON web token")]
    Malformed,
    #[error("its algorithm `{0}` is not RS256 or ES256")]
    Algorithm(String),
    #[error("the provider has no key `{0}`")]
    UnknownKey(String),
    #[error("its signature is wrong")]
    Signature,
    #[error("its claim `{0}` is missing or wrong")]
    Claim(&'static str),
    #[error("it has expired")]
    Expired,
}

/// The provider's public keys.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Keys {
    keys: Vec<Value>,
}

/// What a token must say.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    pub issuer: &'a str,
    pub client_id: &'a str,
    /// Unix seconds.
    pub now: i64,
}

/// What the tokens of tests and of the fuzzer must say.
pub(super) const EXAMPLE: Expected<'static> = Expected {
    issuer: "https://login.example.org",
    client_id: "paddlecloud",
    now: 1500,
};

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    Rs256,
    Es256,
}

/// Verifies a token and returns its claims.
pub fn verify(token: &str, keys: &Keys, expected: Expected<'_>) -> Result<Claims, TokenError> {
    let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
    let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
    let header: Header = json(header)?;
    let algorithm = match header.alg.as_str() {
        "RS256" => Algorithm::Rs256,
        "ES256" => Algorithm::Es256,
        other => return Err(TokenError::Algorithm(other.chars().take(20).collect())),
    };
    let signature = bytes(signature)?;
    let candidates: Vec<&Value> = keys
        .keys
        .iter()
        .filter(|key| fits(key, &header, algorithm))
        .collect();
    if candidates.is_empty() {
        let name = header.kid.unwrap_or_default();
        return Err(TokenError::UnknownKey(name.chars().take(100).collect()));
    }
    let is_signed = candidates
        .into_iter()
        .any(|key| is_signed_by(key, algorithm, signed.as_bytes(), &signature));
    if !is_signed {
        return Err(TokenError::Signature);
    }
    let claims: Claims = json(claims)?;
    check(&claims, expected)?;
    Ok(claims)
}

/// The subject that a verified token names.
pub fn subject(claims: &Claims) -> Result<&str, TokenError> {
    let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default();
    match subject.is_empty() || subject.len() > LONGEST_SUBJECT || subject.chars().any(char::is_control) {
        true => Err(TokenError::Claim("sub")),
        false => Ok(subject),
    }
}

/// What is accepted has a subject that can name an account, for the fuzzer.
pub(super) fn check_claims(claims: &Claims) {
    if check(claims, EXAMPLE).is_ok() {
        let subject = subject(claims).expect("it was checked");
        assert!(!subject.is_empty() && subject.len() <= LONGEST_SUBJECT && !subject.contains('\n'));
        assert_eq!(
            claims
                .get("iss")
                .and_then(Value::as_str)
                .map(|text| text.trim_end_matches('/')),
            Some(EXAMPLE.issuer)
        );
    }
}

fn check(claims: &Claims, expected: Expected<'_>) -> Result<(), TokenError> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    let time = |name: &str| claims.get(name).and_then(Value::as_f64);
    // Issuers are compared without a slash at the end, as the configuration has them.
    if text("iss").map(|issuer| issuer.trim_end_matches('/')) != Some(expected.issuer) {
        return Err(TokenError::Claim("iss"));
    }
    let (is_for_us, others) = match claims.get("aud") {
        Some(Value::String(one)) => (one == expected.client_id, 0),
        Some(Value::Array(all)) => (
            all.iter().any(|one| one.as_str() == Some(expected.client_id)),
            all.len().saturating_sub(1),
        ),
        _ => (false, 0),
    };
    if !is_for_us {
        return Err(TokenError::Claim("aud"));
    }
    let party = text("azp");
    if party.map_or(others > 0, |party| party != expected.client_id) {
        return Err(TokenError::Claim("azp"));
    }
    let (earliest, latest) = ((expected.now - LEEWAY) as f64, (expected.now + LEEWAY) as f64);
    let expires = time("exp").ok_or(TokenError::Claim("exp"))?;
    if expires <= earliest {
        return Err(TokenError::Expired);
    }
    for name in ["iat", "nbf"] {
        if claims.contains_key(name) && !time(name).is_some_and(|at| at <= latest) {
            return Err(TokenError::Claim(name));
        }
    }
    subject(claims).map(drop)
}

/// Whether the key is meant for this token.
fn fits(key: &Value, header: &Header, algorithm: Algorithm) -> bool {
    let text = |name: &str| key.get(name).and_then(Value::as_str);
    let is_kind = match algorithm {
        Algorithm::Rs256 => text("kty") == Some("RSA"),
        Algorithm::Es256 => text("kty") == Some("EC") && text("crv") == Some("P-256"),
    };
    let is_for_signatures = text("use").is_none_or(|purpose| purpose == "sig");
    let is_for_algorithm = text("alg").is_none_or(|alg| alg == header.alg);
    let is_named = header.kid.as_deref().is_none_or(|kid| text("kid") == Some(kid));
    is_kind && is_for_signatures && is_for_algorithm && is_named
}

fn is_signed_by(key: &Value, algorithm: Algorithm, signed: &[u8], signature: &[u8]) -> bool {
    let part = |name: &str| {
        key.get(name)
            .and_then(Value::as_str)
            .and_then(|text| bytes(text).ok())
    };
    match algorithm {
        Algorithm::Rs256 => part("n").zip(part("e")).is_some_and(|(n, e)| {
            let start = n.iter().position(|byte| *byte != 0).unwrap_or_default();
            let key = RsaPublicKeyComponents {
                n: &n[start..],
                e: &e[..],
            };
            key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature).is_ok()
        }),
        Algorithm::Es256 => part("x").zip(part("y")).is_some_and(|(x, y)| {
            let point = [&[4], x.as_slice(), &y].concat();
            let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
            key.verify(signed, signature).is_ok()
        }),
    }
}

fn json<T: serde::de::DeserializeOwned>(part: &str) -> Result<T, TokenError> {
    serde_json::from_slice(&bytes(part)?).map_err(|_| TokenError::Malformed)
}

fn bytes(part: &str) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed)
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
    use serde_json::json;

    use super::*;

    /// The modulus of an RSA key whose private part was thrown away, and a token that it signed.
    const RSA_MODULUS: &str = "wU3cuVTcdO13LN0ckwkxnAWuspqtDMPzBZRqf2yLEvVtubN3uNyZK1DerzPKKoCLgrZK0W-gpnx53ctU5TWSLuYGSbfDVLsj2Zzp\
    kWeqUstJ2fg00V2ndzaGRjQhY5NkC6pYziO2u-wQygG_h2SzrpIb8geNoxCAefBaXHg16seq1_m2DCZ2mUi64__SPwhyMqfDylFT\
    cPmRa1SuzyT7AIvTpclyd6YvMXoNuza7BoNrKrY52PmrMBNqD0OHh3Jjbrc8nnyysSJ5PXSqwt2Hg_8Yu0uP9FZT98gjva3OCDVI\
    3UT5XAe2Y9FfPZmdugDNlOc9RN9-CylawHN_XfB9Hw";
    const RSA_TOKEN: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6Im9uZSJ9.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUub3JnIiwiYXVkIjoicGFkZGx\
    lY2xvdWQiLCJzdWIiOiIxMDAxIiwiZXhwIjoyMDAwLCJpYXQiOjEwMDB9.m1rWnHifuiin3xB7uSRxsWwgGftP_ctEsL22hiB0Hn\
    naV9u9Ccua3p1LSp_hGlw0v2KIOlrjqZukVy3ui_WRgKZyzjahzMAljDy1pyLqjm6kO9Z4G1e14ami9ULvH8hkw5njaNBMniExWm\
    i2FnR-wPFIMIbKW55nl3KDmltP9hQNqGwiuwU0WWlMTcgjAVMgcQiCioojRqUKWfk5nB7CcBkXjt2qYCNl-4oQiSY5hyPnVRC9-7\
    uxTQ0OzquIODVvvHf-Pzkt-S4W3E8ALcUL1nxM0REUsbdastmfLpPvHdd9BvMIuDx8Yiqq6-ivp95Ba0s_MR0hxc8voktJE7qF0g";

    const EXPECTED: Expected<'static> = EXAMPLE;

    fn encoded(value: &Value) -> String {
        URL_SAFE_NO_PAD.encode(value.to_string())
    }

    /// A key pair with its public part.
    fn es256() -> (EcdsaKeyPair, Keys) {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).unwrap();
        let point = pair.public_key().as_ref().to_vec();
        let part = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(&point[range]);
        let key = json!({"kty": "EC", "crv": "P-256", "kid": "two", "x": part(1..33), "y": part(33..65)});
        (pair, Keys { keys: vec![key] })
    }

    fn signed(pair: &EcdsaKeyPair, header: &Value, claims: &Value) -> String {
        let text = format!("{}.{}", encoded(header), encoded(claims));
        let signature = pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    fn claims(changed: Value) -> Value {
        let mut claims =
            json!({"iss": EXPECTED.issuer, "aud": "paddlecloud", "sub": "1001", "exp": 2000, "iat": 1000});
        for (name, value) in changed.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims
    }

    #[test]
    fn a_token_of_either_algorithm_is_accepted() {
        let key =
            json!({"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "one", "n": RSA_MODULUS, "e": "AQAB"});
        let keys = Keys { keys: vec![key] };
        let claims_of = verify(RSA_TOKEN, &keys, EXPECTED).unwrap();
        assert_eq!(subject(&claims_of), Ok("1001"));
        let (pair, keys) = es256();
        for header in [json!({"alg": "ES256", "kid": "two"}), json!({"alg": "ES256"})] {
            let token = signed(&pair, &header, &claims(json!({})));
            assert_eq!(verify(&token, &keys, EXPECTED).unwrap()["sub"], "1001");
        }
    }

    #[test]
    fn wrong_claims_are_named() {
        let (pair, keys) = es256();
        let header = json!({"alg": "ES256", "kid": "two"});
        let result =
            |changed: Value| verify(&signed(&pair, &header, &claims(changed)), &keys, EXPECTED).map(drop);
        for (changed, expected) in [
            (
                json!({"iss": "https://login.example.com"}),
                Err(TokenError::Claim("iss")),
            ),
            (json!({"iss": "https://login.example.org/"}), Ok(())),
            (json!({"aud": "another"}), Err(TokenError::Claim("aud"))),
            (json!({"aud": ["another"]}), Err(TokenError::Claim("aud"))),
            (json!({"aud": ["paddlecloud"]}), Ok(())),
            (
                json!({"aud": ["paddlecloud", "another"]}),
                Err(TokenError::Claim("azp")),
            ),
            (
                json!({"aud": ["paddlecloud", "another"], "azp": "paddlecloud"}),
                Ok(()),
            ),
            (json!({"azp": "another"}), Err(TokenError::Claim("azp"))),
            (json!({"exp": 1440}), Err(TokenError::Expired)),
            (json!({"exp": 1441}), Ok(())),
            (json!({"exp": "2000"}), Err(TokenError::Claim("exp"))),
            (json!({"iat": 1561}), Err(TokenError::Claim("iat"))),
            (json!({"nbf": 1561}), Err(TokenError::Claim("nbf"))),
            (json!({"sub": ""}), Err(TokenError::Claim("sub"))),
            (json!({"sub": "a\nb"}), Err(TokenError::Claim("sub"))),
        ] {
            assert_eq!(result(changed.clone()), expected, "{changed}");
        }
    }

    #[test]
    fn a_token_that_is_not_signed_by_the_provider_is_refused() {
        let (pair, keys) = es256();
        let (other_key, _) = es256();
        let header = json!({"alg": "ES256", "kid": "two"});
        let good = signed(&pair, &header, &claims(json!({})));
        let refused = |token: &str| verify(token, &keys, EXPECTED).unwrap_err();
        assert_eq!(
            refused(&signed(&other_key, &header, &claims(json!({})))),
            TokenError::Signature
        );
        let (text, signature) = good.rsplit_once('.').unwrap();
        let (head, _) = text.split_once('.').unwrap();
        let altered = encoded(&claims(json!({"sub": "1002"})));
        assert_eq!(
            refused(&format!("{head}.{altered}.{signature}")),
            TokenError::Signature
        );
        assert_eq!(refused(&format!("{text}.")), TokenError::Signature);
        for alg in ["none", "HS256", "RS512", "ES384"] {
            let token = signed(&pair, &json!({"alg": alg, "kid": "two"}), &claims(json!({})));
            assert_eq!(refused(&token), TokenError::Algorithm(alg.to_owned()));
        }
        // A key is valid only for its own algorithm: a public key is not a shared secret.
        let token = signed(&pair, &json!({"alg": "RS256", "kid": "two"}), &claims(json!({})));
        assert_eq!(refused(&token), TokenError::UnknownKey("two".to_owned()));
        let token = signed(
            &pair,
            &json!({"alg": "ES256", "kid": "three"}),
            &claims(json!({})),
        );
        assert_eq!(refused(&token), TokenError::UnknownKey("three".to_owned()));
        for malformed in ["", ".", "..", "a.b.c", "e30.e30.e30", &good[..good.len() / 2]] {
            assert_eq!(refused(malformed), TokenError::Malformed, "{malformed}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_refused_without_a_panic(parts in proptest::collection::vec(proptest::collection::vec(0_u8.., 0..40), 0..4)) {
            let (_, keys) = es256();
            let parts: Vec<String> = parts.iter().map(|part| URL_SAFE_NO_PAD.encode(part)).collect();
            proptest::prop_assert!(verify(&parts.join("."), &keys, EXPECTED).is_err());
        }
    }
}
