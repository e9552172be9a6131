"""Built-in filters (dynamic sampling), one file each. They see the raw score of scored rollouts, never rewards."""
