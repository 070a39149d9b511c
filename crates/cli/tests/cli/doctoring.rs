//! `doctor` on files of a user.

use crate::shell::Shell;

const BEFORE: &str = "import paddle.v2 as paddle\nprint 'a'\nx = paddle.layer.ctc(a, b)\n";

#[test]
fn doctor_prints_a_patch_and_changes_nothing() {
    let shell = Shell::at("http://127.0.0.1:9");
    shell.write("old/train.py", BEFORE);
    shell.write("old/notes.txt", "print 'this is no program'");
    let folder = shell.home().join("old");
    let outcome = shell.run(&["doctor", folder.to_str().unwrap()]);
    let file = folder.join("train.py");
    let name = file.display();
    assert_eq!(outcome.code, 1, "{}", outcome.err);
    assert!(
        outcome
            .out
            .starts_with(&format!("{name}:3: `paddle.layer.ctc` is not supported: ")),
        "{}",
        outcome.out
    );
    assert!(
        outcome.out.contains("\n-print 'a'\n+print('a')\n"),
        "{}",
        outcome.out
    );
    assert!(
        outcome
            .err
            .contains("checked 1 file: 1 line not supported, 1 can be fixed by `--fix`"),
        "{}",
        outcome.err
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), BEFORE);
}

#[test]
fn fix_changes_the_file_and_a_second_run_has_nothing_to_do() {
    let shell = Shell::at("http://127.0.0.1:9");
    shell.write("train.py", "print 'a'\n");
    let file = shell.home().join("train.py");
    let name = file.to_str().unwrap();
    let outcome = shell.run(&["doctor", "--fix", name]);
    assert_eq!(
        (outcome.code, outcome.out.as_str()),
        (0, format!("fixed {name}\n").as_str())
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "print('a')\n");
    let again = shell.run(&["doctor", name]);
    assert_eq!((again.code, again.out.as_str()), (0, ""));
    assert!(again.err.contains("nothing to do"), "{}", again.err);
}

#[test]
fn a_missing_file_is_reported() {
    let shell = Shell::at("http://127.0.0.1:9");
    let outcome = shell.run(&["doctor", "nowhere.py"]);
    assert_eq!(outcome.code, 1);
    assert!(
        outcome.err.contains("cannot read `nowhere.py`"),
        "{}",
        outcome.err
    );
}
