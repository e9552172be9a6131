"""A verifier that asks a reward model (a sequence-classification checkpoint)."""
