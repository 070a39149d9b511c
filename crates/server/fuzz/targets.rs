//! Parsers of untrusted bytes, each with inputs that it accepts. A run gives a parser a damaged input: it must neither panic nor
//! hang, and where it has rules of its own, what it accepts must keep them.

use std::path::PathBuf;

use paddlecloud_api::logs::{Frame as LogFrame, LogEnd, LogWorker, Stream};
use paddlecloud_pfs::content::Signature;
use paddlecloud_pfs::pack::{PackLimits, PackParser, PackSink, PackWriter};
use paddlecloud_pfs::package::Manifest;
use paddlecloud_pfs::{Digest, Entry, Mtime, Node, PfsPath, RelPath, RootError};
use paddlecloud_server::fuzzing;
use paddlecloud_worker::link::{self, Decoder, FromLauncher, FromServer};
use paddlecloud_worker::log::{Chunk, Stream as LogOrigin};
use paddlecloud_worker::protocol::{self, Command, Report, WorkerPlan};

/// A parser and inputs that it accepts.
pub struct Target {
    pub name: &'static str,
    pub seeds: Vec<Vec<u8>>,
    pub run: fn(&[u8]),
}

/// All of them. Those of RecordIO and of the parameter server are in their crates.
pub fn targets() -> Vec<Target> {
    vec![
        target(
            "authorization header",
            &["Token pct_0123", "Basic YWRhOnNlY3JldA=="],
            fuzzing::authorization,
        ),
        target("backup", &[BACKUP], |bytes| fuzzing::backup(bytes, &scratch())),
        binary("certificate", certificates(), fuzzing::certificate),
        target(
            "certificate request",
            &[&certificate_request()],
            fuzzing::certificate_request,
        ),
        target("configuration", &[CONFIGURATION], fuzzing::configuration),
        target("ID token", &[ID_TOKEN], |bytes| {
            fuzzing::id_token(bytes, PROVIDER_REPLIES[0])
        }),
        target("JSON bodies", &BODIES, fuzzing::json_bodies),
        binary("launcher's link", launcher_frames(), launcher_link),
        target(
            "log position",
            &["train-0:1:17,train-1:2:0", "2026-01-31T12:00:00Z"],
            fuzzing::log_cursors,
        ),
        binary("log stream", log_stream(), read_log_stream),
        target("manifest", &[MANIFEST], read_manifest),
        binary("pack", vec![pack()], read_pack),
        target(
            "paths",
            &[
                "/pfs/dc1/home/ada@example.org/a/b.txt",
                "/pfs/dc1/public/x/",
                "a/b\\x0a",
            ],
            read_path,
        ),
        target("provider's replies", &PROVIDER_REPLIES, |bytes| {
            fuzzing::provider_reply(bytes, ID_TOKEN)
        }),
        target(
            "range header",
            &["bytes=0-99", "bytes=5-", "bytes=-3", "bytes=0-1,3-4"],
            fuzzing::range_header,
        ),
        binary("signature", vec![signature()], read_signature),
        target("supervisor's protocol", &SUPERVISOR, supervisor_lines),
    ]
}

fn target(name: &'static str, seeds: &[&str], run: fn(&[u8])) -> Target {
    let seeds = seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect();
    binary(name, seeds, run)
}

fn binary(name: &'static str, seeds: Vec<Vec<u8>>, run: fn(&[u8])) -> Target {
    Target { name, seeds, run }
}

/// A file of this process's own.
fn scratch() -> PathBuf {
    std::env::temp_dir().join(format!("paddlecloud-fuzz-{}", std::process::id()))
}

const BACKUP: &str = concat!(
    r#"{"backup":{"format":1,"schema":1,"time":"2026-01-31T12:00:00Z","version":"0.1.0"}}"#,
    "\n",
    r#"{"table":{"name":"jobs","columns":["id","document"]}}"#,
    "\n",
    r#"{"row":["j_1",17,null,"x"]}"#,
    "\n",
    r#"{"end":{"rows":1,"digest":"0000000000000000000000000000000000000000000000000000000000000000"}}"#,
    "\n"
);

const CONFIGURATION: &str = "\
data: /var/lib/paddlecloud
datacenter: dc1
listen: [127.0.0.1:8443, 'unix:/run/x']
tls: {names: [example.org]}
tokens: {lifetime: 12h, max_age: 30d}
limits: {requests_per_user: 10}
reclaim: 10m
system_uids: 20000-29999
inventory: {cpu: 2, memory: 1Gi, gpus: 0}
logs: {segment: 16Mi, keep: 1Gi, copy: true}
default_quota: {cpu: 1, memory: 2Gi, storage: 1Ti, weight: 3}
users:
- {name: ada, admin: true, quota: {gpu: 2}, system_user: daemon}
- &more {name: bob@example.org, system_user: nobody}
";

const BODIES: [&str; 4] = [
    r#"{"name":"emb","jobPackage":"/pfs/dc1/home/ada/emb","parallelism":3,"cpu":"500m","memory":"1Gi","pservers":2,
        "pscpu":1,"psmemory":"2Gi","entry":"python train.py","topology":"t.py","envs":{"A":"b"},"gpu":1,"passes":3}"#,
    r#"{"path":"/pfs/dc1/home/ada/x","key":"k","size":1234,"digest":null,"mtime":-1,"paths":["a","b\\x00"]}"#,
    r#"{"username":"ada","password":"\u0041\ud83d\ude00","name":"n","scopes":"read,admin","lifetime_seconds":60}"#,
    r#"{"quota":{"cpu":"4","memory":"none"},"groups":["a"],"disabled":false,"value":"s","server":"hub"}"#,
];

/// Signed by the first key of the replies; the private key was thrown away.
const ID_TOKEN: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6Im9uZSJ9.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUub3JnIiwiYXVkIjoicGFkZGx\
    lY2xvdWQiLCJzdWIiOiIxMDAxIiwiZXhwIjoyMDAwLCJpYXQiOjEwMDB9.m1rWnHifuiin3xB7uSRxsWwgGftP_ctEsL22hiB0Hn\
    naV9u9Ccua3p1LSp_hGlw0v2KIOlrjqZukVy3ui_WRgKZyzjahzMAljDy1pyLqjm6kO9Z4G1e14ami9ULvH8hkw5njaNBMniExWm\
    i2FnR-wPFIMIbKW55nl3KDmltP9hQNqGwiuwU0WWlMTcgjAVMgcQiCioojRqUKWfk5nB7CcBkXjt2qYCNl-4oQiSY5hyPnVRC9-7\
    uxTQ0OzquIODVvvHf-Pzkt-S4W3E8ALcUL1nxM0REUsbdastmfLpPvHdd9BvMIuDx8Yiqq6-ivp95Ba0s_MR0hxc8voktJE7qF0g";

const PROVIDER_REPLIES: [&str; 5] = [
    r#"{"keys":[{"kty":"RSA","use":"sig","alg":"RS256","kid":"one","e":"AQAB","n":"wU3cuVTcdO13LN0ckwkxnAWuspqtDMPzBZRqf2yLEvVtubN3uNyZK1DerzPKKoCLgrZK0W-gpnx53ctU5TWSLuYGSbfDVLsj2ZzpkWeqUstJ2fg00V2ndzaGRjQhY5NkC6pYziO2u-wQygG_h2SzrpIb8geNoxCAefBaXHg16seq1_m2DCZ2mUi64__SPwhyMqfDylFTcPmRa1SuzyT7AIvTpclyd6YvMXoNuza7BoNrKrY52PmrMBNqD0OHh3Jjbrc8nnyysSJ5PXSqwt2Hg_8Yu0uP9FZT98gjva3OCDVI3UT5XAe2Y9FfPZmdugDNlOc9RN9-CylawHN_XfB9Hw"},
        {"kty":"EC","crv":"P-256","kid":"two","x":"AAAA","y":"AAAA"}]}"#,
    r#"{"issuer":"https://login.example.org","token_endpoint":"https://login.example.org/token","jwks_uri":"https://x/jwks",
        "device_authorization_endpoint":"https://x/device","userinfo_endpoint":null,
        "token_endpoint_auth_methods_supported":["client_secret_basic"]}"#,
    r#"{"device_code":"d","user_code":"WDJB-MJHT","verification_uri":"https://x/device","expires_in":600,"interval":5}"#,
    r#"{"access_token":"a","id_token":"x.y.z","refresh_token":"r","error":"slow_down","error_description":"later"}"#,
    r#"{"iss":"https://login.example.org","aud":["paddlecloud","other"],"azp":"paddlecloud","sub":"1001","exp":2000,
        "iat":1000.5,"nbf":1000,"groups":["a","b"],"email":"ann@example.org","email_verified":true}"#,
];

const MANIFEST: &str = r#"{"version":1,"entries":[
    {"path":"a","kind":"dir","mtime":1700000000000000000},
    {"path":"a/b","kind":"file","size":5,"executable":true,"digest":
     "0000000000000000000000000000000000000000000000000000000000000000","mtime":1},
    {"path":"a/c","kind":"symlink","target":"b","mtime":0}]}"#;

const SUPERVISOR: [&str; 3] = [
    r#"{"command":"stop","grace_ms":300}"#,
    r#"{"report":"started","at":17}"#,
    r#"{"command":"go","lines":["a","b"]}"#,
];

fn certificate_request() -> String {
    let key = rcgen::KeyPair::generate().expect("a key can be made");
    let request = rcgen::CertificateParams::default().serialize_request(&key);
    request
        .and_then(|request| request.pem())
        .expect("it can be signed")
}

fn certificates() -> Vec<Vec<u8>> {
    let key = rcgen::KeyPair::generate().expect("a key can be made");
    let mut params = rcgen::CertificateParams::new(vec!["example.org".to_owned()]).expect("a plain name");
    params.distinguished_name.push(rcgen::DnType::CommonName, "ada");
    let certificate = params.self_signed(&key).expect("it signs itself");
    vec![certificate.der().to_vec()]
}

fn launcher_frames() -> Vec<Vec<u8>> {
    let chunk = Chunk {
        offset: 7,
        stamp: 1,
        stream: LogOrigin::Output,
        bytes: b"said\n".to_vec(),
    };
    let gap = link::encode(&FromLauncher::Gap { from: 1, to: 2 });
    let alive = link::encode(&FromLauncher::Alive);
    let stored = link::encode(&FromServer::Stored { offset: 5 });
    vec![[gap, link::encode_log(&chunk), alive].concat(), stored]
}

fn launcher_link(bytes: &[u8]) {
    fn read<M: serde::de::DeserializeOwned>(bytes: &[u8]) {
        let mut decoder = Decoder::default();
        for piece in bytes.chunks(7) {
            decoder.push(piece);
            while let Ok(Some(_)) = decoder.next_frame::<M>() {}
        }
    }
    read::<FromLauncher>(bytes);
    read::<FromServer>(bytes);
}

fn supervisor_lines(bytes: &[u8]) {
    let _ = protocol::decode::<Command>(bytes);
    let _ = protocol::decode::<Report>(bytes);
    let _ = protocol::decode::<WorkerPlan>(bytes);
    let _ = protocol::decode::<protocol::Exit>(bytes);
}

fn log_stream() -> Vec<Vec<u8>> {
    let worker = LogWorker {
        name: "trainer-0".into(),
        role: "trainer".into(),
        index: 0,
        attempt: 1,
        from: Some(3),
        is_behind: false,
    };
    let data = LogFrame::Data {
        worker: 0,
        stream: Stream::Output,
        offset: 3,
        unix_nanos: 9,
        bytes: b"said\n".to_vec(),
    };
    let gap = LogFrame::Gap {
        worker: 0,
        offset: 8,
        to: 9,
    };
    let end = LogFrame::End(None::<LogEnd>);
    let mut bytes = Vec::new();
    for frame in [LogFrame::Workers(vec![worker]), data, gap, LogFrame::Alive, end] {
        frame.encode(&mut bytes);
    }
    vec![bytes]
}

fn read_log_stream(mut bytes: &[u8]) {
    while let Ok(Some((_, length))) = LogFrame::decode(bytes) {
        assert!(length > 0 && length <= bytes.len());
        bytes = &bytes[length..];
    }
}

fn read_manifest(bytes: &[u8]) {
    if let Ok(manifest) = serde_json::from_slice::<Manifest>(bytes) {
        let again: Manifest = serde_json::from_slice(&manifest.to_json()).expect("it reads what it wrote");
        assert_eq!(again.id(), manifest.id());
    }
}

/// Holds nothing, and checks that no path leaves its folder.
struct Nothing;

impl PackSink for Nothing {
    fn begin(&mut self, entry: &Entry) -> Result<(), RootError> {
        assert!(
            entry
                .path
                .parts()
                .all(|part| part != b".." && !part.contains(&b'/'))
        );
        Ok(())
    }

    fn content(&mut self, _bytes: &[u8]) -> Result<(), RootError> {
        Ok(())
    }

    fn end(&mut self, _entry: &Entry, _digest: Digest) -> Result<(), RootError> {
        Ok(())
    }
}

fn pack() -> Vec<u8> {
    let entry = |path: &str, node| Entry {
        path: RelPath::from_bytes(path.as_bytes()).expect("a plain path"),
        node,
        mtime: Mtime::new(1, 0),
    };
    let mut writer = PackWriter::new(Vec::new()).expect("memory can be written");
    writer
        .add_node(&entry("a", Node::Dir))
        .expect("memory can be written");
    let file = Node::File {
        size: 5,
        executable: false,
        digest: None,
    };
    writer
        .add_file(&entry("a/b", file), &b"12345"[..])
        .expect("memory can be written");
    writer.finish().expect("memory can be written").0
}

fn read_pack(bytes: &[u8]) {
    for piece in [1, 7, usize::MAX] {
        let limits = PackLimits {
            entries: 100,
            bytes: 1 << 20,
            ..PackLimits::default()
        };
        let mut parser = PackParser::new(Nothing, limits);
        if bytes
            .chunks(piece.min(bytes.len().max(1)))
            .all(|piece| parser.feed(piece).is_ok())
        {
            let _ = parser.finish();
        }
    }
}

fn read_path(bytes: &[u8]) {
    if let Ok(path) = PfsPath::from_bytes(bytes) {
        assert!(path.to_string().starts_with("/pfs/"));
        let parts: Vec<&[u8]> = path.place().path.parts().collect();
        assert!(
            parts
                .iter()
                .all(|part| *part != b".." && *part != b"." && !part.is_empty())
        );
    }
    if let Ok(path) = RelPath::from_bytes(bytes) {
        assert!(
            path.parts()
                .all(|part| part != b".." && part != b"." && !part.is_empty())
        );
    }
    let text = String::from_utf8_lossy(bytes);
    let _ = serde_json::from_value::<RelPath>(text.as_ref().into());
}

fn signature() -> Vec<u8> {
    let file = tempfile::tempfile().expect("a temporary file");
    paddlecloud_pfs::FileExt::write_all_at(&file, &[7; 100_000], 0).expect("it can be written");
    Signature::of(&file).expect("it can be read").encode()
}

fn read_signature(bytes: &[u8]) {
    if let Ok(signature) = Signature::decode(bytes) {
        assert_eq!(
            Signature::decode(&signature.encode()).map(|again| again.encode()),
            Ok(signature.encode())
        );
    }
}

/// Damages bytes at random: changed, cut, repeated and replaced by extreme numbers.
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Noise {
        Noise(seed)
    }

    /// The next number of splitmix64, below the limit.
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit.max(1) as u64) as usize
    }

    pub fn damaged(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(4) {
            if bytes.is_empty() {
                break;
            }
            let at = self.below(bytes.len());
            match self.below(7) {
                0 => bytes.truncate(at),
                1 => bytes[at] = self.below(256) as u8,
                2 => bytes[at] ^= 1 << self.below(8),
                3 => bytes[at..].iter_mut().take(4).for_each(|byte| *byte = 0xff),
                4 => bytes[at..].iter_mut().take(8).for_each(|byte| *byte = 0),
                5 => {
                    const WORDS: [&[u8]; 9] = [
                        b"{",
                        b"[",
                        b"\"",
                        b"-1",
                        b"18446744073709551616",
                        b"..",
                        b"/",
                        b"\\u0000",
                        b": ",
                    ];
                    let word = WORDS[self.below(WORDS.len())];
                    bytes.splice(at..at, word.iter().copied());
                }
                _ => {
                    let end = (at + self.below(64)).min(bytes.len());
                    let copy = bytes[at..end].to_vec();
                    bytes.splice(at..at, copy);
                }
            }
        }
        bytes
    }
}
