//! Round trips of models in every format, whole and as changes.

use super::*;

fn words(line: &[&str]) -> Vec<OsString> {
    line.iter().map(OsString::from).collect()
}

/// A model with a dense parameter and a table.
fn model(folder: &Path, name: &str, w: &[f32], ids: &[u64], rows: &[f32]) -> PathBuf {
    let model = folder.join(name);
    fs::create_dir_all(&model).unwrap();
    write_parameter(&model.join("w"), w).unwrap();
    write_parameter(&model.join("b.ids-like"), &[0.1]).unwrap();
    write_table(&model.join("emb"), ids, rows).unwrap();
    fs::write(model.join("done"), "").unwrap();
    model
}

fn files(model: &Path) -> Vec<(String, Parameter)> {
    let names = parameters(model).unwrap();
    let read = |name: String| (name.clone(), Parameter::read(model, &name).unwrap());
    names.into_iter().map(read).collect()
}

const TARGETS: [(&str, &str); 3] = [
    ("numpy", "arrays"),
    ("safetensors", "m.safetensors"),
    ("text", "lines"),
];

#[test]
fn a_model_survives_a_round_trip_through_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let ids = [7, u64::MAX, 0];
    let rows = [1.5, -0.1, f32::MIN_POSITIVE, 3e38, 0.0, -0.0];
    let saved = model(folder.path(), "pass-00000", &[0.1, 2.0, -3.25], &ids, &rows);
    for (format, to) in TARGETS {
        let to = folder.path().join(to);
        let back = folder.path().join(format!("back-{format}"));
        let [model, to, back] = [&saved, &to, &back].map(|path| path.to_str().unwrap());
        export(&words(&["--format", format, model, to])).unwrap();
        // The import detects the format.
        import(&words(&[to, back])).unwrap();
        assert_eq!(files(Path::new(back)), files(&saved), "{format}");
    }
}

#[test]
fn changes_since_an_earlier_save_bring_it_up_to_date() {
    let folder = tempfile::tempdir().unwrap();
    let before = model(
        folder.path(),
        "pass-00000",
        &[1.0],
        &[1, 2],
        &[1.0, 1.0, 2.0, 2.0],
    );
    let after = model(
        folder.path(),
        "pass-00001",
        &[5.0],
        &[1, 2, 3],
        &[1.0, 1.0, 2.0, 9.0, 3.0, 3.0],
    );
    for (format, to) in TARGETS {
        let to = folder.path().join(to);
        let again = folder.path().join(format!("again-{format}"));
        let [before, model, to, back] = [&before, &after, &to, &again].map(|path| path.to_str().unwrap());
        let said = export(&words(&[
            "--format",
            format,
            &format!("--since={before}"),
            model,
            to,
        ]))
        .unwrap();
        // The unchanged parameter and the unchanged row are left out.
        assert!(said.starts_with("exported 2 parameters"), "{said}");
        import(&words(&["--onto", before, to, back])).unwrap();
        assert_eq!(files(&again), files(&after), "{format}");
    }
    let text = fs::read_to_string(folder.path().join("lines/emb.txt")).unwrap();
    assert_eq!(text, "# id row\n2 2 9\n3 3 3\n");
}

#[test]
fn an_unconvertible_model_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let error = export(&words(&[&path("none"), &path("x")]))
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("is not a complete model: it has no file `done`"),
        "{error}"
    );
    fs::create_dir(path("arrays")).unwrap();
    fs::write(folder.path().join("arrays/w.npy"), b"no numpy").unwrap();
    let error = import(&words(&[&path("arrays"), &path("m")]))
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("w.npy` cannot be imported: it is not a numpy file"),
        "{error}"
    );
    fs::write(path("short.safetensors"), u64::MAX.to_le_bytes()).unwrap();
    let error = import(&words(&[&path("short.safetensors"), &path("m")])).unwrap_err();
    assert!(error.to_string().ends_with("it ends in its header"), "{error}");
    let error = export(&words(&["--frmat", "text"])).unwrap_err().to_string();
    assert!(error.starts_with("unknown option `--frmat`"), "{error}");
    let error = export(&words(&["--format=csv", "a", "b"]))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("`--format` must be numpy, safetensors or text, not `csv`"),
        "{error}"
    );
}

/// Names that a file cannot have, and one that would be the ids of a table.
#[test]
fn names_and_shapes_of_frameworks_survive_an_export() {
    let folder = tempfile::tempdir().unwrap();
    let saved = model(folder.path(), "pass-00000", &[1.0], &[], &[]);
    let names = ["user/embedding", "100%", "größe", "done", "emb.ids"];
    for name in names {
        write_parameter(&saved.join(file_name(name)), &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    }
    let shapes = names.map(|name| (name.to_owned(), vec![2, 3]));
    shapes::write(&saved.join("done"), &shapes).unwrap();
    for (format, to) in [TARGETS[0], TARGETS[2]] {
        let to = folder.path().join(to);
        let back = folder.path().join(format!("back-{format}"));
        let [model, to, back] = [&saved, &to, &back].map(|path| path.to_str().unwrap());
        export(&words(&["--format", format, model, to])).unwrap();
        import(&words(&[to, back])).unwrap();
        assert_eq!(files(Path::new(back)), files(&saved), "{format}");
    }
    let numpy = fs::read(folder.path().join("arrays/user%2Fembedding.npy")).unwrap();
    assert!(String::from_utf8_lossy(&numpy).contains("'shape': (2,3,)"));
    // A safetensors file has one name for both.
    let to = folder.path().join("m.safetensors");
    let [model, to] = [&saved, &to].map(|path| path.to_str().unwrap());
    let told = export(&words(&[model, to])).unwrap_err().to_string();
    assert!(told.ends_with("two parameters would be `emb.ids`"), "{told}");
    fs::remove_file(saved.join(file_name("emb.ids"))).unwrap();
    export(&words(&[model, to])).unwrap();
    let text = fs::read(to).unwrap();
    assert!(String::from_utf8_lossy(&text).contains(r#""user/embedding":{"data_offsets""#));
    assert!(String::from_utf8_lossy(&text).contains(r#""shape":[2,3]"#));
}
