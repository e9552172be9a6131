"""A verifier of multiple-choice answers."""
