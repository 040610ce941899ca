"""Bug-fixing tasks from any Python code base with a pytest suite.

code_base      the files of a folder, a git checkout or an sdist, without caches, builds and history
history        what a git folder holds beyond the files taken from it, by name
git_folder     a repository of one synthetic commit
layout         packages, module roots and test files
suite_program  the program that runs a suite inside a sandbox
suite_runs     one run of a suite in a sandbox, and what it said
census         which tests can be relied on, and which source lines each of them reaches
candidates     bugs in the order in which they are tried
trials         one bug: which tests notice it
hiding         visible test files without the hidden tests
statement      the problem statement, without the fix
leaks          copies of the right solution in what the agent can read
making         from a code base to task folders, in parallel and resumable
"""
