//! Copies between this machine and the cluster, and inside the cluster: what `cp`, `file` and `sync` share.
//!
//! Decides what goes where and reports the result; the client library moves the bytes.

mod across;
mod behind;
mod clearing;
mod crossing;
mod down;
pub mod filter;
pub mod local;
pub mod location;
mod mirror;
mod options;
mod pipe;
mod progress;
pub mod remote;
pub mod report;
pub mod rules;
mod unfinished;
mod up;

use std::future::Future;
use std::path::PathBuf;

use paddlecloud_pfs::PfsPath;
use paddlecloud_pfs::sync::Compare;
use paddlecloud_transfer::{Download, FileClient, FileService, Outcome, Summary, TransferOptions, Upload};

pub use self::across::into_itself;
use self::filter::Selection;
use self::location::{Location, Remote, translate_datacenter};
pub use self::mirror::{Mirror, mirror};
pub use self::options::TransferArgs;
pub use self::pipe::print_files;
use self::progress::{Line, REFRESH, Watch};
use self::report::{Lost, TransferTotals, counted, foreseen};
use self::rules::{Landing, RuleError, Style, TransferSource};
pub use self::up::place_there;
use crate::commands::Context;
use crate::error::CliError;
use crate::session::Session;
use crate::world::World;

/// The copy that was requested.
#[derive(Debug)]
pub struct Copy {
    pub sources: Vec<Location>,
    pub dest: Location,
    pub recursive: bool,
    pub style: Style,
}

/// More sources than this share one line: a shell may expand `*.jpg` to thousands.
const OWN_LINES: usize = 8;

/// Copies, reports the result and returns the exit code.
pub async fn copy(copy: Copy, args: &TransferArgs, context: &mut Context<'_>) -> Result<u8, CliError> {
    Way::of(&copy)?.must_suit(args)?;
    let selection = args.filter.selection()?;
    let session = context.session().await?;
    carry_out(copy, &session, args.options(), selection, context.world).await
}

/// Copies the contents of a folder of the cluster to a local folder of any name, whether that folder exists or not.
pub async fn fetch_contents(
    folder: &str,
    dest: PathBuf,
    session: &Session,
    args: &TransferArgs,
    world: &mut World,
) -> Result<u8, CliError> {
    let copy = Copy {
        sources: vec![Location::Remote(Remote::contents_of(folder)?)],
        dest: Location::Local(dest),
        recursive: true,
        style: Style::Cp,
    };
    let selection = args.filter.selection()?;
    carry_out(copy, session, args.options(), selection, world).await
}

async fn carry_out(
    mut copy: Copy,
    session: &Session,
    options: TransferOptions,
    selection: Selection,
    world: &mut World,
) -> Result<u8, CliError> {
    let ends = copy.sources.iter_mut().chain([&mut copy.dest]);
    translate_datacenter(session, ends.filter_map(Location::as_remote_mut)).await?;
    let way = Way::of(&copy)?;
    if let Way::PipeDown(sources) = &way {
        return print_files(session, sources, None, world).await;
    }
    let mut transfer = Transfer::new(session, options, selection, world);
    let copied = match &way {
        Way::Up(sources, dest) => transfer.up(sources, dest, &copy).await,
        Way::Down(sources, dest) => transfer.down(sources, dest, &copy).await,
        Way::Across(sources, dest) => transfer.across(sources, dest, &copy).await,
        Way::PipeUp(dest) => transfer.pipe_up(dest).await,
        Way::PipeDown(_) => Ok(()),
    };
    transfer.end(copied)
}

/// The direction of a transfer.
#[derive(Debug)]
enum Way<'a> {
    Up(Vec<&'a std::path::Path>, &'a location::Remote),
    Down(Vec<&'a location::Remote>, &'a std::path::Path),
    Across(Vec<&'a location::Remote>, &'a location::Remote),
    PipeUp(&'a location::Remote),
    PipeDown(Vec<location::Remote>),
}

impl<'a> Way<'a> {
    fn of(copy: &'a Copy) -> Result<Way<'a>, CliError> {
        let (mut here, mut there, mut pipes) = (Vec::new(), Vec::new(), 0);
        for source in &copy.sources {
            match source {
                Location::Local(path) => here.push(path.as_path()),
                Location::Remote(remote) => there.push(remote),
                Location::Pipe => pipes += 1,
            }
        }
        match (&copy.dest, here.is_empty(), there.is_empty(), pipes) {
            (Location::Remote(dest), false, true, 0) => Ok(Way::Up(here, dest)),
            (Location::Remote(dest), true, false, 0) => Ok(Way::Across(there, dest)),
            (Location::Remote(dest), true, true, 1) => Ok(Way::PipeUp(dest)),
            (Location::Local(dest), true, false, 0) => Ok(Way::Down(there, dest)),
            (Location::Pipe, true, false, 0) => Ok(Way::PipeDown(there.into_iter().cloned().collect())),
            (Location::Local(_) | Location::Pipe, _, true, _) => {
                Err(CliError::usage("neither the source nor the destination is on the cluster")
                    .with_hint("paths on the cluster look like `/pfs/<datacenter>/home/<user>/…`; between local folders, use the system's own `cp`"))
            }
            _ => Err(CliError::usage(
                "sources must all be local, all on the cluster, or a single `-`",
            )),
        }
    }
}

impl Way<'_> {
    /// Refuses flags that have no effect on a pipe: the caller expects one.
    fn must_suit(&self, args: &TransferArgs) -> Result<(), CliError> {
        let (flag, end) = match self {
            Way::PipeUp(_) => (args.unfit_for_stdin(), "source"),
            Way::PipeDown(_) => (args.unfit_for_stdout(), "destination"),
            _ => return Ok(()),
        };
        match flag {
            Some(flag) => Err(CliError::usage(format!(
                "`{flag}` cannot be used if the {end} is `-`"
            ))),
            None => Ok(()),
        }
    }
}

/// A transfer in progress.
pub struct Transfer<'a> {
    files: FileClient<'a>,
    /// Where that server is.
    server: String,
    options: TransferOptions,
    selection: Selection,
    world: &'a mut World,
    tally: TransferTotals,
    /// Failed before anything was sent, and not yet counted by a line: names of the list that do not exist, and
    /// unreadable folders.
    unreported: usize,
    /// The folder of the cluster that was created last: thousands of files may go there.
    made: Option<PfsPath>,
    /// `sent`, `received` or `copied`: the verb for the bytes in the last line.
    moved: &'static str,
}

impl<'a> Transfer<'a> {
    pub fn new(
        session: &'a Session,
        options: TransferOptions,
        selection: Selection,
        world: &'a mut World,
    ) -> Transfer<'a> {
        Transfer {
            files: session.client.files().patient(),
            server: session.client.endpoint().to_string(),
            options,
            selection,
            world,
            tally: TransferTotals::default(),
            unreported: 0,
            made: None,
            moved: "sent",
        }
    }

    /// Reports what was done and what was not, and returns the exit code, even after an error that ended the transfer.
    fn end(self, done: Result<(), CliError>) -> Result<u8, CliError> {
        if let Err(error) = done {
            if self.has_changed_something() && !self.options.dry_run {
                self.world.err.line(self.tally.words(self.moved));
            }
            self.tally.list_lost(self.world);
            return Err(error);
        }
        if self.options.dry_run {
            self.world.err.line(foreseen(&self.tally.foreseen()));
        } else if self.tally.failures() == 0 || self.has_changed_something() {
            self.world.err.line(self.tally.words(self.moved));
        }
        self.tally.end("copy", self.world)
    }

    fn has_changed_something(&self) -> bool {
        self.tally.transferred + self.tally.removed > 0
    }

    /// Records a selected entry that is not copied; the next line counts it.
    fn leave(&mut self, lost: Lost) {
        self.tally.lose(lost);
        self.unreported += 1;
    }

    /// How files of the cluster are compared with each other.
    fn compare(&self) -> Compare {
        match self.options.checksum {
            true => Compare::Digest,
            false => Compare::SizeAndTime,
        }
    }

    fn watch(&self) -> Watch {
        if self.options.dry_run {
            Watch::remembering()
        } else {
            Watch::default()
        }
    }

    async fn send(&mut self, what: &str, uploads: Vec<Upload>) -> Result<(), CliError> {
        let (files, options, watch) = (self.files, self.options.clone(), self.watch());
        let work = files.upload(uploads, &options, &watch);
        let summary = self.show(&format!("Uploading {what}"), &watch, work).await?;
        self.record(summary, &watch)
    }

    async fn fetch(&mut self, what: &str, downloads: Vec<Download>) -> Result<(), CliError> {
        self.moved = "received";
        let (files, options, watch) = (self.files, self.options.clone(), self.watch());
        let work = files.download(downloads, &options, &watch);
        let summary = self.show(&format!("Downloading {what}"), &watch, work).await?;
        self.record(summary, &watch)
    }

    /// Shows progress until the work is done. After Ctrl-C it can be resumed.
    async fn show(
        &mut self,
        title: &str,
        watch: &Watch,
        work: impl Future<Output = Summary>,
    ) -> Result<Summary, CliError> {
        if self.options.dry_run {
            return Ok(work.await);
        }
        let line = Line::begin(title.to_owned(), &mut self.world.err);
        let mut work = std::pin::pin!(work);
        let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
        let mut tick = tokio::time::interval(REFRESH);
        loop {
            tokio::select! {
                summary = &mut work => {
                    let arrived = summary.transferred + summary.unchanged + summary.kept;
                    let lost = summary.failures.len() + std::mem::take(&mut self.unreported);
                    match (lost, arrived) {
                        (0, _) => line.end("Done", &mut self.world.err),
                        (_, 0) => line.end("Failed", &mut self.world.err),
                        (lost, _) => line.end(&format!("Done, {lost} failed"), &mut self.world.err),
                    }
                    return Ok(summary);
                }
                _ = tick.tick() => line.refresh(watch),
                _ = &mut interrupt => {
                    line.end("Failed", &mut self.world.err);
                    return Err(CliError::refused("interrupted")
                        .with_hint("run the same command again to resume"));
                }
            }
        }
    }

    fn record(&mut self, summary: Summary, watch: &Watch) -> Result<(), CliError> {
        self.tally.add(summary);
        for (path, outcome) in watch.take_outcomes() {
            match outcome {
                Outcome::Transferred => self.world.out.line(format!("copy {path}"))?,
                Outcome::Kept => self.world.out.line(format!("keep {path}"))?,
                Outcome::Unchanged => {}
            }
        }
        Ok(())
    }

    /// Pairs every source with its destination; sources without one are reported.
    fn land<T>(
        &mut self,
        sources: Vec<T>,
        of: impl Fn(&T) -> &TransferSource,
        request: rules::Request,
        dest: &str,
    ) -> Result<Vec<(T, Landing)>, CliError> {
        let plain: Vec<TransferSource> = sources.iter().map(|source| of(source).clone()).collect();
        let landings = rules::landings(&plain, request).map_err(|error| no_place("copy", dest, &error))?;
        let mut landed = Vec::new();
        for (source, landing) in sources.into_iter().zip(landings) {
            match landing {
                Ok(landing) => landed.push((source, landing)),
                Err(error) => {
                    if error == RuleError::NeedsRecursive {
                        self.tally.hint("`-r` copies folders with everything in them");
                    }
                    self.tally
                        .lose(Lost::new(of(&source).shown.clone(), error.to_string()));
                }
            }
        }
        Ok(landed)
    }
}

/// Nothing at all can go to this destination.
pub fn no_place(verb: &str, dest: &str, error: &RuleError) -> CliError {
    let refused = CliError::refused(format!("cannot {verb} to `{dest}`: {error}"));
    match error {
        RuleError::NoSuchFolder => {
            refused.with_hint("end the destination with `/` to make a folder of that name")
        }
        _ => refused,
    }
}

/// One line per source, or one for all when there are many.
fn in_lines<T>(work: Vec<(String, T)>) -> Vec<(String, Vec<T>)> {
    if work.len() <= OWN_LINES {
        return work.into_iter().map(|(what, one)| (what, vec![one])).collect();
    }
    let what = counted(work.len() as u64);
    vec![(what, work.into_iter().map(|(_, one)| one).collect())]
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn way(sources: &[&str], dest: &str) -> Result<&'static str, CliError> {
        let parse = |text: &&str| Location::parse(OsStr::new(text)).unwrap();
        let copy = Copy {
            sources: sources.iter().map(parse).collect(),
            dest: parse(&dest),
            recursive: false,
            style: Style::Cp,
        };
        Way::of(&copy).map(|way| match way {
            Way::Up(..) => "up",
            Way::Down(..) => "down",
            Way::Across(..) => "across",
            Way::PipeUp(_) => "pipe up",
            Way::PipeDown(_) => "pipe down",
        })
    }

    #[test]
    fn the_direction_follows_from_the_locations() {
        const THERE: &str = "/pfs/dc/home/me/a";
        assert_eq!(way(&["a", "b"], THERE).unwrap(), "up");
        assert_eq!(way(&[THERE, THERE], ".").unwrap(), "down");
        assert_eq!(way(&[THERE], THERE).unwrap(), "across");
        assert_eq!(way(&["-"], THERE).unwrap(), "pipe up");
        assert_eq!(way(&[THERE], "-").unwrap(), "pipe down");
        for (sources, dest) in [
            (&["a"][..], "b"),
            (&["a"], "-"),
            (&["-"], "b"),
            (&["a", THERE], THERE),
            (&["-", "-"], THERE),
            (&["-", "a"], THERE),
        ] {
            assert!(way(sources, dest).is_err(), "{sources:?} {dest}");
        }
    }

    #[test]
    fn a_few_sources_have_their_own_lines_and_many_share_one() {
        let work = |count: usize| (0..count).map(|at| (at.to_string(), at)).collect();
        assert_eq!(in_lines::<usize>(work(2)).len(), 2);
        let shared = in_lines::<usize>(work(1000));
        assert_eq!((shared.len(), shared[0].0.as_str()), (1, "1000 files"));
    }
}
