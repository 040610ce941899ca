"""The attacks that come with Sanderling, one module for each family; each has `ATTACKS`."""
