//! The three shapes of the configuration, and every error in one.

use crate::scripted::server;
use crate::shell::Shell;

const SHAPE_A: &str = "datacenters:\n- name: one\n  username: u1\n  password: p1\n  endpoint: http://one.example.org\n\
    - name: two\n  username: u2\n  token: t2\n  endpoint: two.example.org/\ncurrent-datacenter: two\n";
const SHAPE_B: &str = "datacenters:\n- name: one\n  active: true\n  username: u1\n  password: 012345\n  endpoint: localhost:8080\n\
    - name: two\n  username: u2\n  endpoint: http://two.example.org\n";
const SHAPE_C: &str = "datacenter1:\n  username: user\n  usercert: /path/to/user.pem\n  userkey:  /path/to/user-key.pem\n  endpoint: dc1.paddlepaddle.org\n";

fn view(text: &str) -> String {
    let shell = Shell::new();
    shell.write(".paddle/config", text);
    shell.line("config view").story(&shell)
}

#[test]
fn all_three_shapes_are_read_and_no_secret_is_shown() {
    let all = [SHAPE_A, SHAPE_B, SHAPE_C].map(view).join("\n");
    insta::assert_snapshot!("shapes", all);
}

#[test]
fn every_configuration_error_has_a_message_and_a_hint() {
    let placeholder = "datacenters:\n- name: datacenter1\n  username: [your user name]\n  password: [secret]\n  \
        endpoint: http://cloud.paddlepaddle.org\ncurrent-datacenter: datacenter1\n";
    let cases: &[(&str, &str)] = &[
        ("placeholder", placeholder),
        ("empty", ""),
        ("only comments", "# nothing\n"),
        ("no entries", "datacenters: []\n"),
        ("null entries", "datacenters:\n"),
        ("not yaml", "datacenters:\n- name: a\n   username: : b\n  - x\n"),
        ("open list", "datacenters: [\n"),
        ("tab", "datacenters:\n\t- name: a\n"),
        ("text", "hello"),
        (
            "two active",
            "datacenters:\n- name: a\n  active: true\n  endpoint: x\n- name: b\n  active: true\n  endpoint: y\n",
        ),
        (
            "none active",
            "datacenters:\n- name: a\n  active: false\n  endpoint: x\n- name: b\n  endpoint: y\n",
        ),
        (
            "unknown current",
            "datacenters:\n- name: datacenter1\n  endpoint: x\ncurrent-datacenter: datacentre1\n",
        ),
        ("no endpoint", "datacenters:\n- name: a\n  username: u\n"),
        ("misspelt key", "datacenters:\n- name: a\n  endpont: x\n"),
        ("misspelt key of a mapping", "a:\n  endpont: x\n"),
        ("bad endpoint", "datacenters:\n- name: a\n  endpoint: ftp://x\n"),
        ("no name", "datacenters:\n- username: a\n  endpoint: x\n"),
        (
            "same name",
            "datacenters:\n- name: a\n  endpoint: x\n- name: a\n  endpoint: y\n",
        ),
        ("half a certificate", "a:\n  usercert: /x\n  endpoint: y\n"),
        ("password alone", "a:\n  password: x\n  endpoint: y\n"),
    ];
    let mut stories = String::new();
    for (name, text) in cases {
        let shell = Shell::new();
        shell.write(".paddle/config", text);
        let outcome = shell.line("get jobs");
        assert_eq!(outcome.code, 1, "{name}: {}", outcome.err);
        stories.push_str(&format!("# {name}\n{}\n", shell.tidy(&outcome.err)));
    }
    insta::assert_snapshot!("mistakes", stories);
}

#[test]
fn flags_and_environment_select_another_configuration() {
    let server = server();
    let mut shell = Shell::new();
    let file = shell.write(
        "elsewhere",
        &format!(
            "dc9:\n  username: me\n  token: t\n  endpoint: {}\n",
            server.endpoint
        ),
    );
    let file = file.to_str().unwrap().to_owned();
    assert!(shell.run(&["whoami", "-config", &file]).out.contains("dc9"));
    shell.set("PADDLE_CONFIG", &file);
    assert!(shell.line("whoami").out.contains("dc9"));
    let missing = shell.line("--config /nonexistent/config get jobs");
    assert_eq!(
        (missing.code, missing.err.lines().next()),
        (
            1,
            Some("error: there is no configuration at `/nonexistent/config`")
        )
    );
    let folder = shell.home().to_str().unwrap().to_owned();
    let outcome = shell.run(&["--config", &folder, "get", "jobs"]);
    assert_eq!(
        shell.tidy(&outcome.err),
        "error: `HOME` is a folder, not a configuration file\nhint: name the file itself with `--config FILE`\n"
    );
    let unknown = shell.line("whoami --datacenter dc8");
    assert!(unknown.err.contains("did you mean `dc9`?"), "{}", unknown.err);
}

#[test]
fn keys_without_effect_are_named_with_the_nearest_known_one() {
    let server = server();
    let notes = |text: &str| {
        let shell = Shell::new();
        shell.write(".paddle/config", &text.replace("SERVER", &server.endpoint));
        let outcome = shell.line("get jobs");
        assert_eq!(outcome.code, 0, "{}", outcome.err);
        shell.tidy(&outcome.err)
    };
    let list =
        "datacenters:\n- name: a\n  endpoint: SERVER\n  cacrt: x\n  colour: red\ncurent-datacenter: b\n";
    let mapping = "current-datacentre: b\na:\n  endpoint: SERVER\n  usernme: ann\n";
    insta::assert_snapshot!(format!("{}{}", notes(list), notes(mapping)), @r"
    note: `HOME/.paddle/config` has an unknown key `curent-datacenter`: did you mean `current-datacenter`?
    note: datacenter `a` of `HOME/.paddle/config` has an unknown key `cacrt`: did you mean `cacert`?
    note: datacenter `a` of `HOME/.paddle/config` has an unknown key `colour`, which has no effect
    note: `HOME/.paddle/config` has an unknown key `current-datacentre`: did you mean `current-datacenter`?
    note: datacenter `a` of `HOME/.paddle/config` has an unknown key `usernme`: did you mean `username`?
    ");
}

#[test]
fn a_server_without_tls_behind_an_https_address_is_recognized() {
    let shell = Shell::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // As an HTTP server answers the beginning of a TLS handshake.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = std::io::Read::read(&mut stream, &mut [0; 512]);
            let reply = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
            let _ = std::io::Write::write_all(&mut stream, reply);
        }
    });
    shell.write(".paddle/config", &format!("a:\n  endpoint: https://{address}\n"));
    let outcome = shell.line("get jobs");
    assert_eq!(outcome.code, 3, "{}", outcome.err);
    let hint = format!(
        "hint: if the server does not use TLS, write `endpoint: http://{address}` in your configuration\n"
    );
    assert!(outcome.err.ends_with(&hint), "{}", outcome.err);
}

#[test]
fn suggested_commands_repeat_the_flags_that_select_the_server() {
    let shell = Shell::new();
    let text = "dc9:\n  endpoint: http://127.0.0.1:1\ndc8:\n  endpoint: x\n";
    let file = shell.write("my files/dc 9", text);
    let file = file.to_str().unwrap();
    let hint = |words: &[&str]| {
        let outcome = shell.run(words);
        let err = shell.tidy(&outcome.err);
        err.lines().last().unwrap().to_owned()
    };
    assert_eq!(
        hint(&["--config", file, "--datacenter", "dc9", "get", "jobs"]),
        "hint: check `endpoint` in your configuration: \
         `paddlectl --config 'HOME/my files/dc 9' --datacenter dc9 config view`"
    );
    assert_eq!(
        hint(&["get", "jobs", "-config", file]),
        "hint: choose one: `paddlectl --config 'HOME/my files/dc 9' config use dc9` or \
         `paddlectl --config 'HOME/my files/dc 9' config use dc8`"
    );
}

#[test]
fn choosing_a_datacenter_changes_one_line_and_nothing_else() {
    let edited = |text: &str, name: &str| {
        let shell = Shell::new();
        let file = shell.write(".paddle/config", text);
        let outcome = shell.run(&["config", "use", name]);
        assert_eq!(outcome.code, 0, "{}", outcome.err);
        std::fs::read_to_string(file).unwrap()
    };
    assert_eq!(
        edited(SHAPE_A, "one"),
        SHAPE_A.replace("current-datacenter: two", "current-datacenter: one")
    );
    let commented = SHAPE_A.replace("current-datacenter: two", "current-datacenter: two # mine");
    assert_eq!(edited(&commented, "one"), commented.replace(": two #", ": one #"));
    let expected = SHAPE_B
        .replace("active: true", "active: false")
        .replace("- name: two\n", "- name: two\n  active: true\n");
    assert_eq!(edited(SHAPE_B, "two"), expected);
    let two = format!("{SHAPE_C}other:\n  endpoint: x.example.org");
    let expected = format!("{SHAPE_C}other:\n  active: true\n  endpoint: x.example.org\n");
    assert_eq!(edited(&two, "other"), expected);
    let bare = "datacenters:\n- name: a\n  endpoint: x\n- name: b\n  endpoint: y";
    assert_eq!(edited(bare, "b"), format!("{bare}\ncurrent-datacenter: b\n"));
}

#[test]
fn setting_a_field_changes_its_value_and_no_other_byte() {
    let set = |text: &str, words: &[&str]| {
        let shell = Shell::new();
        let file = shell.write(".paddle/config", text);
        let outcome = shell.run(&[&["config", "set"], words].concat());
        (std::fs::read_to_string(file).unwrap(), outcome)
    };
    let a = "# mine\r\ndatacenters:\r\n- name: one # first\r\n  username:   'an''n' \t# me\r\n  \
             endpoint: x.example.org\r\n- name: two\r\n  endpoint: y\r\ncurrent-datacenter: one\r\n";
    let (text, outcome) = set(a, &["username", "bob"]);
    assert_eq!(outcome.err, "`username` of `one` is set\n");
    assert_eq!(text, a.replace("'an''n'", "bob"));
    let (text, _) = set(a, &["endpoint", "https://z:8443", "--datacenter", "two"]);
    assert_eq!(text, a.replace("endpoint: y", "endpoint: 'https://z:8443'"));
    let b =
        "datacenters:\n  - username: ann\n    name: one\n    active: true\n    endpoint: \"x\"   # here\n";
    let (text, _) = set(b, &["endpoint", "y.example.org"]);
    assert_eq!(text, b.replace("\"x\"", "y.example.org"));
    let (text, _) = set(b, &["cacert", "ca.pem"]);
    assert_eq!(
        text,
        b.replace("    name: one\n", "    name: one\n    cacert: ca.pem\n")
    );
    let c = "one:\n  endpoint: x\n\n# the other\ntwo:\n  active: true\n  endpoint: y\n";
    let (text, _) = set(c, &["username", "ann"]);
    assert_eq!(text, c.replace("two:\n", "two:\n  username: ann\n"));
    let (text, outcome) = set(c, &["endpoint", "ftp://nowhere"]);
    assert_eq!((text.as_str(), outcome.code != 0), (c, true), "{}", outcome.err);
    let (text, outcome) = set(c, &["password", "secret"]);
    assert_eq!((text.as_str(), outcome.code), (c, 2), "{}", outcome.err);
}

#[test]
fn a_token_is_fetched_once_kept_and_used_again() {
    let server = crate::scripted::server_with(|line| {
        line.starts_with("POST /api-token-auth")
            .then(|| (200, r#"{"token":"fresh"}"#.to_owned()))
    });
    let shell = Shell::new();
    let text = format!(
        "dc1:\n  username: me\n  password: 0123\n  endpoint: {}\n",
        server.endpoint
    );
    shell.write(".paddle/config", &text);
    assert_eq!(shell.line("whoami").code, 0);
    assert_eq!(shell.line("whoami").code, 0);
    let logins = server.bodies("POST /api-token-auth");
    assert_eq!(logins.len(), 1);
    let login: serde_json::Value = serde_json::from_slice(&logins[0]).unwrap();
    assert_eq!(login["password"], "0123", "digits stay the text they are");
}

/// A server that accepts every password.
fn trusting() -> crate::scripted::Server {
    crate::scripted::server_with(|line| match line {
        "POST /api-token-auth" => Some((200, r#"{"token":"fresh"}"#.to_owned())),
        "POST /api/v1/logout" => Some((200, r#"{"code":200,"msg":"OK"}"#.to_owned())),
        _ => None,
    })
}

/// The user and the kind of login of the current datacenter.
fn current(shell: &Shell) -> (String, String) {
    let view: serde_json::Value = serde_json::from_str(&shell.line("config view -o json").out).unwrap();
    let entry = &view["datacenters"][0];
    let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    (text("username"), text("login"))
}

#[test]
fn later_commands_use_the_login_just_made() {
    let server = trusting();
    let mut shell = Shell::new();
    shell.set("PADDLECLOUD_PASSWORD", "a long secret");
    let entry = format!("dc1: # mine\n  endpoint: {}\n", server.endpoint);
    let file = shell.write(".paddle/config", &entry);
    let login = shell.line("login -username root@example.org");
    assert_eq!(login.err, "logged in to `dc1` as root@example.org\n");
    let root = ("root@example.org".to_owned(), "token".to_owned());
    assert_eq!(current(&shell), root, "the name is stored with the token");
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        entry,
        "no need to change it"
    );
    assert_eq!(
        shell.line("login").err,
        "logged in to `dc1` as root@example.org\n",
        "the next login needs no name"
    );
    assert_eq!(shell.line("logout").code, 0);
    assert_eq!(current(&shell), (String::new(), "none".to_owned()));

    let of_ann = entry.replace("mine\n", "mine\n  username: ann\n");
    shell.write(".paddle/config", &of_ann);
    let login = shell.line("login -username root@example.org");
    assert_eq!(
        shell.tidy(&login.err),
        "logged in to `dc1` as root@example.org\n\
         `username` of `dc1` in HOME/.paddle/config is now root@example.org\n"
    );
    assert_eq!(current(&shell), root);
    let changed = of_ann.replace("ann", "'root@example.org'");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), changed);
}

#[test]
fn a_login_that_the_configuration_would_undo_is_refused() {
    let server = trusting();
    let mut shell = Shell::new();
    shell.set("PADDLECLOUD_PASSWORD", "a long secret");
    let entry = format!(
        "dc1:\n  username: ann\n  password: old\n  endpoint: {}\n",
        server.endpoint
    );
    let file = shell.write(".paddle/config", &entry);
    let login = shell.line("login -username bob");
    assert_eq!(login.code, 2);
    assert_eq!(
        login.err,
        "error: commands would use the `password` of `dc1` in the configuration, not this login\n\
         hint: remove `password` there\n"
    );
    assert!(
        server.bodies("POST /api-token-auth").is_empty(),
        "nothing was sent"
    );
    assert_eq!(std::fs::read_to_string(file).unwrap(), entry);
    let login = Shell::at(&server.endpoint).line("login -username bob -password x");
    assert!(
        login.err.contains("would use the `token` of `dc1`"),
        "{}",
        login.err
    );

    let flow = format!(
        "datacenters: [{{name: dc1, username: ann, endpoint: '{}'}}]\n",
        server.endpoint
    );
    shell.write(".paddle/config", &flow);
    let login = shell.line("login -username bob");
    assert_eq!(login.code, 1, "{}", login.err);
    assert!(
        login
            .err
            .contains("hint: write `username: bob` to `dc1`; the login is stored"),
        "{}",
        login.err
    );
}

#[test]
fn a_token_of_the_configuration_needs_no_password() {
    let server = crate::scripted::server();
    let login = Shell::at(&server.endpoint).line("login");
    assert_eq!(
        (login.code, login.err.as_str()),
        (
            0,
            "logged in to `dc1` as me, with the `token` in the configuration\n"
        )
    );
    assert!(server.bodies("POST /api-token-auth").is_empty());
    let server = crate::scripted::server_with(|_| {
        Some((
            401,
            r#"{"code":401,"error":"unauthorized","msg":"this needs a login"}"#.to_owned(),
        ))
    });
    let refused = Shell::at(&server.endpoint).line("login");
    assert_eq!(refused.code, 1);
    assert_eq!(
        refused.err,
        "error: the server of `dc1` does not accept the `token` in the configuration\n\
         hint: set another one, or remove `token` and log in with a password\n"
    );
}
