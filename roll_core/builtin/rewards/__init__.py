"""Built-in reward components, one file each."""
