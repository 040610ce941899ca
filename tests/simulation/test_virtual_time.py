"""Time that jumps, and machines that share their speed: against sums that can be worked out by hand."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest

from sanderling.simulation.config import Placement
from sanderling.simulation.processors import Machine, SharedProcessor
from sanderling.simulation.virtual_time import running_loop, simulate


def test_the_clock_jumps_to_the_next_timer_in_order():
    seen = []

    async def sleeper(seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append((seconds, running_loop().time()))

    async def job() -> float:
        await asyncio.gather(*(sleeper(seconds) for seconds in (3600.0, 1.0, 250_000.0, 1.5)))
        return running_loop().time()

    began = time.perf_counter()
    assert simulate(job()) == pytest.approx(250_000.0)
    assert time.perf_counter() - began < 1.0
    assert [wanted for wanted, _ in seen] == [1.0, 1.5, 3600.0, 250_000.0]
    assert all(at == pytest.approx(wanted) for wanted, at in seen)


def test_a_timeout_cuts_at_its_simulated_moment():
    async def job() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(40.0):
                await asyncio.sleep(41.0)
        return running_loop().time()

    assert simulate(job()) == pytest.approx(40.0)


def test_a_thread_ends_when_what_it_owes_is_done_and_others_go_on():
    async def job() -> tuple[str, float, float]:
        beside = asyncio.create_task(_at(asyncio.sleep(2.0)))
        answer = await asyncio.to_thread(_spending)
        return answer, running_loop().time(), await beside

    def _spending() -> str:
        running_loop().spend(3.0)
        running_loop().owe(lambda: asyncio.sleep(4.0))
        return "done"

    assert simulate(job()) == ("done", pytest.approx(7.0), pytest.approx(2.0))


def test_time_spent_in_the_loop_holds_everything_up():
    async def job() -> float:
        beside = asyncio.create_task(_at(asyncio.sleep(2.0)))
        await asyncio.sleep(1.0)
        running_loop().spend(5.0)
        return await beside

    assert simulate(job()) == pytest.approx(6.0)


def test_an_error_in_a_thread_comes_out_after_its_time():
    async def job() -> float:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(_failing)
        return running_loop().time()

    def _failing() -> None:
        running_loop().spend(3.0)
        raise ZeroDivisionError

    assert simulate(job()) == pytest.approx(3.0)


def test_a_simulation_in_which_nothing_can_happen_says_so():
    async def job() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="stands still"):
        simulate(job())


def test_parts_refuse_a_loop_of_real_time():
    async def job() -> None:
        running_loop()

    with pytest.raises(RuntimeError, match="simulated time only"):
        asyncio.run(job())


async def _at(work) -> float:
    await work
    return running_loop().time()


def _ends(jobs, processor_of) -> tuple[list[float], SharedProcessor]:
    """Return when each (start, amount) ended, and the processor."""

    async def one(processor, start, amount):
        await asyncio.sleep(start)
        return await _at(processor.work(amount))

    async def all_of_them():
        processor = processor_of()
        ends = await asyncio.gather(*(one(processor, *job) for job in jobs))
        processor.settle()
        return ends, processor

    return simulate(all_of_them())


def test_jobs_share_the_speed():
    # Alone to 2 (2 of 6 done), two at half speed: the second (2) ends at 6, when the first has 2 left, alone again.
    ends, processor = _ends([(0, 6), (2, 2)], lambda: SharedProcessor(lambda n: 1 / n))
    assert ends == pytest.approx([8.0, 6.0])
    assert (processor.busy_s, processor.job_s) == (pytest.approx(8.0), pytest.approx(12.0))


def test_jobs_beyond_the_slots_wait_in_line():
    ends, processor = _ends([(0, 3), (0, 5), (1, 1), (1.5, 1)], lambda: SharedProcessor(lambda n: 1.0, slots=2))
    assert ends == pytest.approx([3.0, 5.0, 4.0, 5.0])
    assert processor.running == 0


def test_a_cancelled_job_leaves_its_place():
    async def job() -> tuple[float, float]:
        processor = SharedProcessor(lambda n: 1 / n, slots=2)
        given_up = [asyncio.create_task(processor.work(amount)) for amount in (1.0, 100.0)]
        queued = asyncio.create_task(processor.work(50.0))
        last = asyncio.create_task(_at(processor.work(3.0)))
        await asyncio.sleep(1.0)
        for task in (*given_up, queued):
            task.cancel()
        await asyncio.gather(*given_up, queued, return_exceptions=True)
        return await last, processor.running

    assert simulate(job()) == (pytest.approx(4.0), 0)


def test_work_is_conserved_whatever_comes_when():
    random = np.random.default_rng(3)
    jobs = [(float(start), float(amount)) for start, amount in random.exponential([20.0, 5.0], (300, 2))]
    ends, processor = _ends(jobs, lambda: SharedProcessor(lambda n: min(1.0, 4 / n), slots=40))
    assert all(end >= start + amount - 1e-6 for end, (start, amount) in zip(ends, jobs, strict=True))
    assert max(ends) >= sum(amount for _, amount in jobs) / 4
    done = sum(amount for _, amount in jobs)
    assert processor.job_s >= done - 1e-6 and 4 * processor.busy_s >= done - 1e-6


@pytest.mark.parametrize(
    ("placement", "expected"),
    # Apart, two tools of 4 s on one core end at 8, whatever the engine does; sampling 10 tokens takes 10 s.
    # Together, three share the core: the tools end at 12 (4 s each, a third of a core), the engine has 6 left, alone.
    [(Placement.APART, (8.0, 8.0, 10.0)), (Placement.TOGETHER, (12.0, 12.0, 18.0))],
)
def test_engine_and_tools_share_the_cores_of_one_machine(placement, expected):
    async def job():
        machine = Machine(cores=1, placement=placement, slots=8, tokens_per_s=lambda n: 1.0)
        return await asyncio.gather(_at(machine.run(4.0)), _at(machine.run(4.0)), _at(machine.engine.work(10.0)))

    assert simulate(job()) == pytest.approx(list(expected))
