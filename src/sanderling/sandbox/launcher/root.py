"""The launcher's own root directory: /usr, the interpreter and a handful of generated files.

Commands are started from here, so the paths of the host aren't merely hidden from them: they don't exist. The tree is a
tmpfs in a private mount namespace and vanishes with the launcher.
"""

from __future__ import annotations

import importlib.util
import marshal
import os
from dataclasses import dataclass

from . import seccomp, syscalls

STORES = "/s"
MERGED = "/m"
TOOLS = "/t"
EMPTY = "/e"
FILTER = "/seccomp.bpf"
INTERPRETER_BIN = "/run/interpreter"
# bytecode of the first processes of sandboxes that keep something between commands
SESSION_INIT = "/run/session_init.pyc"
INTERPRETER_INIT = "/run/interpreter_init.pyc"
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ETC = {
    "passwd": "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nagent:x:1000:1000:agent:/home/agent:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "host.conf": "multi on\n",
}
_ETC_FROM_HOST = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "mime.types")


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """Where the Python that runs us lives: a directory tree and the executable in it."""

    prefix: str
    executable: str
    hidden: tuple[str, ...] = ()  # directories that are empty for commands

    @property
    def outside_usr(self) -> bool:
        return os.path.commonpath([self.prefix, "/usr"]) != "/usr"


def build(base: str, interpreter: Interpreter) -> list[str]:
    """Mount the new root at `base`, move into it, and return the arguments that show the system to bubblewrap."""
    syscalls.mount("tmpfs", base, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=755,size=16m")
    for name in ("usr", "etc", "dev", "proc", "run", "tmp", "old", STORES[1:], MERGED[1:], TOOLS[1:], EMPTY[1:]):
        os.mkdir(f"{base}/{name}")
    syscalls.bind("/usr", f"{base}/usr")
    arguments = ["--ro-bind", "/usr", "/usr", *_link_or_bind_system(base)]
    _write_etc(base)
    arguments += ["--ro-bind", "/etc", "/etc"]
    _add_devices(base)
    arguments += _add_interpreter(base, interpreter)
    for path in interpreter.hidden:
        arguments += ["--ro-bind", EMPTY, path]
    _write(f"{base}{FILTER}", seccomp.program())
    syscalls.mount("proc", f"{base}/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)
    syscalls.mount("tmpfs", f"{base}{STORES}", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=755,size=16m")
    syscalls.pivot_root(base, f"{base}/old")
    os.chdir("/")
    syscalls.umount("/old")
    os.rmdir("/old")
    return arguments


def _write(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
    os.chmod(path, 0o444)


def _link_or_bind_system(base: str) -> list[str]:
    arguments: list[str] = []
    for name in _SYSTEM:
        source = f"/{name}"
        if os.path.islink(source):
            target = os.readlink(source).lstrip("/")
            os.symlink(target, f"{base}/{name}")
            arguments += ["--symlink", target, source]
        elif os.path.isdir(source):
            os.mkdir(f"{base}/{name}")
            syscalls.bind(source, f"{base}/{name}")
            arguments += ["--ro-bind", source, source]
    return arguments


def _write_etc(base: str) -> None:
    for name, content in _ETC.items():
        _write(f"{base}/etc/{name}", content.encode())
    for name in _ETC_FROM_HOST:
        source = f"/etc/{name}"
        if os.path.isdir(source):
            os.mkdir(f"{base}/etc/{name}")
            for entry in os.scandir(source):
                _copy_entry(entry.path, f"{base}/etc/{name}/{entry.name}")
        elif os.path.exists(source):
            _copy_entry(source, f"{base}/etc/{name}")


def _copy_entry(source: str, target: str) -> None:
    try:
        if os.path.islink(source):
            os.symlink(os.readlink(source), target)
        elif os.path.isfile(source):
            with open(source, "rb") as file:
                _write(target, file.read())
    except OSError:
        pass  # a nicety that this user may not read; nothing depends on it


def _add_devices(base: str) -> None:
    for name in _DEVICES:
        os.close(os.open(f"{base}/dev/{name}", os.O_CREAT | os.O_WRONLY, 0o666))
        syscalls.bind(f"/dev/{name}", f"{base}/dev/{name}")


def _add_interpreter(base: str, interpreter: Interpreter) -> list[str]:
    arguments: list[str] = []
    if interpreter.outside_usr:
        os.makedirs(f"{base}{interpreter.prefix}")
        syscalls.bind(interpreter.prefix, f"{base}{interpreter.prefix}")
        arguments += ["--ro-bind", interpreter.prefix, interpreter.prefix]
    os.mkdir(f"{base}{INTERPRETER_BIN}")
    for name in ("python3", "python"):
        os.symlink(interpreter.executable, f"{base}{INTERPRETER_BIN}/{name}")
    for path in (SESSION_INIT, INTERPRETER_INIT):
        _write(f"{base}{path}", _bytecode(path))
    return [*arguments, "--ro-bind", "/run", "/run"]


def _bytecode(path: str) -> bytes:
    """Return what is to stand at `path`: the bytecode of the module here of that name, as a file that Python runs."""
    name = os.path.basename(path).removesuffix("c")
    with open(f"{os.path.dirname(__file__)}/{name}", "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True, optimize=0)
    return importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code)
