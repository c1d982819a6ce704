"""Algorithm 1 and its relatives."""
