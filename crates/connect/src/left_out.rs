//! Says what a package leaves out although no ignore file names it.

use paddlecloud_pfs::RelPath;
use paddlecloud_pfs::package::{BuiltIn, Scan};

/// More names of credentials than this are counted.
const MOST_NAMED: usize = 5;

/// One line about virtual environments and caches, and one about credentials.
pub fn notes(scan: &Scan) -> Vec<String> {
    [folders(scan), credentials(scan)].into_iter().flatten().collect()
}

/// A job rarely misses these; many are counted.
fn folders(scan: &Scan) -> Option<String> {
    let environments = some_of(&of_kind(scan, BuiltIn::VirtualEnvironment), "virtual environment");
    let caches = some_of(&of_kind(scan, BuiltIn::Cache), "cache");
    let parts: Vec<String> = environments.into_iter().chain(caches).collect();
    (!parts.is_empty()).then(|| {
        format!(
            "not uploaded: {}; `.paddleignore` can include them (`!FOLDER`)",
            parts.join(", ")
        )
    })
}

/// These are named: a program that reads one fails without it.
fn credentials(scan: &Scan) -> Option<String> {
    let named = of_kind(scan, BuiltIn::Credentials);
    let keys = of_kind(scan, BuiltIn::PrivateKey);
    let files = named.iter().map(|path| format!("`{path}`"));
    let keys = keys.iter().map(|path| format!("the private key `{path}`"));
    let mut all: Vec<String> = files.chain(keys).collect();
    let count = all.len();
    if count > MOST_NAMED {
        all.truncate(MOST_NAMED);
        all.push(format!("{} more", count - MOST_NAMED));
    }
    (count > 0).then(|| {
        format!(
            "not uploaded, because passwords or keys may be inside: {}; `!FILE` in `.paddleignore` includes one, \
             but a stored secret (`paddlectl secret set`) is safer",
            all.join(", ")
        )
    })
}

fn of_kind(scan: &Scan, searched: BuiltIn) -> Vec<&RelPath> {
    let found = scan.built_in.iter().filter(|(_, kind)| *kind == searched);
    found.map(|(path, _)| path).collect()
}

/// `the cache `__pycache__``, `3 caches`, or nothing.
fn some_of(folders: &[&RelPath], kind: &str) -> Option<String> {
    match folders {
        [] => None,
        [one] => Some(format!("the {kind} `{one}`")),
        many => Some(format!("{} {kind}s", many.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: BuiltIn, paths: &[&str]) -> Vec<String> {
        let built_in = paths.iter().map(|path| (path.parse().unwrap(), kind)).collect();
        notes(&Scan {
            built_in,
            ..Scan::default()
        })
    }

    #[test]
    fn credentials_are_named_unless_they_are_many() {
        let few = of(BuiltIn::PrivateKey, &["id_rsa"]);
        assert!(
            few[0].contains("may be inside: the private key `id_rsa`; `!FILE`"),
            "{few:?}"
        );
        let many = of(
            BuiltIn::Credentials,
            &[
                "a/.env", "b/.env", "c/.env", "d/.env", "e/.env", "f/.env", "g/.env",
            ],
        );
        assert!(many[0].contains("`d/.env`, `e/.env`, 2 more;"), "{many:?}");
        assert_eq!(of(BuiltIn::Cache, &[]), [""; 0]);
    }
}
