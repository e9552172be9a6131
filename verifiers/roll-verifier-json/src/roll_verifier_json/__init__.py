"""Verifiers of structured output: fields of a JSON object, and the length of a text in words."""
