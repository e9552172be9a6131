"""The final answer of a response."""
