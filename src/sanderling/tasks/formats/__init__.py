"""Tasks of other projects, read and written: Harbor folders, SWE-bench rows, HumanEvalPack rows. See docs/formats.md.

Only data here: what is graded, and how, belongs to `sanderling.verify`.
"""
