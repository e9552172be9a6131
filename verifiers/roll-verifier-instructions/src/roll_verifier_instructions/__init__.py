"""Verifier of instruction following: the 25 constraint types of IFEval, each with an exact meaning."""
