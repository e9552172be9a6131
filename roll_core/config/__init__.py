"""The run configuration: its types, loading in layers, checks, batch arithmetic, explanation and JSON Schema."""
