"""Trees to findings."""
