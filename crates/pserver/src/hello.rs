//! The handshake of a connection: versions, the client's identity, and proof that both sides know the run's secret.
//!
//! The server sends a challenge, the client answers with a keyed digest of it and its own challenge, and the
//! server answers that. The secret itself is never sent. A run without a secret skips the digests; the server then
//! checks the client's address.

use std::io::{self, Read, Write};

use crate::wire::{Reader, WireError, Writer};

/// Incremented whenever the meaning of a message changes.
pub const PROTOCOL: u16 = 4;
/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

const MAGIC: [u8; 6] = *b"PDLPS\n";
/// Fixed, so that the first read needs no length: magic, protocol, version text, challenge.
const GREETING_BYTES: usize = 6 + 2 + 32 + 32;
/// What the client answers: its own greeting, its identity and its proof.
pub const HELLO_BYTES: usize = GREETING_BYTES + 6 * 4 + 32;

/// The secret that trainers and parameter servers of one run share.
#[derive(Clone, PartialEq, Eq)]
pub struct RunSecret([u8; 32]);

impl RunSecret {
    pub fn new(text: &str) -> RunSecret {
        RunSecret(blake3::derive_key(
            "paddlecloud parameter server run secret",
            text.as_bytes(),
        ))
    }

    fn proof(&self, side: &str, server: &[u8; 32], client: &[u8; 32], identity: &Identity) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(side.as_bytes()).update(server).update(client);
        hasher.update(&identity.encode());
        hasher.finalize()
    }
}

impl std::fmt::Debug for RunSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RunSecret(…)")
    }
}

/// What a client claims to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub trainer: u32,
    pub trainers: u32,
    pub attempt: u32,
    /// The server that the client expects, and the number of servers.
    pub server: u32,
    pub servers: u32,
    /// Connections of one client are numbered; 0 is the one it trains with.
    pub lane: u32,
}

/// The `trainer` of a client that only observes.
pub const OBSERVER: u32 = u32::MAX;

impl Identity {
    fn encode(&self) -> Vec<u8> {
        let mut head = Writer::new();
        for number in [
            self.trainer,
            self.trainers,
            self.attempt,
            self.server,
            self.servers,
            self.lane,
        ] {
            head.u32(number);
        }
        head.finish()
    }

    fn decode(from: &mut Reader<'_>) -> Result<Identity, WireError> {
        Ok(Identity {
            trainer: from.u32()?,
            trainers: from.u32()?,
            attempt: from.u32()?,
            server: from.u32()?,
            servers: from.u32()?,
            lane: from.u32()?,
        })
    }
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub enum HelloError {
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    #[error("the other side is not a parameter server of PaddleCloud")]
    Foreign,
    #[error(
        "this is version {VERSION} (protocol {PROTOCOL}), the other side is {version} (protocol {protocol})"
    )]
    Version { version: String, protocol: u16 },
    #[error("the other side does not know this run's secret")]
    Credentials,
}

/// A client whose proof was checked.
#[derive(Debug)]
pub struct Accepted {
    pub identity: Identity,
    /// Proves to the client that the server knows the secret too.
    pub proof: [u8; 32],
}

/// The server's side of the handshake, up to its reply.
#[derive(Debug)]
pub struct Challenge([u8; 32]);

impl Challenge {
    pub fn random() -> Challenge {
        Challenge(random())
    }

    /// What the server sends first.
    pub fn greeting(&self) -> [u8; GREETING_BYTES] {
        greeting(&self.0)
    }

    /// Checks the client's answer. The caller reports errors and refuses the client.
    pub fn check(
        &self,
        hello: &[u8; HELLO_BYTES],
        secret: Option<&RunSecret>,
    ) -> Result<Accepted, HelloError> {
        let (greeting, rest) = hello.split_at(GREETING_BYTES);
        let theirs = parse_greeting(greeting)?;
        let mut reader = Reader::new(rest);
        let identity = Identity::decode(&mut reader).map_err(|_| HelloError::Foreign)?;
        let proof: [u8; 32] = reader.array().map_err(|_| HelloError::Foreign)?;
        let Some(secret) = secret else {
            return Ok(Accepted {
                identity,
                proof: [0; 32],
            });
        };
        // Digests are compared in constant time.
        if secret.proof("client", &self.0, &theirs, &identity) != blake3::Hash::from_bytes(proof) {
            return Err(HelloError::Credentials);
        }
        let proof = secret.proof("server", &self.0, &theirs, &identity);
        Ok(Accepted {
            identity,
            proof: *proof.as_bytes(),
        })
    }
}

/// The server's side over a connection of its own, for tests.
#[cfg(test)]
pub fn accept(stream: &mut (impl Read + Write), secret: Option<&RunSecret>) -> Result<Accepted, HelloError> {
    let challenge = Challenge::random();
    stream.write_all(&challenge.greeting())?;
    let mut hello = [0; HELLO_BYTES];
    stream.read_exact(&mut hello)?;
    challenge.check(&hello, secret)
}

/// The proof that the client expects at the start of the server's first reply.
#[derive(Debug)]
pub struct Expected(Option<blake3::Hash>);

impl Expected {
    pub fn check(&self, proof: [u8; 32]) -> Result<(), HelloError> {
        match &self.0 {
            Some(expected) if *expected != blake3::Hash::from_bytes(proof) => Err(HelloError::Credentials),
            _ => Ok(()),
        }
    }
}

/// The client's side of the handshake.
pub fn introduce(
    stream: &mut (impl Read + Write),
    secret: Option<&RunSecret>,
    identity: &Identity,
) -> Result<Expected, HelloError> {
    let mut bytes = [0; GREETING_BYTES];
    stream.read_exact(&mut bytes)?;
    let theirs = parse_greeting(&bytes)?;
    let challenge = random();
    let mut hello = greeting(&challenge).to_vec();
    hello.extend(identity.encode());
    let proof = |side| secret.map(|secret| secret.proof(side, &theirs, &challenge, identity));
    hello.extend(proof("client").map_or([0; 32], |proof| *proof.as_bytes()));
    stream.write_all(&hello)?;
    Ok(Expected(proof("server")))
}

fn greeting(challenge: &[u8; 32]) -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    let version = &VERSION.as_bytes()[..VERSION.len().min(32)];
    bytes[..6].copy_from_slice(&MAGIC);
    bytes[6..8].copy_from_slice(&PROTOCOL.to_le_bytes());
    bytes[8..8 + version.len()].copy_from_slice(version);
    bytes[40..].copy_from_slice(challenge);
    bytes
}

fn parse_greeting(bytes: &[u8]) -> Result<[u8; 32], HelloError> {
    let mut reader = Reader::new(bytes);
    let foreign = |_: WireError| HelloError::Foreign;
    if reader.array().map_err(foreign)? != MAGIC {
        return Err(HelloError::Foreign);
    }
    let protocol = reader.u16().map_err(foreign)?;
    let version: [u8; 32] = reader.array().map_err(foreign)?;
    if protocol != PROTOCOL {
        let version = String::from_utf8_lossy(&version);
        let version = version.trim_end_matches('\0').escape_debug().to_string();
        return Err(HelloError::Version { version, protocol });
    }
    reader.array().map_err(foreign)
}

/// Unpredictable bytes.
pub fn random() -> [u8; 32] {
    let mut bytes = [0; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the system has no random bytes: {error}"),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    fn identity() -> Identity {
        Identity {
            trainer: 1,
            trainers: 2,
            attempt: 1,
            server: 0,
            servers: 1,
            lane: 0,
        }
    }

    fn meet(
        server: Option<&str>,
        client: Option<&str>,
    ) -> (Result<Accepted, HelloError>, Result<(), HelloError>) {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let (server, client) = (server.map(RunSecret::new), client.map(RunSecret::new));
        let accepting = thread::spawn(move || accept(&mut here, server.as_ref()));
        let expected = introduce(&mut there, client.as_ref(), &identity()).unwrap();
        let accepted = accepting.join().unwrap();
        let checked = match &accepted {
            Ok(accepted) => expected.check(accepted.proof),
            Err(_) => Ok(()),
        };
        (accepted, checked)
    }

    #[test]
    fn both_sides_prove_the_secret() {
        let (accepted, checked) = meet(Some("a"), Some("a"));
        assert_eq!(accepted.unwrap().identity, identity());
        checked.unwrap();
    }

    #[test]
    fn a_wrong_or_missing_secret_is_noticed_by_either_side() {
        assert!(matches!(
            meet(Some("a"), Some("b")).0,
            Err(HelloError::Credentials)
        ));
        assert!(matches!(meet(Some("a"), None).0, Err(HelloError::Credentials)));
        assert!(matches!(meet(None, Some("a")).1, Err(HelloError::Credentials)));
    }

    #[test]
    fn an_incompatible_pair_names_both_versions() {
        let mut bytes = greeting(&[0; 32]);
        bytes[6] = 99;
        bytes[8..13].copy_from_slice(b"9.9.9");
        let error = parse_greeting(&bytes).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("this is version {VERSION} (protocol {PROTOCOL}), the other side is 9.9.9 (protocol 99)")
        );
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", RunSecret::new("hush")), "RunSecret(…)");
    }
}
