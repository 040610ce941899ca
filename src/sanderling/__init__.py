"""Sanderling trains LLM agents with reinforcement learning over many turns, and shows that the reward was earned.

The data path is the package: tasks -> sandbox -> rollout -> verify -> credit -> batch -> loss -> learn -> report.
`import sanderling` imports none of it: ask for the module that you need.
"""

__version__ = "0.1.0"
