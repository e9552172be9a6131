"""Policy losses, one file each: per-token values to be minimised. Masking and averaging are not their business.

Every log-ratio is clamped before it is exponentiated, so that a loss is finite on every token, counted or not.
"""
