"""What reading, writing and listing files promises, above all that no link, device or path trick is followed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from sanderling.errors import SandboxBroken, SandboxError, UnsafePath
from sanderling.sandbox.protocol import SandboxBackend, SandboxSpec
from sanderling.testing.sandbox_canaries import planted_files, shared_places
from sanderling.testing.sandbox_check import (
    SMALL,
    Check,
    Kind,
    NotApplicable,
    Violation,
    contract,
    expect,
    expect_equal,
    run_inside,
    sandbox_of,
)
from sanderling.types import JsonValue


async def refused(call: Awaitable[object], what: str) -> None:
    """Await a call that has to raise `UnsafePath` within 3 s."""
    try:
        answer = await asyncio.wait_for(call, 3.0)
    except UnsafePath:
        return
    except TimeoutError:
        raise Violation(f"{what}: expected UnsafePath, the call blocked for 3 s") from None
    except Exception as error:
        raise Violation(f"{what}: expected UnsafePath, got {error!r}") from error
    raise Violation(f"{what}: expected UnsafePath, got the answer {answer!r:.100}")


def _inside_trap(kind: str, outside: str) -> JsonValue:
    import os
    import socket

    os.mkdir("inner")
    with open("inner/file", "w") as file:
        file.write("plain")
    links = {
        "absolute_link": outside,
        "relative_link": "inner/file",
        "escaping_link": "../" * 12 + outside.lstrip("/"),
        "magic_link": "/proc/self/root" + outside,
        "dangling_link": "nowhere",
        "loop": "trap",
    }
    if kind in links:
        os.symlink(links[kind], "trap")
    elif kind == "link_in_the_middle":
        os.symlink("inner", "trap")
    elif kind == "outside_directory_link":
        os.symlink(os.path.dirname(outside), "trap")
    elif kind == "hard_link":
        os.link("inner/file", "trap")
    elif kind == "fifo":
        os.mkfifo("trap")
    elif kind == "socket":
        socket.socket(socket.AF_UNIX).bind("trap")
    elif kind == "directory":
        os.mkdir("trap")
    elif kind == "device":
        for device in (os.makedev(1, 3), 0):
            try:
                os.mknod("trap", 0o020666, device)
                return "made"
            except OSError:
                continue
        return "can't make a device"
    elif kind == "too_large":
        with open("trap", "w") as file:
            file.write("x" * 1001)
    return "made"


TRAPS = {
    "absolute_link": "trap",
    "relative_link": "trap",
    "escaping_link": "trap",
    "magic_link": "trap",
    "dangling_link": "trap",
    "loop": "trap",
    "link_in_the_middle": "trap/file",
    "outside_directory_link": "trap/secret",
    "hard_link": "trap",
    "fifo": "trap",
    "socket": "trap",
    "directory": "trap",
    "device": "trap",
    "too_large": "trap",
    "missing": "trap",
}


def _read_refusal(kind: str, path: str) -> Check:
    async def run(backend: SandboxBackend) -> None:
        with planted_files() as planted:
            async with sandbox_of(backend) as sandbox:
                if await run_inside(sandbox, _inside_trap, kind, planted.paths[0]) != "made":
                    raise NotApplicable(f"{kind} can't be made inside this sandbox")
                await refused(sandbox.read_file(path, max_bytes=1000), f"read_file of a {kind}")
                if kind != "hard_link":  # there it is the same file
                    expect_equal(await sandbox.read_file("inner/file"), b"plain", "the plain file beside it")

    description = f"read_file refuses a {kind.replace('_', ' ')} and doesn't block."
    return Check(id=f"read_refuses_{kind}", kind=Kind.CONTRACT, description=description, run=run)


HOSTILE_PATHS = ("../outside", "sub/../../outside", "/etc/passwd", "", ".", "..", "nul\0byte", "/work/../etc/passwd")


async def read_refuses_paths(backend: SandboxBackend) -> None:
    """read_file refuses paths that are absolute, empty, hold `..` or a NUL byte."""
    async with sandbox_of(backend, {"file": b"x"}) as sandbox:
        for path in HOSTILE_PATHS:
            await refused(sandbox.read_file(path), f"read_file({path!r})")


async def write_refuses_paths(backend: SandboxBackend) -> None:
    """write_file refuses paths that are absolute, empty, hold `..` or a NUL byte."""
    async with sandbox_of(backend, {"file": b"x"}) as sandbox:
        for path in (*HOSTILE_PATHS, "file/below"):
            await refused(sandbox.write_file(path, b"y"), f"write_file({path!r})")
        expect_equal(await sandbox.list_files(), ("file",), "files after the refusals")


async def write_refuses_links(backend: SandboxBackend) -> None:
    """write_file changes nothing through a link, at the end or in the middle of a path."""
    with planted_files() as planted:
        for kind, path in (
            ("absolute_link", "trap"),
            ("outside_directory_link", "trap/secret"),
            ("escaping_link", "trap"),
        ):
            async with sandbox_of(backend) as sandbox:
                await run_inside(sandbox, _inside_trap, kind, planted.paths[0])
                try:
                    await sandbox.write_file(path, b"overwritten")
                except UnsafePath:
                    pass
                else:
                    # Replacing a final link by a plain file is as good as refusing; writing below a linked directory isn't.
                    expect(path == "trap", f"write_file({path!r}) below a linked directory: expected UnsafePath")
                    expect_equal(await sandbox.read_file(path), b"overwritten", "the file that replaced the link")
            expect_equal(planted.changes(), [], f"files of the host after writing through a {kind}")


async def write_to_special(backend: SandboxBackend) -> None:
    """write_file onto a FIFO, a socket or a directory is refused or replaces it, and never blocks."""
    for kind in ("fifo", "socket", "directory"):
        async with sandbox_of(backend) as sandbox:
            await run_inside(sandbox, _inside_trap, kind, "/nowhere")
            try:
                await asyncio.wait_for(sandbox.write_file("trap", b"content"), 3.0)
            except UnsafePath:
                continue
            except TimeoutError:
                raise Violation(f"write_file onto a {kind} blocked for 3 s") from None
            expect_equal(await sandbox.read_file("trap"), b"content", f"the file that replaced a {kind}")


async def file_round_trip(backend: SandboxBackend) -> None:
    """Every byte survives writing and reading, from outside and from inside, in nested directories and after replacing."""
    content = bytes(range(256)) * 40
    async with sandbox_of(backend, {"base/deep/er.bin": content}) as sandbox:
        expect_equal(await sandbox.read_file("base/deep/er.bin"), content, "file of the spec")
        await sandbox.write_file("new/nested/file.bin", content[::-1])
        expect_equal(await sandbox.read_file("new/nested/file.bin"), content[::-1], "written file")
        code_answer = await run_inside(sandbox, _inside_copy, "new/nested/file.bin", "copy.bin")
        expect_equal(code_answer, len(content), "bytes seen inside")
        expect_equal(await sandbox.read_file("copy.bin"), content[::-1], "file written inside")
        await sandbox.write_file("copy.bin", b"")
        expect_equal(await sandbox.read_file("copy.bin"), b"", "replaced by an empty file")


def _inside_copy(source: str, target: str) -> JsonValue:
    with open(source, "rb") as file:
        content = file.read()
    with open(target, "wb") as file:
        return file.write(content)


async def file_names(backend: SandboxBackend) -> None:
    """Names with unicode, spaces, quotes, newlines and leading dashes are names like others."""
    names = ("ünïcødé 沙.py", "a b'c\"d", "-rf", "line\nbreak", "tab\t", ".hidden", "*", "dir with space/§.txt")
    async with sandbox_of(backend, {name: name.encode() for name in names}) as sandbox:
        expect_equal(await sandbox.list_files(), tuple(sorted(names)), "list_files")
        for name in names:
            expect_equal(await sandbox.read_file(name), name.encode(), f"content of {name!r}")
            await sandbox.write_file(name, b"changed")
            expect_equal(await run_inside(sandbox, _inside_length, name), 7, f"length of {name!r} inside")


def _inside_length(path: str) -> JsonValue:
    import os

    return os.path.getsize(path)


async def written_files_belong_inside(backend: SandboxBackend) -> None:
    """Files of the spec and of write_file can be changed and removed by commands."""
    async with sandbox_of(backend, {"base/file": b"x"}) as sandbox:
        await sandbox.write_file("later/file", b"y")
        answer = await run_inside(sandbox, _inside_modify, ["base/file", "later/file"])
        expect_equal(answer, "done", "changing files inside")
        expect_equal(await sandbox.list_files(), ("base/other", "later/other"), "files afterwards")


def _inside_modify(paths: list) -> JsonValue:
    import os

    for path in paths:
        with open(path, "a") as file:
            file.write("more")
        os.rename(path, os.path.dirname(path) + "/renamed")
        os.unlink(os.path.dirname(path) + "/renamed")
        with open(os.path.dirname(path) + "/other", "w") as file:
            file.write("new")
    return "done"


def _inside_zoo() -> JsonValue:
    import os

    os.makedirs("empty/dir")
    os.symlink("a", "link")
    os.symlink("/", "root")
    os.mkfifo("fifo")
    with open("z", "w") as file:
        file.write("z")
    return "made"


async def list_plain_files(backend: SandboxBackend) -> None:
    """list_files gives the plain files only, sorted, and follows no link."""
    async with sandbox_of(backend, {"b/c": b"", "a": b""}) as sandbox:
        expect_equal(await sandbox.list_files(), ("a", "b/c"), "list_files of the base")
        await run_inside(sandbox, _inside_zoo)
        expect_equal(await sandbox.list_files(), ("a", "b/c", "z"), "list_files beside links, FIFOs and directories")


async def create_refuses_paths(backend: SandboxBackend) -> None:
    """create refuses files whose path leaves the workspace."""
    for path in ("../outside", "/absolute", "a/../../outside", "", "."):
        for spec in (
            SandboxSpec(files={path: b"x"}, limits=SMALL),
            SandboxSpec(files={}, readonly={path: b"x"}, limits=SMALL),
        ):
            try:
                sandbox = await backend.create(spec)
            except (UnsafePath, ValueError):
                continue
            await sandbox.destroy()
            raise Violation(f"create with the file {path!r}: expected UnsafePath, got a sandbox")


async def base_untouched(backend: SandboxBackend) -> None:
    """What one sandbox does to its files is not seen by the next one of the same spec."""
    spec = SandboxSpec(files={"file": b"base", "dir/other": b"base"}, limits=SMALL)
    keys = []
    for _ in range(2):
        sandbox = await backend.create(spec)
        try:
            keys.append(await sandbox.state_key())
            expect_equal(await sandbox.read_file("file"), b"base", "base file")
            await run_inside(sandbox, _inside_modify, ["dir/other"])
            await sandbox.write_file("file", b"changed")
        finally:
            await sandbox.destroy()
    expect_equal(keys[1], keys[0], "state_key of a second sandbox")


def _inside_wipe(mode: str) -> JsonValue:
    import os
    import shutil

    places = (".", "/tmp", os.path.expanduser("~"))
    if mode == "wipe":
        for place in places:
            for name in os.listdir(place):
                path = os.path.join(place, name)
                if os.path.isdir(path) and not os.path.islink(path):
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    os.unlink(path)
    elif mode == "forbid":
        os.mkdir("closed")
        with open("closed/file", "w") as file:
            file.write("x")
        os.chmod("closed", 0)
        os.chmod("solution.py", 0)
        os.chmod(".", 0)
    elif mode == "deep":
        for _ in range(700):
            os.mkdir("d" * 20)
            os.chdir("d" * 20)
        with open("bottom", "w") as file:
            file.write("x")
    return mode


def _destruction(mode: str, description: str) -> Check:
    async def run(backend: SandboxBackend) -> None:
        async with sandbox_of(backend, {"solution.py": b"x = 1\n", "dir/file": b"y"}) as sandbox:
            if mode == "wipe" and (shared := await shared_places(sandbox)):
                raise NotApplicable(f"commands see {shared} of the host, which a check must not destroy")
            await run_inside(sandbox, _inside_wipe, mode)
            for what, call in (
                ("exec", lambda: run_inside(sandbox, _inside_length, "/")),
                ("list_files", sandbox.list_files),
                ("state_key", sandbox.state_key),
                ("read_file", lambda: sandbox.read_file("solution.py")),
                ("submission", lambda: sandbox.submission(("*.py",))),
            ):
                try:
                    await call()
                except (SandboxBroken, UnsafePath, Violation):
                    continue
                except SandboxError as error:
                    raise Violation(f"{what}: expected an answer or SandboxBroken, got {error!r}") from error

    return Check(id=f"survives_{mode}", kind=Kind.CONTRACT, description=description, run=run)


CHECKS: tuple[Check, ...] = (
    *(_read_refusal(kind, path) for kind, path in TRAPS.items()),
    *(
        contract(run)
        for run in (
            read_refuses_paths,
            write_refuses_paths,
            write_refuses_links,
            write_to_special,
            file_round_trip,
            file_names,
            written_files_belong_inside,
            list_plain_files,
            create_refuses_paths,
            base_untouched,
        )
    ),
    _destruction("wipe", "After `rm -rf` of everything it may write, calls answer or raise SandboxBroken."),
    _destruction("forbid", "After taking away all permissions of its files, calls answer or raise SandboxBroken."),
    _destruction("deep", "After building a tree deeper than a path can name, calls answer or raise SandboxBroken."),
)
