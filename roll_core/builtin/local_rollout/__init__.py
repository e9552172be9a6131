"""Generation on transformers in one process: continuous batching over a slot cache, on a CPU or one GPU."""
