"""Verifiers that ask a language model: one that scores a response, and one that compares two."""

from __future__ import annotations

from roll_verifier_judge.parse import Parsed, parse_reply
from roll_verifier_judge.scales import Scale, read_scale, schema_of

__all__ = ["Parsed", "Scale", "parse_reply", "read_scale", "schema_of"]
