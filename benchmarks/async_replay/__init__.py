"""What `benchmarks/async.py` is made of: a virtual clock, devices that replay measured durations, and a real run."""
