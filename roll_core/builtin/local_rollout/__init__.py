"""Generation on transformers: continuous batching over a slot cache, in the driver or in replicas of its own."""
