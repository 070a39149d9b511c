//! A worker's own view of the file system: the machine's, plus the plan's folders and files.
//!
//! The new root is a small tmpfs. Every entry of `/` is bound into it, so that all programs and data stay where they
//! are, while files that the worker creates in `/` itself are private. A target that exists on the machine is covered.
//! For one that does not, the folders above it are rebuilt in the tmpfs with the machine's entries bound into them, so
//! that nothing is ever created outside. Those folders are read-only: a file written there by mistake would be lost
//! silently. Shared memory (`/dev/shm`) is private to the worker. All of it is in the calling process's mount namespace
//! and disappears with it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat, openat2, symlinkat,
};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_change, move_mount, open_tree,
    unmount,
};
use rustix::path::Arg;

use super::identity::act_as;
use super::{Refusal as _, Refused};
use paddlecloud_worker::protocol::{Bind, RunAs};

/// Space for `/train.list` and similar files; larger files belong in the storage.
const ROOT_SIZE: &str = "64m";
const ROOT_INODES: &str = "16384";
const BACKING: &str = ".backing";
const SHARED_MEMORY: &str = "/dev/shm";

/// What a view contains in addition to the machine's own files.
pub struct View<'a> {
    pub binds: &'a [Bind],
    /// Folders to cover. One that contains a target is not covered: the target would be covered too.
    pub hidden: &'a [PathBuf],
    /// Absolute paths and contents.
    pub files: Vec<(PathBuf, String)>,
    /// Mount a `/proc` for the process namespace of the caller.
    pub own_proc: bool,
    /// The size of `/dev/shm`; absent: the kernel's default, half the machine's memory.
    pub shared_memory: Option<u64>,
    /// The owner of the new root; absent: the caller.
    pub owner: Option<&'a RunAs>,
}

/// Enters the view. `cover` is any folder: it is covered while the view is built.
pub fn enter(view: &View<'_>, cover: &Path) -> Result<(), Refused> {
    view.check_paths()?;
    // Slave, not private: a later unmount on the machine must not be blocked by its copy in here.
    let propagation = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", propagation).refused(|| "make mounts private".into())?;

    // Copy before the new root covers anything.
    let skeleton = Skeleton::plan(view)?;
    let copies = view.binds.iter().map(|bind| Ok((bind, view.copy(bind)?)));
    let copies = copies.collect::<Result<Vec<_>, Refused>>()?;
    let root = Root::mount(cover, view.owner)?;
    // Mount points in a bind are created with its owner's privileges: the owner may have placed links on the way.
    let acting = view.owner.map(act_as).transpose();
    let acting = acting.refused(|| "act as the worker's user".into())?;
    root.fill(view, &skeleton, copies)?;
    drop(acting);
    root.hide(view)?;
    root.become_root().refused(|| "change to the private root".into())
}

impl View<'_> {
    fn targets(&self) -> impl Iterator<Item = &Path> {
        let files = self.files.iter().map(|(path, _)| path.as_path());
        self.binds.iter().map(|bind| bind.target.as_path()).chain(files)
    }

    fn check_paths(&self) -> Result<(), Refused> {
        let plain = |path: &Path| {
            let mut parts = path.components();
            parts.next() == Some(Component::RootDir)
                && parts.clone().next().is_some()
                && parts.all(|part| matches!(part, Component::Normal(_)))
        };
        match self.targets().find(|target| !plain(target)) {
            Some(target) => Err(io::Error::from(io::ErrorKind::InvalidInput))
                .refused(|| format!("show something at `{}`", target.display())),
            None => Ok(()),
        }
    }

    /// Whether the target is inside another bind's target. Its mount point then belongs to that bind's source.
    fn is_nested(&self, target: &Path) -> bool {
        self.binds
            .iter()
            .any(|bind| target != bind.target && target.starts_with(&bind.target))
    }

    fn copy(&self, bind: &Bind) -> Result<Graft, Refused> {
        let what = || show(bind);
        let source = self.open_source(bind).refused(what)?;
        let kind = FileType::from_raw_mode(fstat(&source).refused(what)?.st_mode);
        let tree = copy_tree(&source, "").refused(what)?;
        if bind.read_only {
            make_read_only(&tree, Depth::All).refused(what)?;
        }
        Ok(if kind.is_dir() {
            Graft::Folder(tree)
        } else {
            Graft::File(tree)
        })
    }

    /// The operator chooses the outermost source. Its owner controls what is inside, so links must not lead out.
    fn open_source(&self, bind: &Bind) -> io::Result<OwnedFd> {
        let around = self.binds.iter().map(|bind| bind.source.as_path());
        let outermost = around
            .filter(|source| bind.source.starts_with(source))
            .min_by_key(|source| source.components().count())
            .unwrap_or(&bind.source);
        // Unlike opening, stat also triggers automounts.
        fs::metadata(outermost)?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let base = openat(CWD, outermost, flags, Mode::empty())?;
        match bind.source.strip_prefix(outermost) {
            Ok(below) if !below.as_os_str().is_empty() => {
                let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
                Ok(openat2(&base, below, flags, Mode::empty(), beneath)?)
            }
            _ => Ok(base),
        }
    }
}

fn show(bind: &Bind) -> String {
    format!("show `{}` at `{}`", bind.source.display(), bind.target.display())
}

/// The contents of the new root before the plan is applied.
struct Skeleton {
    folders: BTreeSet<PathBuf>,
    grafts: Vec<(PathBuf, Graft)>,
}

enum Graft {
    Folder(OwnedFd),
    File(OwnedFd),
    Link(PathBuf),
}

impl Skeleton {
    fn plan(view: &View<'_>) -> Result<Self, Refused> {
        let missing: BTreeSet<_> = view
            .targets()
            .filter(|target| !view.is_nested(target) && fs::metadata(target).is_err())
            .collect();
        let above = missing.iter().flat_map(|target| target.ancestors().skip(1));
        let folders: BTreeSet<_> = above.chain([Path::new("/")]).map(Path::to_owned).collect();
        let mut grafts = Vec::new();
        for folder in &folders {
            for entry in entries_of(folder).refused(|| format!("list `{}`", folder.display()))? {
                let is_replaced = folders.contains(&entry)
                    || missing.contains(entry.as_path())
                    || (view.own_proc && entry == Path::new("/proc"));
                if !is_replaced {
                    grafts.extend(graft(&entry).map(|graft| (entry, graft)));
                }
            }
        }
        Ok(Self { folders, grafts })
    }

    /// The rebuilt folders that are in the root itself.
    fn tops(&self) -> impl Iterator<Item = &Path> {
        let in_root = |folder: &&Path| folder.parent() == Some(Path::new("/"));
        self.folders.iter().map(PathBuf::as_path).filter(in_root)
    }

    fn build(&self, root: &Root) -> Result<(), Refused> {
        for folder in self.folders.iter().filter(|folder| folder.parent().is_some()) {
            mkdirat(&root.dir, inside(folder), Mode::from_raw_mode(0o755))
                .refused(|| format!("make `{}`", folder.display()))?;
        }
        for (path, graft) in &self.grafts {
            root.put_graft(path, graft)
                .refused(|| format!("show `{}`", path.display()))?;
        }
        Ok(())
    }
}

fn entries_of(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(folder.join(entry?.file_name()))).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// An entry that cannot be bound (removed meanwhile, or marked unbindable) is left out.
fn graft(path: &Path) -> Option<Graft> {
    let kind = fs::symlink_metadata(path).ok()?.file_type();
    let graft = if kind.is_symlink() {
        fs::read_link(path).map(Graft::Link)
    } else {
        copy_tree(CWD, path).map(|tree| {
            if kind.is_dir() {
                Graft::Folder(tree)
            } else {
                Graft::File(tree)
            }
        })
    };
    graft
        .inspect_err(|error| crate::trouble!("`{}` is not visible to the worker: {error}", path.display()))
        .ok()
}

/// A detached copy of the mounts at and below a path; an empty path means the folder itself.
fn copy_tree(dir: impl AsFd, path: impl Arg) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_NO_AUTOMOUNT;
    Ok(open_tree(dir, path, flags)?)
}

/// Which mounts of a tree to change.
#[derive(Clone, Copy)]
enum Depth {
    Top,
    All,
}

/// Flags that a user namespace locks stay unchanged.
fn make_read_only(tree: &OwnedFd, depth: Depth) -> io::Result<()> {
    let recursive = match depth {
        Depth::Top => 0,
        Depth::All => libc::AT_RECURSIVE,
    };
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the path is an empty C string, the struct outlives the call and its size is given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The new root, while it is still a folder of the old one.
struct Root {
    dir: OwnedFd,
}

impl Root {
    fn mount(cover: &Path, owner: Option<&RunAs>) -> Result<Self, Refused> {
        let what = || "mount a private root".to_owned();
        let owner = owner.map(|owner| (owner.uid.to_string(), owner.gid.to_string()));
        let mut options = vec![("size", ROOT_SIZE), ("nr_inodes", ROOT_INODES), ("mode", "755")];
        if let Some((uid, gid)) = &owner {
            options.extend([("uid", uid.as_str()), ("gid", gid)]);
        }
        let tmpfs = new_mount("tmpfs", &options).refused(what)?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(&tmpfs, "", CWD, cover, flags).refused(what)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, cover, flags, Mode::empty()).refused(what)?;
        Ok(Self { dir })
    }

    fn fill(
        &self,
        view: &View<'_>,
        skeleton: &Skeleton,
        mut copies: Vec<(&Bind, Graft)>,
    ) -> Result<(), Refused> {
        skeleton.build(self)?;
        if view.own_proc {
            self.mount_proc()?;
        }
        copies.sort_by_key(|(bind, _)| bind.target.components().count());
        for (bind, copy) in copies {
            self.put_bind(bind, &copy)?;
        }
        for (path, contents) in &view.files {
            self.put_file(path, contents, view.is_nested(path))?;
        }
        self.mount_shared_memory(view.shared_memory)?;
        skeleton.tops().try_for_each(|top| self.lock(top))
    }

    /// Covers folders, also those that only the caller can reach.
    fn hide(&self, view: &View<'_>) -> Result<(), Refused> {
        let hides_nothing_else = |folder: &&PathBuf| !view.targets().any(|target| target.starts_with(folder));
        for folder in view.hidden.iter().filter(hides_nothing_else) {
            let cover = || {
                let tmpfs = new_mount("tmpfs", &[("size", "4k"), ("mode", "555")])?;
                make_read_only(&tmpfs, Depth::Top)?;
                self.attach(&tmpfs, folder)
            };
            cover().refused(|| format!("hide `{}`", folder.display()))?;
        }
        Ok(())
    }

    /// Without the folder, the machine has no named shared memory, and its workers have none either.
    fn mount_shared_memory(&self, size: Option<u64>) -> Result<(), Refused> {
        let what = || format!("mount a private {SHARED_MEMORY}");
        let path = Path::new(SHARED_MEMORY);
        if self.open(path, OFlags::PATH | OFlags::DIRECTORY).is_err() {
            return Ok(());
        }
        let size = size.map(|size| size.max(1).to_string());
        let mut options = vec![("mode", "1777")];
        options.extend(size.as_deref().map(|size| ("size", size)));
        let tmpfs = new_mount("tmpfs", &options).refused(what)?;
        self.attach(&tmpfs, path).refused(what)
    }

    /// Covers a folder of the new root with a read-only bind of itself; mounts inside it stay unchanged.
    fn lock(&self, folder: &Path) -> Result<(), Refused> {
        let lock = || {
            let tree = copy_tree(&self.dir, inside(folder))?;
            make_read_only(&tree, Depth::Top)?;
            self.attach(&tree, folder)
        };
        lock().refused(|| format!("make `{}` read-only", folder.display()))
    }

    fn mount_proc(&self) -> Result<(), Refused> {
        let what = || "mount a private /proc".to_owned();
        let proc = new_mount("proc", &[]).refused(what)?;
        mkdirat(&self.dir, "proc", Mode::from_raw_mode(0o555)).refused(what)?;
        self.attach(&proc, Path::new("/proc")).refused(what)
    }

    fn put_graft(&self, path: &Path, graft: &Graft) -> io::Result<()> {
        match graft {
            Graft::Link(target) => return Ok(symlinkat(target, &self.dir, inside(path))?),
            Graft::Folder(_) => mkdirat(&self.dir, inside(path), Mode::from_raw_mode(0o755))?,
            Graft::File(_) => self.create(path, "")?,
        }
        let (Graft::Folder(tree) | Graft::File(tree)) = graft else {
            return Ok(());
        };
        self.attach(tree, path)
    }

    fn put_bind(&self, bind: &Bind, source: &Graft) -> Result<(), Refused> {
        let (made, tree) = match source {
            Graft::Folder(tree) => (self.make_folder(&bind.target), tree),
            Graft::File(tree) => (self.make_file(&bind.target), tree),
            Graft::Link(_) => return Ok(()),
        };
        made.and_then(|()| self.attach(tree, &bind.target))
            .refused(|| show(bind))
    }

    /// Writes the file if its path is in the new root; otherwise covers the existing file, so that neither the machine
    /// nor the storage ever contains the contents.
    fn put_file(&self, path: &Path, contents: &str, in_a_bind: bool) -> Result<(), Refused> {
        let put = || {
            if in_a_bind {
                self.make_file(path)?;
            }
            if self.open(path, OFlags::PATH).is_err() {
                return self.create(path, contents);
            }
            self.create(Path::new(BACKING), contents)?;
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let tree = open_tree(&self.dir, BACKING, flags)?;
            self.attach(&tree, path)?;
            Ok(rustix::fs::unlinkat(&self.dir, BACKING, AtFlags::empty())?)
        };
        put().refused(|| format!("write the private file `{}`", path.display()))
    }

    fn create(&self, path: &Path, contents: &str) -> io::Result<()> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&self.dir, inside(path), flags, Mode::from_raw_mode(0o644))?;
        io::Write::write_all(&mut fs::File::from(file), contents.as_bytes())
    }

    /// Creates a folder and its missing parents, unless the path exists: in the new root, or in the source of the
    /// surrounding bind.
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        if self.open(path, OFlags::PATH).is_ok() {
            return Ok(());
        }
        let (parent, name) = self.make_parent(path)?;
        Ok(mkdirat(&parent, name, Mode::from_raw_mode(0o755))?)
    }

    /// The same for an empty file.
    fn make_file(&self, path: &Path) -> io::Result<()> {
        if self.open(path, OFlags::PATH).is_ok() {
            return Ok(());
        }
        let (parent, name) = self.make_parent(path)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        openat(&parent, name, flags, Mode::from_raw_mode(0o644))?;
        Ok(())
    }

    fn make_parent<'p>(&self, path: &'p Path) -> io::Result<(OwnedFd, &'p OsStr)> {
        let parent = path.parent().unwrap_or(Path::new("/"));
        self.make_folder(parent)?;
        let parent = self.open(parent, OFlags::PATH)?;
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((parent, name))
    }

    fn attach(&self, tree: &OwnedFd, path: &Path) -> io::Result<()> {
        let place = self.open(path, OFlags::PATH)?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        Ok(move_mount(tree, "", &place, "", flags)?)
    }

    /// Resolves a path as the worker will: absolute links start at the new root.
    fn open(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        Ok(openat2(
            self.dir.as_fd(),
            path,
            flags,
            Mode::empty(),
            ResolveFlags::IN_ROOT,
        )?)
    }

    fn become_root(self) -> io::Result<()> {
        rustix::process::fchdir(&self.dir)?;
        // The old root is mounted over the new one and then detached with everything in it.
        rustix::process::pivot_root(".", ".")?;
        unmount(".", UnmountFlags::DETACH)?;
        Ok(rustix::process::chdir("/")?)
    }
}

fn new_mount(kind: &str, options: &[(&str, &str)]) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(context.as_fd(), *key, *value)?;
    }
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}

/// A path of the worker relative to its root.
fn inside(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}
