"""The report says what is on disk, asks for nothing from outside, and obeys nothing that a policy wrote."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from demo_report_run import ATTACK, CONFIG, ENVIRONMENT, FAMILIES

from sanderling.errors import RunFolderError
from sanderling.report.html import render, write_report
from sanderling.store.reader import RunReader
from sanderling.store.run_folder import RunFolder
from sanderling.testing import records
from sanderling.types import Group, StepReport

VOID = {"meta", "link", "br", "circle", "rect", "line", "path"}


class Page(HTMLParser):
    """Collects tags, attributes and text, and checks that tags close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID or tag in ("circle", "rect"):
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


@pytest.fixture(scope="module")
def page(demo_run) -> Page:
    return Page(render(RunReader(demo_run)))


def test_the_report_holds_everything_and_asks_for_nothing(demo_run, page):
    file = write_report(RunReader(demo_run))
    assert file == demo_run / "report.html"
    assert not {"script", "img", "iframe", "object", "form"} & set(page.tags)
    links = [value for name, value in page.attributes if name in ("src", "href", "action", "srcset", "xlink:href")]
    assert links == ["data:,"]
    assert "url(" not in file.read_text("utf-8")
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'; img-src data:") in page.attributes
    assert not [name for name, _ in page.attributes if name.startswith("on")]


def test_what_a_policy_wrote_is_shown_and_not_obeyed(tmp_path):
    hostile = records.trajectory([records.turn(ATTACK, ATTACK)], id="g0/0.0", task_id=f"toy/train/{ATTACK}")
    with RunFolder.at(tmp_path / "run", f"# {ATTACK}\n", {"note": ATTACK}) as run:
        run.write_rollouts(1, [Group(id="g0", task_id=hostile.task_id, members=(records.member(hostile),))])
        run.append_event("alarm", text=ATTACK)
        text = render(run.reader())
    page = Page(text)
    assert "".join(page.words).count("<script>alert('x')</script>␛[2J<U+202E>gnitsop") >= 4
    assert "script" not in page.tags
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_headline_and_families_are_the_numbers_on_disk(demo_run, page):
    reader = RunReader(demo_run)
    for label in ("before", "after", "before-greedy", "after-greedy"):
        rewards = [m.disposition.reward for g in reader.evaluation(label).groups for m in g.graded()]
        solved = int(sum(rewards))
        assert f"{solved} of {len(rewards)}" in page.text
    for family in FAMILIES:
        assert family in page.text


def test_the_same_task_is_shown_before_and_after(page):
    assert "Before: not solved" in page.text
    assert "After: solved" in page.text
    assert "set 4 | return low" in page.text
    assert "20 of 20 hidden checks passed" in page.text


def test_accounts_isolation_incidents_and_configuration_are_there(page):
    assert re.search(r"768 submitted = [\d,]+ graded \+ \d+ ungraded \+ 0 running", page.text)
    assert "does not add up" not in page.text
    assert ENVIRONMENT["sandbox"]["open_risks"][0] in page.text
    assert "launcher did not answer" in page.text
    assert CONFIG.splitlines()[0] in page.text
    for heading in ("Learning curve", "How episodes ended", "Where the time went", "Training"):
        assert heading in page.text


def test_accounts_that_do_not_add_up_are_called_wrong(tmp_path):
    with RunFolder.at(tmp_path / "run", "", {}) as run:
        counts = {"submitted": 10, "graded": 8, "ungraded": 1, "running": 0, "trained": 9}
        run.append_metrics(StepReport(step=1, policy_version=1, metrics={}, timing={}, counts=counts))
        assert Page(render(run.reader())).text.count("does not add up") == 2


def test_a_run_that_has_just_begun_has_a_report_too(tmp_path):
    with RunFolder.at(tmp_path / "run", "seed = 3\n", {}) as run:
        text = Page(render(run.reader())).text
        assert "No evaluation is stored" in text
        assert "seed 3" in text
        run.write_rollouts(1, [records.group([1.0, 0.0, None])])
        text = Page(render(run.reader())).text
        assert "Step 1, solved" in text
        assert "Step 1, not solved" in text


def test_a_family_per_task_is_no_family(tmp_path):
    with RunFolder.at(tmp_path / "run", "", {}) as run:
        for label in ("before", "after"):
            run.write_evaluation(label, [records.group([1.0], id=f"g{i}", task_id=f"toy/test/{i}") for i in range(3)])
        assert "By family" not in Page(render(run.reader())).text


def test_numbers_that_are_not_finite_leave_gaps_not_broken_charts(tmp_path):
    nan = float("nan")
    with RunFolder.at(tmp_path / "run", "", {}) as run:
        for step, value in enumerate([1.0, nan, float("inf"), 2.0], start=1):
            report = StepReport(
                step=step,
                policy_version=step,
                metrics={"entropy": value, "loss": nan},
                timing={"train_s": 1.0},
                counts={},
            )
            run.append_metrics(report)
        page = Page(render(run.reader()))
    for name, value in page.attributes:
        if name in ("d", "x", "y", "cx", "cy", "width", "height"):
            assert "nan" not in value
            assert "inf" not in value


def test_a_report_that_cannot_be_written_says_why(demo_run, tmp_path):
    with RunFolder.at(tmp_path / "run", "", {}) as run:
        (run.path / "report.html").mkdir()
        with pytest.raises(RunFolderError, match=r"can't write .*report\.html: Is a directory"):
            write_report(run)
    assert isinstance(demo_run, Path)
