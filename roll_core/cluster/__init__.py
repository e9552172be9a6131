"""Reserved for placement over many devices (executors, leases, weight-sync planning). Nothing is built here yet."""
