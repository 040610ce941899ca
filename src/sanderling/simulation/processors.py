"""Machines in simulated time: jobs that run at once share the speed, the others wait in line."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

from sanderling.simulation.config import Placement
from sanderling.simulation.virtual_time import running_loop


@dataclass(slots=True, eq=False)
class _Job:
    amount: float
    done: asyncio.Future[None]
    running: bool = False


class SharedProcessor:
    """Every running job advances at the same speed, which depends on how many there are (processor sharing).

    Jobs end in the order of what is left of them, so it suffices to keep how far a job would have come that ran from the
    start: each job ends when this reaches its own mark. An arrival or an end costs O(log n) whatever runs beside it.
    """

    def __init__(
        self, speed: Callable[[int], float], *, slots: float = math.inf, on_change: Callable[[], None] | None = None
    ) -> None:
        """`speed(n)` is the work per second of each of n running jobs; at most `slots` run, first come, first served."""
        self._speed = speed
        self._slots = slots
        self._on_change = on_change
        self._waiting: deque[_Job] = deque()
        self._marks: list[tuple[float, int, _Job]] = []
        self._begun = 0
        self._progress = 0.0
        self._rate = 0.0
        self._at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.running = 0
        self.busy_s = 0.0  # seconds in which something ran
        self.job_s = 0.0  # seconds of all running jobs together

    async def work(self, amount: float) -> None:
        """Do `amount` of work and return when it is done; cancelled, the rest of it isn't done."""
        if amount <= 0:
            return
        job = _Job(amount, running_loop().create_future())
        self._advance()
        self._waiting.append(job)
        self._refill()
        try:
            await job.done
        except asyncio.CancelledError:
            self._withdraw(job)
            raise

    def refresh(self) -> None:
        """Take over a speed that changed for another reason than a job."""
        self._advance()
        self._set_rate()

    def settle(self) -> None:
        """Bring `busy_s` and `job_s` up to now."""
        self._advance()

    def _advance(self) -> None:
        now = running_loop().time()
        passed, self._at = now - self._at, now
        self._progress += self._rate * passed
        self.busy_s += passed * (self.running > 0)
        self.job_s += passed * self.running

    def _refill(self) -> None:
        while self._waiting and self.running < self._slots:
            job = self._waiting.popleft()
            job.running = True
            self.running += 1
            self._begun += 1
            heappush(self._marks, (self._progress + job.amount, self._begun, job))
        self._set_rate()
        if self._on_change is not None:
            self._on_change()

    def _withdraw(self, job: _Job) -> None:
        self._advance()
        if job.running:
            job.running = False  # its mark is passed over when it is met
            self.running -= 1
        else:
            self._waiting.remove(job)
        self._refill()

    def _set_rate(self) -> None:
        self._rate = self._speed(self.running) if self.running else 0.0
        while self._marks and not self._marks[0][2].running:
            heappop(self._marks)
        if not self._marks or self._rate <= 0:
            return
        due = self._at + max(0.0, self._marks[0][0] - self._progress) / self._rate
        # A timer that comes too early costs a look; it is cheaper than setting a new one at each arrival.
        if self._timer is None or due < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = running_loop().call_at(due, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._advance()
        reached = self._progress * (1 + 1e-12) + 1e-9
        while self._marks and (self._marks[0][0] <= reached or not self._marks[0][2].running):
            job = heappop(self._marks)[2]
            if not job.running:
                continue
            job.running = False
            self.running -= 1
            if not job.done.done():
                job.done.set_result(None)
        self._refill()


class Machine:
    """Where tools, gradings and, on one machine with them, engine and learner run.

    On one machine each of them takes a core while it has something to do, and more jobs than cores share them.
    """

    def __init__(
        self, *, cores: float, placement: Placement, slots: float, tokens_per_s: Callable[[int], float]
    ) -> None:
        """`tokens_per_s(n)` is the speed of each of n sequences on a core of its own; `cores` 0: as many as needed."""
        self._cores = cores or math.inf
        self._together = placement is Placement.TOGETHER
        self._tokens_per_s = tokens_per_s
        self.jobs = SharedProcessor(self._share, on_change=self._jobs_changed if self._together else None)
        self.engine = SharedProcessor(
            self._engine_speed, slots=slots, on_change=self.jobs.refresh if self._together else None
        )

    async def run(self, seconds: float) -> None:
        """Do work of so many seconds on a core of its own."""
        await self.jobs.work(seconds)

    async def learn(self, seconds: float) -> None:
        """Do work of the learner."""
        await (self.run(seconds) if self._together else asyncio.sleep(seconds))

    def _share(self, jobs: int) -> float:
        beside = 1 if self._together and self.engine.running else 0
        return min(1.0, self._cores / max(1, jobs + beside))

    def _engine_speed(self, sequences: int) -> float:
        share = min(1.0, self._cores / (self.jobs.running + 1)) if self._together else 1.0
        return share * self._tokens_per_s(sequences)

    def _jobs_changed(self) -> None:
        self.engine.refresh()
