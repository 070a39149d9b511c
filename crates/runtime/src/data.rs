//! `paddle-data`: splits a data set among the nodes of a job, as a job.
//!
//! Settings come from the documented environment variables, files from the command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use paddlecloud_dataprep::DataError;
use paddlecloud_dataprep::split::{self, BadPartCount, By, Divided, FirstRow, PartCount, Request, UnknownBy};

const HELP: &str = "\
paddle-data: divides files among the nodes of a job

Usage: OUT_DIR=<folder> SPLIT_COUNT=<nodes> paddle-data [--by=UNIT] [--header|--no-header] [FILE…]

Node i finds its share in OUT_DIR/<i>/data; OUT_DIR/output is created for results. Lines of text, rows of CSV and
records of RecordIO are distributed round-robin, compressed with gzip or not. Any other file goes as a whole to the
node with the least data so far. The header of a CSV file goes to every node: its first row is a header unless it
contains a number or two equal cells, or --no-header is given. A folder means the files in it; without FILE, the
files below OUT_DIR/quick_start are divided. The input files are not changed. A second run replaces the result of
the first.

Environment:
  OUT_DIR       the folder to divide into
  SPLIT_COUNT   the number of nodes
  SPLIT_BY      the unit if --by is not given: auto (the default), file, line, row (of CSV) or record
  SPLIT_HEADER  yes for --header, no for --no-header
";

/// Why a data set was not split.
#[derive(Debug, thiserror::Error)]
enum DataFailure {
    #[error("`{0}` is not set")]
    NotSet(&'static str),
    #[error("SPLIT_COUNT: {0}")]
    Count(BadPartCount),
    #[error(transparent)]
    By(#[from] UnknownBy),
    #[error("SPLIT_HEADER is `{0}`: write `yes` or `no`, or leave it out")]
    Header(String),
    #[error("unknown flag `{0}`")]
    Flag(String),
    #[error(transparent)]
    Data(#[from] DataError),
}

impl DataFailure {
    /// 2 for an invalid call, 1 for invalid data.
    fn exit_code(&self) -> u8 {
        match self {
            Self::Data(_) => 1,
            _ => 2,
        }
    }

    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotSet("OUT_DIR") => Some("set it to the output folder"),
            Self::NotSet(_) => Some("set it to the number of nodes"),
            Self::Flag(_) => {
                Some("`paddle-data --help` lists all flags; write `--` before file names that begin with `-`")
            }
            _ => None,
        }
    }
}

/// What the command line requests.
#[derive(Debug, PartialEq, Eq)]
enum Call {
    Help,
    Divide(Wish),
}

/// What to split, as far as the command line states it.
#[derive(Debug, PartialEq, Eq)]
struct Wish {
    by: Option<String>,
    first_row: Option<FirstRow>,
    files: Vec<PathBuf>,
}

pub fn main(args: &[OsString]) -> ExitCode {
    let env = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let divided = match Call::parse(args) {
        Ok(Call::Help) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Ok(Call::Divide(wish)) => divide(wish, env),
        Err(failure) => Err(failure),
    };
    match divided {
        Ok((divided, request)) => {
            print!("{}", summary(&divided, &request));
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("error: {}", chain(&failure));
            if let Some(hint) = failure.hint() {
                eprintln!("hint: {hint}");
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

impl Call {
    fn parse(args: &[OsString]) -> Result<Self, DataFailure> {
        let (mut by, mut first_row, mut files) = (None, None, Vec::new());
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            match arg.to_str() {
                Some("--") => {
                    files.extend(rest.by_ref().map(PathBuf::from));
                }
                Some("-h" | "--help" | "-help") => return Ok(Self::Help),
                Some("--header" | "-header") => first_row = Some(FirstRow::Names),
                Some("--no-header" | "-no-header") => first_row = Some(FirstRow::Data),
                Some("--by" | "-by") => by = Some(text_of(rest.next())),
                Some(flag) if flag.starts_with('-') && flag.len() > 1 => {
                    let value = flag.trim_start_matches('-').strip_prefix("by=");
                    by = Some(
                        value
                            .ok_or_else(|| DataFailure::Flag(flag.to_owned()))?
                            .to_owned(),
                    );
                }
                _ => files.push(PathBuf::from(arg)),
            }
        }
        Ok(Self::Divide(Wish { by, first_row, files }))
    }
}

fn text_of(arg: Option<&OsString>) -> String {
    arg.map(|arg| arg.to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn divide(wish: Wish, env: impl Fn(&str) -> Option<OsString>) -> Result<(Divided, Request), DataFailure> {
    let request = request(wish, env)?;
    let divided = split::run(&request, &mut |_, _| {})?;
    Ok((divided, request))
}

fn request(wish: Wish, env: impl Fn(&str) -> Option<OsString>) -> Result<Request, DataFailure> {
    let Wish { by, first_row, files } = wish;
    let set = |name: &'static str| env(name).ok_or(DataFailure::NotSet(name));
    let by = by.or_else(|| env("SPLIT_BY").map(|by| text_of(Some(&by))));
    Ok(Request {
        inputs: files,
        out: PathBuf::from(set("OUT_DIR")?),
        parts: text_of(Some(&set("SPLIT_COUNT")?))
            .parse::<PartCount>()
            .map_err(DataFailure::Count)?,
        by: by.map_or(Ok(By::Auto), |by| by.parse())?,
        first_row: match first_row {
            Some(first_row) => first_row,
            None => first_row_of(env("SPLIT_HEADER"))?,
        },
    })
}

fn first_row_of(setting: Option<OsString>) -> Result<FirstRow, DataFailure> {
    let text = setting.map(|setting| text_of(Some(&setting)));
    match text.as_deref() {
        None => Ok(FirstRow::AsItLooks),
        Some("yes" | "true" | "1") => Ok(FirstRow::Names),
        Some("no" | "false" | "0") => Ok(FirstRow::Data),
        Some(other) => Err(DataFailure::Header(other.to_owned())),
    }
}

fn summary(divided: &Divided, request: &Request) -> String {
    let mut text = String::new();
    for file in &divided.files {
        let unit = match file.by {
            By::Line => counted(file.units, "line"),
            By::Row if file.has_names => format!("{}, header to every node", counted(file.units, "row")),
            By::Row => format!("{}, no header", counted(file.units, "row")),
            By::Record => counted(file.units, "record"),
            _ => "whole, to one node".to_owned(),
        };
        text.push_str(&format!("{}: {unit}\n", file.name.display()));
    }
    let (nodes, files) = (request.parts.get(), divided.files.len());
    let bytes: u64 = divided.part_bytes.iter().sum();
    let out = request.out.display();
    text.push_str(&format!(
        "{}, {} for {} in {out}\n",
        counted(files as u64, "file"),
        counted(bytes, "byte"),
        counted(nodes as u64, "node"),
    ));
    text
}

/// `1 file`, `2 files`.
fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}

/// The error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Call, DataFailure> {
        Call::parse(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    fn wish(by: Option<&str>, files: &[&str]) -> Wish {
        Wish {
            by: by.map(str::to_owned),
            first_row: None,
            files: files.iter().map(PathBuf::from).collect(),
        }
    }

    #[test]
    fn one_of_a_kind_has_no_plural() {
        assert_eq!([counted(1, "row"), counted(0, "row")], ["1 row", "0 rows"]);
    }

    #[test]
    fn flags_and_files_are_distinguished() {
        assert_eq!(parse("a b").unwrap(), Call::Divide(wish(None, &["a", "b"])));
        assert_eq!(
            parse("a --by=line").unwrap(),
            Call::Divide(wish(Some("line"), &["a"]))
        );
        assert_eq!(
            parse("-by line -- -x --help").unwrap(),
            Call::Divide(wish(Some("line"), &["-x", "--help"]))
        );
        let with_data = Wish {
            first_row: Some(FirstRow::Data),
            ..wish(None, &["a"])
        };
        assert_eq!(parse("--no-header a").unwrap(), Call::Divide(with_data));
        assert_eq!(parse("a -h").unwrap(), Call::Help);
        assert!(matches!(parse("--bye"), Err(DataFailure::Flag(flag)) if flag == "--bye"));
    }

    #[test]
    fn a_missing_setting_is_named() {
        let ask = |pairs: &[(&str, &str)], by: Option<&str>| {
            request(wish(by, &["a"]), |name| {
                let found = pairs.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            })
            .map_err(|failure| (chain(&failure), failure.exit_code()))
        };
        let out = ("OUT_DIR", "/data/job");
        assert_eq!(
            ask(&[], None).unwrap_err(),
            ("`OUT_DIR` is not set".to_owned(), 2)
        );
        assert_eq!(
            ask(&[out], None).unwrap_err(),
            ("`SPLIT_COUNT` is not set".to_owned(), 2)
        );
        let (words, code) = ask(&[out, ("SPLIT_COUNT", "0")], None).unwrap_err();
        assert!(
            words.starts_with("SPLIT_COUNT: `0` is not a number of nodes") && code == 2,
            "{words}"
        );
        assert_eq!(words.matches("number of nodes").count(), 1, "{words}");
        let all = [out, ("SPLIT_COUNT", "3"), ("SPLIT_BY", "file")];
        assert_eq!(ask(&all, None).unwrap().by, By::File);
        assert_eq!(ask(&all, Some("line")).unwrap().by, By::Line);
        assert!(ask(&all, Some("word")).is_err());
        let header = |value| ask(&[out, ("SPLIT_COUNT", "3"), ("SPLIT_HEADER", value)], None);
        assert_eq!(header("no").unwrap().first_row, FirstRow::Data);
        assert_eq!(header("yes").unwrap().first_row, FirstRow::Names);
        assert_eq!(header("maybe").unwrap_err().1, 2);
    }
}
