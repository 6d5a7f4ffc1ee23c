"""The memory: blocks, reference counts, prefix hashes."""
