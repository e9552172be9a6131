"""What a finished run shows people: a table, a plot, `summary.json`."""
