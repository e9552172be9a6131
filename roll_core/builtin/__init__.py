"""The engine's own components: plugins like any other, loaded by the same host, with no privilege."""
