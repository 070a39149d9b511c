//! Records in Python: a record of an archive is a pickle that Python loads, and vice versa.

use std::fs;
use std::process::Command;

use e2e::TestEnvironment;

/// Runs a Python program in a folder.
fn python(folder: &std::path::Path, program: &str) {
    let ran = Command::new("python3")
        .args(["-c", program])
        .current_dir(folder)
        .output();
    let output = ran.expect("the test needs Python");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

const MAKE_ARCHIVE: &str = "
import io, tarfile
with tarfile.open('a.tar', 'w') as archive:
    for name, data in [('x/0001.jpg', b'\\xff' * 300), ('x/0001.cls', b'3'), ('x/0002.jpg', b''), ('x/0002.cls', b'5')]:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
";

const LOAD_RECORDS: &str = "
import base64, json, pickle
samples = [pickle.loads(base64.b64decode(json.loads(line)['base64'])) for line in open('records.jsonl')]
assert samples == [
    {'__key__': 'x/0001', 'jpg': b'\\xff' * 300, 'cls': b'3'},
    {'__key__': 'x/0002', 'jpg': b'', 'cls': b'5'},
], samples
";

const CHECK_ARCHIVE: &str = "
import tarfile
with tarfile.open('b.tar.gz') as archive:
    files = {member.name: archive.extractfile(member).read() for member in archive}
assert files == {'x/0001.jpg': b'\\xff' * 300, 'x/0001.cls': b'3', 'x/0002.jpg': b'', 'x/0002.cls': b'5'}, files
";

#[test]
#[ignore = "needs Python"]
fn samples_are_pickles_that_python_loads_and_archives_that_it_opens() {
    let env = TestEnvironment::new();
    let folder = env.folder("set");
    python(&folder, MAKE_ARCHIVE);
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let data = |words: &[&str]| env.paddlectl(&[&["data"], words].concat()).ok();
    data(&["convert", &path("a.tar"), &path("a.rio")]);
    let records = data(&["cat", "-o", "json", &path("a.rio")]).stdout;
    // A pickle begins with 0x80, which no text does.
    assert!(!records.contains("\"text\""), "{records}");
    fs::write(path("records.jsonl"), &records).unwrap();
    python(&folder, LOAD_RECORDS);
    data(&["convert", &path("a.rio"), &path("b.tar.gz")]);
    python(&folder, CHECK_ARCHIVE);
}
