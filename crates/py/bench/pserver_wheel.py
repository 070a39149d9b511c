"""Installs a wheel for `bench_pserver.py` without an index: a virtual environment beside the packages of this Python."""

import os
import shutil
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path


def install(wheel, folder):
    """Makes the environment and returns its Python. All that is installed for this Python is visible there."""
    folder = Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, system_site_packages=True, with_pip=False, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages, programs = folder / "lib" / version / "site-packages", folder / "bin"
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            _, is_script, script = name.partition(".data/scripts/")
            _, is_pure, pure = name.partition(".data/purelib/")
            target = programs / script if is_script else packages / (pure if is_pure else name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(name))
            if is_script:
                target.chmod(0o755)
    # This Python may itself be a virtual environment, whose packages the new one would not see.
    (packages / "outside.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    return str(programs / "python")


def restart_with(wheel, folder, script, arguments):
    """Runs a script in an environment with the wheel, and ends with it."""
    python = install(wheel, folder)
    search = f"{os.path.dirname(python)}:{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": search, "VIRTUAL_ENV": str(folder)}
    sys.exit(subprocess.run([python, script, *arguments], env=environment).returncode)
