"""Was it earned? What is looked for in every finished episode, and what follows from it.

config.py     the section `screening` of the configuration
events.py     things that happened: facts of the record, each with turn and quote
lint.py       what the final change does that a repair doesn't (rules.py, special_cases.py); bank.py measures it
dual.py       a second, gullible grading: what only it pays is a proven hack (in_process.py runs in the sandbox)
suite_dual.py the same for hidden pytest suites, in a copy of the agent's place (suite_canaries.py: tests that can't pass)
monitor.py    a language model that may exclude an episode and never pays one
panel.py      all of these over one episode
watch.py      what follows for groups, tasks and the run: exclusion, quarantine, stop
"""
