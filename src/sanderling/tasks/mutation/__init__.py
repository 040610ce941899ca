"""Plants bugs in Python source: one small change of the syntax tree per mutant, formatting untouched elsewhere."""

from sanderling.tasks.mutation.engine import FAMILIES, changed_line, mutants
from sanderling.tasks.mutation.proposals import REPOSITORY_FAMILIES, Planted, Proposal, SourceFile
from sanderling.tasks.mutation.site import Family, Mutant, Replacement, Site

__all__ = [
    "FAMILIES",
    "REPOSITORY_FAMILIES",
    "Family",
    "Mutant",
    "Planted",
    "Proposal",
    "Replacement",
    "Site",
    "SourceFile",
    "changed_line",
    "mutants",
]
