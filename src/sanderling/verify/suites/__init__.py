"""Hidden pytest suites, graded by observation: the sandbox reports operands, we hold what they are compared with.

sites      the checks of a test file, and which side of each can be held back
constants  which expressions depend on trusted code alone
rewriting  test files as the sandbox gets them: checks report, expected values are cut out
programs   the pinned test runner and its packages, as files of the sandbox
runner     the program that runs there
reports    what it said
judging    whether that is what the right solution shows
recording  what is known of a suite from runs of the right solution
running    one run of a compiled suite in a sandbox
verifier   `SuiteVerifier`
"""
