"""Training without a model: the real scheduler, episodes, ledger and loop on a clock that jumps.

What takes time in a run (sampling, tools, grading, learning) waits here for drawn or recorded seconds instead. Everything that
decides stays the code that decides in a run, so what is learnt here about waiting, staleness and retries holds there.
"""
