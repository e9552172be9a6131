"""Verifiers that compare text: exact match, regular expressions, JSON Schema."""
