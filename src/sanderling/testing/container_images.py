"""A small container image of this machine's own Python and shell, so that tests with a real engine fetch nothing.

What stands in it: the interpreter that runs us with its standard library (nothing that is installed into it), a shell, the
usual small programs, and the shared libraries that these need.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path

from sanderling.errors import SandboxUnavailable

HOST_IMAGE = "localhost/sanderling-host:test"
_PROGRAMS = (
    "sh", "cat", "chmod", "cp", "cut", "date", "dd", "echo", "env", "expr", "false", "find", "grep", "head", "id",
    "ln", "ls", "mkdir", "mkfifo", "mktemp", "mv", "nice", "nohup", "printf", "pwd", "readlink", "rm", "rmdir", "sed",
    "seq", "sha256sum", "sleep", "sort", "stat", "tail", "tee", "test", "timeout", "touch", "tr", "true", "uname",
    "uniq", "wc", "xargs",
)  # fmt: skip
_LEFT_OUT = {
    "__pycache__",
    "site-packages",
    "test",
    "tests",
    "idlelib",
    "ensurepip",
    "tkinter",
    "turtledemo",
    "lib2to3",
}
_PASSWORDS = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n"


def import_host_image(engine: str, name: str = HOST_IMAGE) -> str:
    """Import the image into an engine ("docker", "podman" or the path of such a program) and return its name.

    Raises:
        SandboxUnavailable: the engine refused.
    """
    arguments = [engine, "import", "--change", f"ENV PATH={_search_path()}", "-", name]
    done = subprocess.run(arguments, input=host_archive(), check=False, capture_output=True)
    if done.returncode != 0:
        raise SandboxUnavailable(f"{engine} can't import an image: {done.stderr.decode(errors='replace').strip()}")
    return name


def host_archive() -> bytes:
    """Return the file system of the image as a tar archive (uncompressed, about 100 MB)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        added: set[str] = set()
        for directory in ("/tmp", "/work", "/tools", "/home/agent", "/etc", "/bin"):
            _add_directory(archive, directory, added)
        _add_text(archive, "/etc/passwd", _PASSWORDS)
        _add_text(archive, "/etc/group", "root:x:0:\n")
        programs = [found for name in _PROGRAMS if (found := shutil.which(name, path="/usr/bin:/bin"))]
        for program in programs:
            _add_file(archive, Path(program).resolve(), f"/bin/{Path(program).name}", added)
        interpreter = list(_interpreter_files())
        for path in interpreter:
            _add_file(archive, path.resolve(), str(path), added)
        binaries = [Path(found).resolve() for found in programs]
        binaries += [path for path in interpreter if path.suffix == ".so" or path.parent.name == "bin"]
        for library in _libraries(binaries):
            _add_file(archive, Path(library).resolve(), library, added)
    return buffer.getvalue()


def _search_path() -> str:
    return f"{os.path.realpath(sys.base_prefix)}/bin:/usr/local/bin:/usr/bin:/bin"


def _interpreter_files() -> Iterable[Path]:
    prefix = Path(os.path.realpath(sys.base_prefix))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for name in ("python3", version):
        if (prefix / "bin" / name).exists():
            yield prefix / "bin" / name
    yield from sorted((prefix / "lib").glob(f"libpython{sys.version_info.major}*.so*"))
    for directory, names, files in os.walk(prefix / "lib" / version):
        names[:] = sorted(name for name in names if name not in _LEFT_OUT and not name.startswith("config-"))
        for name in sorted(files):
            yield Path(directory, name)


def _libraries(binaries: Iterable[Path]) -> list[str]:
    """Return the shared libraries of programs, under the names by which the loader asks for them."""
    found: set[str] = set()
    names = [str(path) for path in binaries if path.exists()]
    told = subprocess.run(["ldd", *names], check=False, capture_output=True, text=True).stdout
    for line in told.splitlines():
        place = line.partition("=>")[2] or line
        path = place.split("(")[0].strip()
        if path.startswith("/") and not path.endswith(":"):
            found.add(path)
    return sorted(found)


def _add_directory(archive: tarfile.TarFile, path: str, added: set[str]) -> None:
    for parent in [*reversed(Path(path).parents), Path(path)]:
        if str(parent) in added or str(parent) == "/":
            continue
        added.add(str(parent))
        entry = tarfile.TarInfo(str(parent).lstrip("/"))
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(entry)


def _add_file(archive: tarfile.TarFile, source: Path, path: str, added: set[str]) -> None:
    if path in added or not source.is_file():
        return
    _add_directory(archive, str(Path(path).parent), added)
    added.add(path)
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.size = source.stat().st_size
    entry.mode = 0o755 if os.access(source, os.X_OK) else 0o644
    with source.open("rb") as file:
        archive.addfile(entry, file)


def _add_text(archive: tarfile.TarFile, path: str, text: str) -> None:
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.size, entry.mode = len(text), 0o644
    archive.addfile(entry, io.BytesIO(text.encode()))
