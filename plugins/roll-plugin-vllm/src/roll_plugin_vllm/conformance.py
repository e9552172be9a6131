"""Examples for the conformance kit."""

from __future__ import annotations

from roll_core.testing import Cases

CONFORMANCE = {
    "rollout_backends/vllm": Cases(
        options={"dtype": "float32", "kv_cache_gb": 0.25, "max_num_seqs": 8, "prefix_caching": True}, needs=("vllm",)
    )
}
"""Small enough for a CPU; float32, because the kit compares log-probs with the model's."""
