"""Trajectories in the terminal: nothing cut, nothing obeyed, and an id that means several is no guess."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from sanderling.errors import ConfigError, RunFolderError
from sanderling.report.show import Selection, find_member, render_trajectory, select, show_run
from sanderling.report.visible import visible
from sanderling.store.reader import RunReader
from sanderling.testing import records
from sanderling.types import Finding, Member, StopReason


def printed(item, width: int = 200) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, force_terminal=True, color_system="truecolor").print(item)
    return stream.getvalue()


def plain(item) -> str:
    stream = io.StringIO()
    Console(file=stream, width=200, color_system=None).print(item)
    return stream.getvalue()


def test_a_solved_episode_in_full(demo_run):
    head = next(
        h for h in select(RunReader(demo_run), Selection(source="step=000012")) if h["disposition_reward"] == 1.0
    )
    text = plain(show_run(demo_run, head["trajectory_id"]))
    for piece in ("show solution.py", "if value < low:", "set 4 | return low", "advantage +0.500", "logprob -0.500"):
        assert piece in text
    assert "20 of 20 checks passed" in text
    assert "canary failed as it must" in text
    assert "disposition: member, reward 1, gradient full: submitted" in text


def test_control_characters_reach_no_terminal():
    hostile = records.turn("\x1b]0;owned\x07\x1b[2J\u202e", "a\rb\x9bc\tkept\nkept [red]markup[/red]")
    text = printed(render_trajectory(records.member(records.trajectory([hostile]))))
    for bad in ("\x1b]0", "\x07", "\x1b[2J", "\u202e", "\r", "\x9b"):
        assert bad not in text
    assert "␛]0;owned␇" in text
    assert "[red]markup[/red]" in text


def test_long_text_is_never_cut():
    words = " ".join(f"word{i}" for i in range(3000))
    text = printed(render_trajectory(records.member(records.trajectory([records.turn("cat", words)]))))
    assert all(f"word{i}" in text for i in range(3000))


def test_lost_and_suspicious_ones_say_so():
    lost = records.trajectory([records.turn()], stop=StopReason.SANDBOX_LOST)
    lost = dataclasses.replace(lost, detail="launcher died")
    text = plain(render_trajectory(records.member(lost, None)))
    assert "ungraded: sandbox: launcher died" in text
    assert "excluded, reward unknown, gradient none: sandbox_lost" in text
    member = records.member(records.trajectory([records.turn()]))
    finding = Finding(
        trajectory_id="g0/0.0",
        screen="paths",
        severity="suspected",
        turn=0,
        quote="/etc",
        explanation="left the workspace",
    )
    noticed = Member(
        trajectory=member.trajectory, verdict=member.verdict, disposition=member.disposition, findings=(finding,)
    )
    assert "suspected in turn 0, paths: left the workspace «/etc»" in plain(render_trajectory(noticed))


def test_the_prompt_comes_from_the_tokenizer_or_the_task():
    class Bytes:
        eos_id = None

        def encode(self, text):
            return list(text.encode())

        def decode(self, token_ids):
            return bytes(token_ids).decode()

        def special_id(self, token):
            return None

    member = records.member(records.trajectory([records.turn()], prompt="Repair the clock."))
    assert "Repair the clock." in plain(render_trajectory(member, Bytes()))
    assert "Fix clamp." in plain(render_trajectory(member, prompt="Fix clamp."))
    assert "(17 prompt tokens)" in plain(render_trajectory(member))


def test_an_id_that_several_folders_hold_needs_a_label(demo_run):
    reader = RunReader(demo_run)
    with pytest.raises(ConfigError, match=r"stands in eval=before, .*say which with --label"):
        find_member(reader, "eval-00001/0.0")
    rollouts, member = find_member(reader, "eval-00001/0.0", source="eval=after")
    assert rollouts.source == "eval=after"
    assert member.trajectory.id == "eval-00001/0.0"
    with pytest.raises(ConfigError, match="no trajectory 'nobody/0'"):
        show_run(demo_run, "nobody/0")
    with pytest.raises(ConfigError, match="no step=000099"):
        show_run(demo_run, step=99)
    with pytest.raises(ConfigError, match="not both"):
        show_run(demo_run, step=1, label="before")
    with pytest.raises(RunFolderError, match="no run folder"):
        show_run(demo_run / "rollouts")


def test_lists_and_filters(demo_run):
    reader = RunReader(demo_run)
    text = plain(show_run(demo_run, step=3))
    assert "64 trajectories" in text
    assert "train-0003-00000/0.0" in text
    everything = select(reader, Selection())
    solved = select(reader, Selection(reward_at_least=1.0))
    failed = select(reader, Selection(reward_below=1.0))
    lost = select(reader, Selection(stop="sandbox_lost"))
    assert len(solved) + len(failed) + len(lost) == len(everything)
    assert lost
    assert {head["source"] for head in select(reader, Selection(split="eval", task="clamp_001"))} == {
        f"eval={label}" for label in reader.evaluations()
    }
    assert len(select(reader, Selection(split="train"))) == 12 * 64


def test_visible_keeps_lines_and_shows_the_rest():
    assert visible("a\tb\n") == "a\tb\n"
    assert visible("\x00\x1b\x7f\u2066") == "␀␛␡<U+2066>"
