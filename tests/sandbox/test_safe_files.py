"""Safe file access, through openat2 and through the walk by components that older kernels need."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sanderling.errors import UnsafePath
from sanderling.sandbox import safe_files


@pytest.fixture(params=["openat2", "by components"])
def root(request, tmp_path: Path, monkeypatch) -> Iterator[int]:
    """A workspace full of traps, beside a secret."""
    monkeypatch.setattr(safe_files, "_missing_calls", {437} if request.param == "by components" else set())
    (tmp_path / "secret").write_bytes(b"secret")
    work = tmp_path / "work"
    (work / "dir").mkdir(parents=True)
    (work / "plain").write_bytes(b"plain")
    (work / "dir" / "inner").write_bytes(b"inner")
    (work / "absolute").symlink_to(tmp_path / "secret")
    (work / "relative").symlink_to("plain")
    (work / "up").symlink_to("../secret")
    (work / "outside").symlink_to(tmp_path)
    (work / "inside").symlink_to("dir")
    (work / "loop").symlink_to("loop")
    (work / "magic").symlink_to("/proc/self/environ")
    (work / "hard").hardlink_to(tmp_path / "secret")
    os.mkfifo(work / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(work / "socket"))
    fd = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


TRAPS = (
    "absolute",
    "relative",
    "up",
    "outside/secret",
    "inside/inner",
    "loop",
    "magic",
    "hard",
    "fifo",
    "socket",
    "dir",
)
PATHS = ("", ".", "..", "../secret", "dir/../../secret", "/etc/passwd", "nul\0", "plain/", "dir/.")


@pytest.mark.parametrize("path", [*TRAPS, *PATHS, "missing", "plain/below"])
def test_traps_are_not_read(root: int, path: str) -> None:
    with pytest.raises(UnsafePath):
        safe_files.read_plain(root, path, 1000)


@pytest.mark.parametrize("path", [*TRAPS, *PATHS, "plain/below", "outside/new", "inside/new", "fifo/new"])
def test_traps_are_not_written(root: int, path: str, tmp_path: Path) -> None:
    with pytest.raises(UnsafePath):
        safe_files.write_plain(root, path, b"overwritten")
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["secret", "work"]


def test_plain_files_are_read_and_written(root: int) -> None:
    assert safe_files.read_plain(root, "dir/inner", 5) == b"inner"
    with pytest.raises(UnsafePath, match="at most 4"):
        safe_files.read_plain(root, "dir/inner", 4)
    safe_files.write_plain(root, "new/folder/file", b"1")
    safe_files.write_plain(root, "plain", b"shorter"[:2])
    assert safe_files.read_plain(root, "new/folder/file", 10) == b"1"
    assert safe_files.read_plain(root, "plain", 10) == b"sh"


def test_walk_names_every_kind(root: int) -> None:
    kinds = {entry.path: entry.kind for entry in safe_files.walk(root)}
    assert kinds["plain"] == kinds["dir/inner"] == "file"
    assert kinds["hard"] == "hard link"
    assert kinds["fifo"] == "fifo"
    assert kinds["socket"] == "socket"
    assert kinds["dir"] == "directory"
    assert {kinds[name] for name in ("absolute", "relative", "up", "outside", "inside", "loop", "magic")} == {"link"}
    assert not any(path.startswith(("outside/", "inside/")) for path in kinds)


def test_a_file_swapped_for_a_link_never_leaks(root: int, tmp_path: Path) -> None:
    work = tmp_path / "work"
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            (work / "temporary").symlink_to(tmp_path / "secret")
            (work / "temporary").replace(work / "swapped")
            (work / "temporary").write_bytes(b"harmless")
            (work / "temporary").replace(work / "swapped")

    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    try:
        for _ in range(1500):
            try:
                seen.add(safe_files.read_plain(root, "swapped", 100))
            except UnsafePath:
                seen.add(b"refused")
    finally:
        done.set()
        thread.join()
    assert b"secret" not in seen
    assert b"harmless" in seen


def test_our_own_want_of_descriptors_is_not_the_file_s_fault(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    root = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (root + 20, hard))
        with contextlib.suppress(OSError):
            while True:
                held.append(os.dup(root))
        for look in (lambda: safe_files.read_plain(root, "a", 10), lambda: list(safe_files.walk(root))):
            with pytest.raises(OSError, match="Too many open files") as caught:
                look()
            assert not isinstance(caught.value, UnsafePath)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in (*held, root):
            os.close(fd)
