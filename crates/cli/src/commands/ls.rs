//! `ls [-r] <dir>`: lists files of the cluster.

use std::ffi::OsString;

use futures_util::{StreamExt, stream};
use paddlecloud_api::files::{FileKind, FileMeta, FileView, WirePath, below, space_of};
use paddlecloud_pfs::{PfsPath, RelPath};
use paddlecloud_transfer::{FileClient, FileService, ListOptions};
use serde::Serialize;

use super::{Context, home, modified};
use crate::error::{CliError, DONE};
use crate::printer::{Format, Paint, Printer};
use crate::time_text::size;
use crate::transfer::location::{Above, Remote, reach};
use crate::transfer::remote::{self, LINKS_AT_A_TIME, as_typed, is_about_one_path};
use crate::transfer::report::{Lost, TransferTotals};

/// List files on PaddlePaddle Cloud
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Paths `/pfs/…`; default: your home; `*` and `?` match names
    paths: Vec<OsString>,

    /// List folders recursively
    #[arg(long, short, visible_short_alias = 'R')]
    recursive: bool,

    /// Show types, sizes and times
    #[arg(long, short)]
    long: bool,

    /// Print readable sizes: `3.4 MB`
    // The id takes the place of the top-level `-h` here; `--help` still shows help.
    #[arg(id = "help", long = "human-readable", short = 'h')]
    human: bool,

    /// Include names that start with a dot
    #[arg(long, short)]
    all: bool,

    /// Output format
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<Format>,
}

impl Args {
    /// A listing without any flag.
    pub fn plain(paths: Vec<OsString>) -> Args {
        Args {
            paths,
            recursive: false,
            long: false,
            human: false,
            all: false,
            output: None,
        }
    }

    fn shows(&self, path: &RelPath) -> bool {
        self.all || !path.parts().any(|part| part.starts_with(b"."))
    }
}

/// One node, for programs.
#[derive(Debug, Serialize)]
pub struct Row {
    pub path: String,
    pub kind: FileKind,
    pub size: u64,
    pub modified: String,
    pub executable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

impl Row {
    pub fn new(path: &PfsPath, meta: &FileMeta) -> Row {
        Row {
            path: path.to_string(),
            kind: meta.kind,
            size: meta.size,
            modified: modified(meta.mtime),
            executable: meta.executable,
            target: meta.target.as_ref().map(ToString::to_string),
            digest: meta.digest.as_ref().map(ToString::to_string),
        }
    }
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    if let [path] = args.paths.as_slice()
        && let Some(above) = Above::parse(path)
    {
        return list_above(&above, args, context).await;
    }
    let (session, mut paths) = reach(&args.paths, context).await?;
    if paths.is_empty() {
        paths.push(home(&session).await?);
    }
    let files = session.client.files();
    let mut tally = TransferTotals::default();
    let named = Named::by(&files, &paths, &mut tally).await?;
    let mut lister = Lister {
        args,
        out: &mut context.world.out,
        rows: Vec::new(),
        headed: paths.len() > 1 || named.count() > 1,
        blocks: 0,
    };
    lister.nodes(&named.nodes)?;
    for folder in &named.folders {
        match lister.folder(&files, folder, &mut tally).await {
            Err(CliError::Client(error)) if is_about_one_path(&error) => {
                tally.refuse(folder.to_string(), &error);
            }
            listed => listed?,
        }
    }
    lister.end()?;
    match tally.failures() {
        0 => Ok(DONE),
        _ => tally.end("list", context.world),
    }
}

/// Lists what the caller may see of `/pfs` itself: the datacenter, the public folder and their own home.
async fn list_above(above: &Above, args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    if args.recursive {
        return Err(
            CliError::refused(format!("`{above}` cannot be listed recursively")).with_hint(
                "`ls -r` takes a path in your home or in the public space; `whoami` shows your home",
            ),
        );
    }
    let session = context.session().await?;
    let me = session.client.whoami_get().await?;
    let out = &mut context.world.out;
    let names = match above {
        Above::Pfs => vec![me.datacenter.as_str(), "public"],
        Above::Datacenter(name) | Above::Homes(name)
            if *name != me.datacenter && *name != session.datacenter =>
        {
            return Err(CliError::refused(format!("`{above}` does not exist"))
                .with_hint(format!("your home is `{}`", me.home)));
        }
        Above::Datacenter(_) => vec!["home", "public"],
        Above::Homes(_) => vec![me.user.as_str()],
    };
    let rows: Vec<AboveRow> = names
        .iter()
        .map(|name| AboveRow {
            path: format!("{above}/{name}"),
            kind: FileKind::Folder,
        })
        .collect();
    if out.structured(args.output, &rows)? {
        return Ok(DONE);
    }
    for name in names {
        match (
            out.colour,
            args.long || args.output == Some(Format::Wide),
            out.is_terminal,
        ) {
            (_, true, true) => out.line(format!("{:<7} {:>12}  {:<20}  {name}", "folder", "-", "-"))?,
            (_, true, false) => out.line(format!("folder\t-\t-\t{name}"))?,
            (true, false, _) => out.painted(Paint::Blue, name)?,
            (false, false, _) => out.line(name)?,
        }
    }
    Ok(DONE)
}

/// A folder above all homes, for programs. It has no size and no time.
#[derive(Debug, Serialize)]
struct AboveRow {
    path: String,
    kind: FileKind,
}

/// The nodes that the arguments name, in the order of ls(1): files first.
#[derive(Debug, Default)]
struct Named {
    nodes: Vec<FileView>,
    /// Also through links: the contents of their targets are listed.
    folders: Vec<PfsPath>,
}

impl Named {
    async fn by(
        files: &FileClient<'_>,
        arguments: &[Remote],
        tally: &mut TransferTotals,
    ) -> Result<Named, CliError> {
        let mut named = Named::default();
        for argument in arguments {
            if !argument.is_pattern() {
                let path = &argument.path;
                let meta = files.stat(path).await.and_then(|meta| as_typed(path, meta));
                if let Some(meta) = tally.pass(path, meta)? {
                    named.take(path.into(), meta);
                }
                continue;
            }
            let found = tally.pass(&argument.path, remote::find(files, argument).await)?;
            let looked = stream::iter(found.unwrap_or_default()).map(async |view| {
                let behind = match view.meta.kind {
                    // A broken link is shown as a link.
                    FileKind::Link => files.stat(&view.path.0).await.ok(),
                    _ => None,
                };
                let behind = behind.filter(FileMeta::is_folder);
                (view.path, behind.unwrap_or(view.meta))
            });
            let mut looked = std::pin::pin!(looked.buffered(LINKS_AT_A_TIME));
            while let Some((path, meta)) = looked.next().await {
                named.take(path, meta);
            }
        }
        Ok(named)
    }

    fn take(&mut self, path: WirePath, meta: FileMeta) {
        match meta.is_folder() {
            true => self.folders.push(path.0),
            false => self.nodes.push(FileView { path, meta }),
        }
    }

    fn count(&self) -> usize {
        self.nodes.len() + self.folders.len()
    }
}

struct Lister<'a> {
    args: &'a Args,
    out: &'a mut Printer,
    /// Collected for JSON and YAML.
    rows: Vec<Row>,
    /// Whether every folder gets a heading, as ls(1) prints for several.
    headed: bool,
    blocks: usize,
}

impl Lister<'_> {
    /// Nodes that were named themselves are shown with their full paths.
    fn nodes(&mut self, views: &[FileView]) -> Result<(), CliError> {
        for view in views {
            self.show_whole(&view.path.0, &view.meta)?;
        }
        self.blocks += usize::from(!views.is_empty());
        Ok(())
    }

    /// The contents of a folder; unreadable entries are reported.
    async fn folder(
        &mut self,
        files: &FileClient<'_>,
        folder: &PfsPath,
        tally: &mut TransferTotals,
    ) -> Result<(), CliError> {
        let options = ListOptions {
            recursive: self.args.recursive,
            digests: false,
        };
        let mut listing = files.list(folder, options).await?;
        self.head(folder)?;
        while let Some(entry) = listing.next_readable().await? {
            if !self.args.shows(&entry.path) {
                continue;
            }
            let Ok(path) = below(folder, &entry.path) else {
                continue;
            };
            match self.is_whole() {
                true => self.show_whole(&path, &entry.meta)?,
                false => self.show(&path, entry.path.as_bytes(), &entry.path.to_string(), &entry.meta)?,
            }
        }
        for unread in listing.take_unread() {
            tally.lose(Lost::new(unread.path.to_string(), unread.error.msg));
        }
        Ok(())
    }

    /// Whether names are printed with their full paths: a program that reads lines has no use for headings.
    fn is_whole(&self) -> bool {
        self.headed && self.args.output.is_some()
    }

    fn head(&mut self, folder: &PfsPath) -> Result<(), CliError> {
        if !self.headed || self.is_whole() {
            return Ok(());
        }
        if self.blocks > 0 {
            self.out.line("")?;
        }
        self.blocks += 1;
        self.out.line(format!("{folder}:"))
    }

    fn show_whole(&mut self, path: &PfsPath, meta: &FileMeta) -> Result<(), CliError> {
        self.show(path, &raw(path), &path.to_string(), meta)
    }

    fn show(&mut self, path: &PfsPath, raw: &[u8], text: &str, meta: &FileMeta) -> Result<(), CliError> {
        match self.args.output {
            Some(Format::Json | Format::Yaml) => self.rows.push(Row::new(path, meta)),
            Some(Format::Wide) => self.long(raw, text, meta)?,
            None if self.args.long => self.long(raw, text, meta)?,
            Some(Format::Name) | None => self.name(raw, text, meta)?,
        }
        Ok(())
    }

    /// Programs get the name byte by byte, people get readable text.
    fn name(&mut self, raw: &[u8], text: &str, meta: &FileMeta) -> Result<(), CliError> {
        if !self.out.is_terminal {
            self.out.bytes(raw)?;
            return self.out.bytes(b"\n");
        }
        match colour(meta).filter(|_| self.out.colour) {
            Some(paint) => self.out.painted(paint, text),
            None => self.out.line(text),
        }
    }

    fn long(&mut self, raw: &[u8], text: &str, meta: &FileMeta) -> Result<(), CliError> {
        let size = match self.args.human {
            true => size(meta.size),
            false => meta.size.to_string(),
        };
        let (kind, time) = (kind_word(meta), modified(meta.mtime));
        let cells = if self.out.is_terminal {
            format!("{kind:<7} {size:>12}  {time}  ")
        } else {
            format!("{kind}\t{size}\t{time}\t")
        };
        self.out.bytes(cells.as_bytes())?;
        match &meta.target {
            None => self.name(raw, text, meta),
            Some(target) => self.out.line(format!("{text} -> {target}")),
        }
    }

    fn end(self) -> Result<(), CliError> {
        self.out.structured(self.args.output, &self.rows).map(drop)
    }
}

/// A full path, byte by byte.
fn raw(path: &PfsPath) -> Vec<u8> {
    let inside = &path.place().path;
    match inside.is_root() {
        true => path.to_string().into_bytes(),
        false => [space_of(path).to_string().as_bytes(), b"/", inside.as_bytes()].concat(),
    }
}

fn kind_word(meta: &FileMeta) -> &'static str {
    match meta.kind {
        FileKind::File if meta.executable => "program",
        FileKind::File => "file",
        FileKind::Folder => "folder",
        FileKind::Link => "link",
        FileKind::Special => "special",
    }
}

fn colour(meta: &FileMeta) -> Option<Paint> {
    match meta.kind {
        FileKind::Folder => Some(Paint::Blue),
        FileKind::Link => Some(Paint::Cyan),
        FileKind::File if meta.executable => Some(Paint::Green),
        FileKind::File | FileKind::Special => None,
    }
}
