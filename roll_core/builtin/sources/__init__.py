"""Built-in sources of rows."""
