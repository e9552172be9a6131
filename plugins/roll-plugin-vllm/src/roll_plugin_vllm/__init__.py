"""Rollouts by vLLM: replicas behind a router, weights updated in place, tokens kept when a replica dies."""
