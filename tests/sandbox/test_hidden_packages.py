"""Where everything is installed for the whole machine, commands don't see the packages that hold the right answers."""

from __future__ import annotations

import site
from pathlib import Path

from sanderling.sandbox.interpreter import base_interpreter, hidden_directories
from sanderling.sandbox.protocol import Command, SandboxSpec

_LIST = "import os, sys; print([os.listdir(path) for path in sys.argv[1:]])"


def test_installed_packages_are_empty_inside(bubblewrap, monkeypatch) -> None:
    prefix, _ = base_interpreter()
    installed = [path for path in site.getsitepackages([prefix]) if Path(path).is_dir()]
    assert installed  # pip at least
    monkeypatch.syspath_prepend(installed[0])

    async def look(backend):
        sandbox = await backend.create(SandboxSpec(files={}))
        result = await sandbox.exec(Command(argv=("python3", "-I", "-S", "-c", _LIST, *installed[:1])))
        written = await sandbox.exec(Command(argv=("touch", f"{installed[0]}/planted")))
        return result, written

    result, written = bubblewrap(look)
    assert result.stdout == b"[[]]\n", result
    assert written.exit_code == 1


def test_packages_are_hidden_where_they_lie_below_what_is_shown(tmp_path: Path, monkeypatch) -> None:
    for name in ("lib/site-packages", "src/pkg", "bin"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr("sys.path", [str(tmp_path / "bin"), str(tmp_path / "lib/site-packages")])
    assert below(tmp_path, hidden_directories(str(tmp_path))) == ["lib/site-packages"]
    assert below(tmp_path, hidden_directories(str(tmp_path / "other"))) == []


def test_packages_of_other_interpreters_are_hidden_too(tmp_path: Path) -> None:
    for name in ("lib/python3.11/site-packages/click", "lib/python3/dist-packages", "lib/python3.11/json"):
        (tmp_path / name).mkdir(parents=True)
    found = below(tmp_path, hidden_directories(str(tmp_path)))
    assert found == ["lib/python3.11/site-packages", "lib/python3/dist-packages"]
    system = Path("/usr/lib/python3/dist-packages")
    assert not system.is_dir() or str(system) in hidden_directories(str(tmp_path))


def below(top: Path, found: list[str]) -> list[str]:
    return sorted(Path(path).relative_to(top).as_posix() for path in found if Path(path).is_relative_to(top))
