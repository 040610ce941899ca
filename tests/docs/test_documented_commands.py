"""What the documentation tells people to type: the verbs, flags and settings exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from cyclopts import CycloptsError
from markdown_blocks import ROOT, blocks

from sanderling.cli import app
from sanderling.config import load_config, parse_overrides
from sanderling.errors import ConfigError
from sanderling.simulation.config import revised

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHELLS = {"console", "sh", "bash", "shell"}
VERBS = {name for name in app if not name.startswith("-")}
_INLINE = re.compile(r"`(sanderling [a-z][^`\n]*)`")
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def _lines(page: Path) -> list[str]:
    """Return every command line of a page that starts with `sanderling`, in blocks and in the text."""
    found = []
    for block in blocks(page):
        if block.language in SHELLS:
            lines = block.commands() or block.text.replace("\\\n", " ").splitlines()
            found += [line.strip() for line in lines if line.strip().startswith("sanderling ")]
    return found


def _inline(page: Path) -> list[str]:
    return _INLINE.findall(page.read_text("utf-8"))


COMMANDS = [pytest.param(line, id=f"{page.name}: {line}") for page in PAGES if page.is_file() for line in _lines(page)]


def _check(line: str) -> None:
    """Parse a command line as the program would, and check every override against the configuration."""
    arguments = shlex.split(line, comments=True)[1:]
    assert arguments[0] in VERBS, f"{arguments[0]!r} is no verb of sanderling"
    _, bound, ignored = app.parse_args(arguments, exit_on_error=False, print_error=False)
    assert not ignored
    tokens = list(bound.arguments.get("tokens", ()))
    if arguments[0] == "plan":
        revised({}, parse_overrides(tokens), line)
        return
    first = next((i for i, token in enumerate(tokens) if token.startswith("--")), len(tokens))
    assert all(token.endswith(".toml") for token in tokens[:first]), f"{tokens[:first]} are no TOML files"
    load_config([], parse_overrides(tokens[first:]))


@pytest.mark.parametrize("line", COMMANDS)
def test_command_parses(line):
    _check(line)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("sanderling trian", AssertionError),
        ("sanderling train --rollout.grop_size=4", ConfigError),
        ("sanderling train nowhere --steps=4", AssertionError),
        ("sanderling show", CycloptsError),
        ("sanderling plan plan.toml --engine.replcas=2", ConfigError),
        ("sanderling eval x --n two", CycloptsError),
    ],
)
def test_the_check_finds_what_is_wrong(line, error):
    with pytest.raises(error):
        _check(line)


@pytest.mark.parametrize("page", [page for page in PAGES if page.is_file()], ids=lambda page: page.name)
def test_verbs_in_the_text_exist_and_links_lead_somewhere(page):
    for line in _inline(page):
        verb = line.split()[1]
        assert verb in VERBS, f"{page.name} speaks of `{line}`; verbs are {', '.join(sorted(VERBS))}"
    for target in _LINK.findall(page.read_text("utf-8")):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


def test_every_verb_has_help(capsys):
    for verb in VERBS:
        with pytest.raises(SystemExit) as end:
            app([verb, "--help"])
        assert not end.value.code
        assert len(capsys.readouterr().out) > 100
