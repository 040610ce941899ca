"""What is read of a folder, a checkout and an sdist, and what is left out of it."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from sanderling.errors import ConfigError, TaskError
from sanderling.synthesis.code_base import read_code_base
from sanderling.synthesis.layout import find_layout

FILES = {
    "PKG-INFO": b"Metadata-Version: 2.1\nName: My_Lib\nVersion: 2.5\n",
    "src/mylib/__init__.py": b"",
    "src/mylib/build/core.py": b"x = 1\n",
    "src/mylib/tests/test_core.py": b"",
    "src/mylib/conftest.py": b"",
    "tests/helpers.py": b"",
    "tests/test_more.py": b"",
    "docs/test_conf.py": b"",
}
PRODUCTS = {
    "build/lib/mylib/__init__.py": b"",
    "src/mylib/__pycache__/core.cpython-311.pyc": b"",
    "src/mylib.egg-info/PKG-INFO": b"",
    "mylib-2.4-py3-none-any.whl": b"",
    "src/mylib/core.py.orig": b"",
    ".tox/py/lib/core.py": b"",
    ".git/config": b"",
}


def write(root: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def archive(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"My_Lib-2.5/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("My_Lib-2.5/src/mylib/link.py")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    return path


def test_an_sdist_gives_its_files_without_products(tmp_path: Path) -> None:
    code = read_code_base(archive(tmp_path / "My_Lib-2.5.tar.gz", FILES | PRODUCTS))
    assert (code.name, code.version) == ("my_lib", "2.5")
    assert dict(code.files) == FILES
    for name in ("build/lib", "src/mylib/__pycache__", "src/mylib.egg-info", "mylib-2.4", "core.py.orig", ".git"):
        assert any(name.split("/lib")[0] in said for said in code.left_out), name
    assert any("link.py" in said and "link" in said for said in code.left_out)


def test_a_folder_gives_the_same_as_an_sdist(tmp_path: Path) -> None:
    products = {name: content for name, content in PRODUCTS.items() if not name.startswith(".git")}
    folder = write(tmp_path / "folder", FILES | products)
    (folder / "src/mylib/link.py").symlink_to("/etc/passwd")
    assert dict(read_code_base(folder).files) == FILES


def test_the_layout_finds_packages_sources_and_tests() -> None:
    layout = find_layout(FILES)
    assert layout.packages == ("src/mylib",)
    assert layout.roots == ("src",)
    assert layout.sources == ("src/mylib/__init__.py", "src/mylib/build/core.py")
    assert layout.tests == ("src/mylib/tests/test_core.py", "tests/test_more.py")


def test_single_modules_are_packages_too() -> None:
    layout = find_layout({"setup.py": b"", "one.py": b"", "test_one.py": b""})
    assert (layout.sources, layout.roots) == (("one.py",), (".",))


@pytest.mark.parametrize(
    ("files", "said"), [({"a/__init__.py": b""}, "no test file"), ({"tests/test_a.py": b""}, "no package")]
)
def test_what_lacks_a_part_is_refused(files: dict[str, bytes], said: str) -> None:
    with pytest.raises(TaskError, match=said):
        find_layout(files)


def test_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    for path in (tmp_path / "notes.txt", tmp_path / "missing", tmp_path):
        with pytest.raises(ConfigError):
            read_code_base(path)
    (tmp_path / "broken.tar.gz").write_bytes(b"nothing")
    with pytest.raises(ConfigError, match="can't be read"):
        read_code_base(tmp_path / "broken.tar.gz")
