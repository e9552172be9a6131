"""The plugin host: what a plugin may declare, how plugins are found and kept apart, how components are built."""
