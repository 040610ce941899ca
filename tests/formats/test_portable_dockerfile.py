"""What a portable Dockerfile leaves behind, and what is refused by name."""

from __future__ import annotations

import pytest

from sanderling.tasks.formats.dockerfile import NotPortable, portable_recipe

CONTEXT = {"a.py": b"A", "pkg/b.py": b"B", "pkg/sub/c.py": b"C", "data.json": b"{}"}


def files_of(lines: str) -> dict[str, bytes]:
    return dict(portable_recipe(f"FROM python:3.11-slim\nWORKDIR /app\n{lines}", CONTEXT).files)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("COPY a.py .", {"a.py": b"A"}),
        ("COPY a.py renamed.py", {"renamed.py": b"A"}),
        ("COPY a.py /app/deep/", {"deep/a.py": b"A"}),
        ("COPY pkg/ /app/pkg", {"pkg/b.py": b"B", "pkg/sub/c.py": b"C"}),
        ("COPY pkg .", {"b.py": b"B", "sub/c.py": b"C"}),
        ("COPY . .", CONTEXT),
        ('COPY ["a.py", "data.json", "./"]', {"a.py": b"A", "data.json": b"{}"}),
        ("COPY *.py src/", {"src/a.py": b"A"}),
        ("ADD a.py \\\n  # between\n  b/", {"b/a.py": b"A"}),
        ("ARG WHERE=x\nCOPY a.py ${WHERE}/", {"x/a.py": b"A"}),
    ],
)
def test_copied_files_stand_where_docker_puts_them(lines, expected):
    assert files_of(lines) == expected


def test_variables_commands_and_workdirs():
    text = (
        "# a comment\nFROM docker.io/library/ubuntu:24.04 AS base\nENV A=1 B='two words'\nENV OLD style value\n"
        'WORKDIR /srv\nWORKDIR app\nRUN mkdir -p out && touch out/x\nRUN ["python3", "-c", "print(1)"]\n'
        'LABEL a=b\nRUN mkdir -p /logs/verifier\nCMD ["sleep", "infinity"]\n'
    )
    recipe = portable_recipe(text, {})
    assert (recipe.image, recipe.workdir) == ("docker.io/library/ubuntu:24.04", "/srv/app")
    assert recipe.env == {"A": "1", "B": "two words", "OLD": "style value"}
    assert recipe.setup == (
        ("sh", "-ec", "mkdir -p out && touch out/x"),
        ("sh", "-ec", "python3 -c 'print(1)'"),
    )


def test_the_setting_of_the_task_replaces_the_workdir():
    assert portable_recipe("FROM python\nWORKDIR /a\nCOPY a.py /b/", CONTEXT, "/b").files == {"a.py": b"A"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no FROM"),
        ("FROM python", "no WORKDIR"),
        ("FROM node:22\nWORKDIR /a", "image 'node:22'"),
        ("FROM ghcr.io/x/python:3\nWORKDIR /a", "image 'ghcr.io"),
        ("FROM python\nFROM debian", "line 2, FROM: several stages"),
        ("FROM python\nWORKDIR /a\nRUN apt-get update", "line 3, RUN: 'apt-get update' installs system packages"),
        ("FROM python\nWORKDIR /a\nRUN cd x && pip install numpy", "installs packages"),
        ("FROM python\nWORKDIR /a\nRUN python3 -m pip install numpy", "installs packages"),
        ("FROM python\nWORKDIR /a\nRUN pip install pytest numpy", "installs packages"),
        ("FROM python\nWORKDIR /a\nRUN pip install pytest && apt-get update", "installs packages"),
        ("FROM python\nWORKDIR /a\nRUN curl http://x", "needs the network"),
        ("FROM python\nWORKDIR /a\nRUN make all", "'make' isn't among the commands"),
        ("FROM python\nWORKDIR /a\nRUN mkdir /data", "outside of the WORKDIR"),
        ("FROM python\nWORKDIR /a\nRUN --mount=type=cache true", "--mount=type=cache"),
        ("FROM python\nWORKDIR /a\nCOPY a.py /opt/", "/opt/a.py is copied to a place outside"),
        ("FROM python\nWORKDIR /a\nCOPY nothing.py .", "isn't among the files"),
        ("FROM python\nWORKDIR /a\nCOPY --from=build /x .", "--from=build is not supported"),
        ("FROM python\nWORKDIR /a\nADD https://x/y.tgz .", "comes from the network"),
        ("FROM python\nWORKDIR /a\nENV PATH=/x:$PATH", "PATH is set by the sandbox itself"),
        ("FROM python\nWORKDIR $HERE", "$HERE isn't set"),
        ("FROM python\nUSER app\nWORKDIR /a", "the agent would be 'app'"),
        ("FROM python\nWORKDIR /a\nCMD nginx", "starts a program of its own"),
        ("FROM python\nWORKDIR /a\nVOLUME /x", "VOLUME: a sandbox has nothing like it"),
    ],
)
def test_everything_else_is_refused_with_the_line_and_the_reason(text, reason):
    with pytest.raises(NotPortable) as caught:
        portable_recipe(text, CONTEXT)
    assert reason in str(caught.value)


@pytest.mark.parametrize("command", ["pip install pytest", "python3 -m pip install --no-cache-dir 'pytest>=8'"])
def test_pytest_is_given_and_not_installed(command):
    recipe = portable_recipe(f"FROM python\nWORKDIR /a\nRUN {command}", {})
    assert (recipe.packages, recipe.setup) == (("pytest",), ())
