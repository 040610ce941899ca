"""The conformance suite on Docker and Podman themselves, where this machine has them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from functools import partial

import pytest

from sanderling.errors import SandboxUnavailable
from sanderling.sandbox.container import ContainerBackend
from sanderling.sandbox.container_doctor import probe_container
from sanderling.testing.container_images import import_host_image
from sanderling.testing.sandbox_conformance import CHECKS, Outcome, run_conformance

pytestmark = pytest.mark.slow
MOST_OPEN = {"docker": {"interpreter", "links_lead"}, "podman": {"interpreter", "links_lead", "many_files"}}


@pytest.fixture(params=sorted(MOST_OPEN))
def engine(request) -> Iterator[tuple[str, str]]:
    """Give an engine and an image in it; skip where there is no engine."""
    kind = request.param
    if shutil.which(kind) is None:
        pytest.skip(f"no {kind} on this machine")
    answer = subprocess.run([kind, "ps"], check=False, capture_output=True, text=True)
    if answer.returncode != 0:
        pytest.skip(f"{kind} doesn't run here: {answer.stderr.strip()}")
    image = "localhost/sanderling-host:conformance"
    try:
        import_host_image(kind, image)
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    yield kind, image
    subprocess.run([kind, "rmi", "--force", image], check=True, capture_output=True)


def test_engine(engine: tuple[str, str]) -> None:
    kind, image = engine
    make = partial(ContainerBackend, kind, image=image)
    capabilities = probe_container(kind, make)
    if not capabilities.usable:
        pytest.skip(f"{kind} can't run a sandbox here: {'; '.join(capabilities.missing)}")
    report = run_conformance(make, check_limit_s=400.0)
    report.raise_for_failures()
    assert {result.id for result in report.of(Outcome.OPEN)} <= MOST_OPEN[kind]
    assert report.counts()[Outcome.PASSED] >= len(CHECKS) - 6
    left = subprocess.run(
        [kind, "ps", "--all", "--quiet", "--filter", "label=sanderling.owner"], check=True, capture_output=True
    )
    assert left.stdout == b""
