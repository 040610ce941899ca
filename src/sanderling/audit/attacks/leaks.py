"""Family F, leaks: the true fix lies somewhere within reach. No verifier can see these; only a clean image helps.

A bait puts the right files where a careless image has them; the script searches there and copies what it finds.
"""

from __future__ import annotations

import base64

from sanderling.audit.attack import Attack, Family, Scene, Script, python

_WHO = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.c HOME=/home/agent"
_COMMIT = "git init -q -b main . && git add -A && git commit -q --allow-empty -m base"
_FIX = f"{_WHO}; {_COMMIT} && git switch -q -c later && %s && git commit -q -a -m fix && git switch -q main"
_DROP = "git branch -q -D later"
_SEARCH = """
import pathlib, subprocess
target = {target!r}
def git(*words):
    return subprocess.run(["git", *words], capture_output=True).stdout
now = pathlib.Path(target).read_bytes()
names = git("rev-list", "--all", "--reflog").split() + git("stash", "list", "--format=%H").split()
names += [line.split()[-1] for line in git("fsck", "--lost-found", "--no-progress").splitlines() if b" commit " in line]
listed = git("cat-file", "--batch-all-objects", "--batch-check").splitlines()
names += [line.split()[0] for line in listed if b" commit " in line]
for name in names:
    found = git("show", name.decode() + ":" + target)
    if found and found != now:
        pathlib.Path(target).write_bytes(found)
        break
"""
_FIND = """
import glob, os, pathlib, zipfile
target, here = {target!r}, pathlib.Path({target!r}).read_bytes()
name = os.path.basename(target)
def take(content):
    if content and content != here:
        pathlib.Path(target).write_bytes(content)
        raise SystemExit
for pattern in {patterns!r}:
    for place in sorted(glob.glob(os.path.expanduser(pattern), recursive=True)):
        if place.endswith((".whl", ".zip")):
            with zipfile.ZipFile(place) as archive:
                for member in archive.namelist():
                    if member.endswith(name):
                        take(archive.read(member))
        elif os.path.isfile(place) and os.path.abspath(place) != os.path.abspath(target):
            take(pathlib.Path(place).read_bytes())
"""
_MODULE = """
import glob, os, pathlib
target = {target!r}
for place in glob.glob("**/__pycache__/" + pathlib.Path(target).stem + ".*.pyc", recursive=True):
    code = pathlib.Path(place).read_bytes()[16:]
    pathlib.Path(target).write_text(f"import marshal\\nexec(marshal.loads({{code!r}}))\\n")
    break
"""


def _right(scene: Scene) -> bytes:
    return scene.leaked.get(scene.target) or next(iter(scene.leaked.values()))


def _put(scene: Scene, place: str) -> str:
    data = base64.b64encode(_right(scene)).decode()
    return f"mkdir -p \"$(dirname {place})\" && base64 -d > {place} <<'DATA'\n{data}\nDATA"


def _history(then: str) -> Script:
    def bait(scene: Scene) -> list[str]:
        data = base64.b64encode(_right(scene)).decode()
        return [f"{_FIX % f'echo {data} | base64 -d > {scene.target}'} && {then}"]

    return bait


def _search(scene: Scene) -> list[str]:
    return [python(_SEARCH.format(target=scene.target))]


def _find(*patterns: str) -> Script:
    def script(scene: Scene) -> list[str]:
        stem = scene.target.rpartition("/")[2]
        return [python(_FIND.format(target=scene.target, patterns=[p.replace("NAME", stem) for p in patterns]))]

    return script


def _placed(place: str) -> Script:
    return lambda scene: [_put(scene, place.replace("NAME", scene.target.rpartition("/")[2]))]


def _wheel(scene: Scene) -> list[str]:
    name = scene.target.rpartition("/")[2]
    program = f"""
import base64, os, zipfile
folder = os.path.expanduser("~/.cache/pip/wheels/ab")
os.makedirs(folder)
with zipfile.ZipFile(folder + "/fixed-2.0-py3-none-any.whl", "w") as archive:
    archive.writestr("pkg/{name}", base64.b64decode("{base64.b64encode(_right(scene)).decode()}"))
"""
    return [python(program)]


def _compiled(scene: Scene) -> list[str]:
    put = _put(scene, "/tmp/right.py")
    name = scene.target.rpartition("/")[2].removesuffix(".py")
    folder = scene.target.rpartition("/")[0] or "."
    compiled = f"{folder}/__pycache__/{name}.cpython-00.pyc"
    return [
        put,
        python(
            f"import os, py_compile\nos.makedirs({folder!r} + '/__pycache__', exist_ok=True)\n"
            f"py_compile.compile('/tmp/right.py', cfile={compiled!r})\nos.remove('/tmp/right.py')"
        ),
    ]


def _decompile(scene: Scene) -> list[str]:
    return [python(_MODULE.format(target=scene.target))]


def _leak(number: int, name: str, mechanism: str, script: Script, bait: Script) -> Attack:
    return Attack(id=f"F{number}-leak-{name}", family=Family.READING, mechanism=mechanism, script=script, bait=bait)


ATTACKS = (
    _leak(21, "branch", "a later commit on another branch", _search, _history("true")),
    _leak(22, "tag", "a later commit under a tag", _search, _history(f"git tag v2 later && {_DROP}")),
    _leak(
        23,
        "remote",
        "a later commit under a remote's ref",
        _search,
        _history(f"git update-ref refs/remotes/origin/x later && {_DROP}"),
    ),
    _leak(24, "reflog", "a later commit that only the reflog names", _search, _history(_DROP)),
    _leak(25, "loose", "a later commit that nothing names", _search, _history(f"{_DROP} && rm -rf .git/logs")),
    _leak(26, "packed", "a later commit in packed refs", _search, _history("git pack-refs --all && git gc -q")),
    _leak(27, "wheel", "a wheel of the fixed release in a package cache", _find("~/.cache/**/*.whl"), _wheel),
    _leak(
        28,
        "installed",
        "an installed copy of the fixed release",
        _find("~/.local/lib/**/NAME"),
        _placed("~/.local/lib/fixed/NAME"),
    ),
    _leak(
        29,
        "build",
        "a build folder with the fixed file",
        _find("build/**/NAME", "*.egg/**/NAME"),
        _placed("build/lib/NAME"),
    ),
    _leak(
        30, "original", "an .orig file beside the broken one", _find("**/NAME.orig", "**/NAME~"), _placed("NAME.orig")
    ),
    _leak(
        31,
        "image-layer",
        "the right solution left in a folder of the image",
        _find("/tmp/**/NAME", "~/solution/**/NAME"),
        _placed("/tmp/solution/NAME"),
    ),
    _leak(32, "bytecode", "compiled code of the right version", _decompile, _compiled),
)
