"""fix_python: find and fix the bug in a small Python function."""
