"""Plans of models everybody knows, against numbers worked out by hand: published counts, and formulas of their own."""

from __future__ import annotations

import pytest

from roll_core.cluster import PlacementError
from roll_core.cluster.budget import parse_budget
from roll_core.cluster.memory import RESERVE, RolloutLoad, TrainLoad, kv_per_rollout, rollout_weights, train_memory
from roll_core.cluster.model_shape import shape_of
from roll_core.cluster.placed import Demand
from roll_core.cluster.placement import smallest_budget, solve
from roll_core.config.cluster import ClusterConfig

QWEN_HALF = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
QWEN_7B = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
}
LLAMA_70B = {
    "model_type": "llama",
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 28672,
    "vocab_size": 128256,
}
MIXTRAL = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
}
DEEPSEEK_V3 = {
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "vocab_size": 129280,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}


def demand(config, longest=8192, micro_tokens=8192, **train):
    shape = shape_of(config, "config.json")
    load = TrainLoad(shape, micro_tokens, is_checkpointed=True, **train)
    return Demand(load, RolloutLoad(shape, longest, group_size=8), 64, rollouts_per_update=512)


@pytest.mark.parametrize(
    ("config", "parameters", "kv_bytes"),
    [
        (QWEN_HALF, 494_032_768, 12_288),
        (QWEN_7B, 7_615_616_512, 57_344),
        (LLAMA_70B, 70_553_706_496, 327_680),
        (MIXTRAL, 46_702_792_704, 131_072),
        (DEEPSEEK_V3, pytest.approx(671.03e9, rel=1e-4), 70_272),
    ],
    ids=["0.5B", "7B", "70B", "8x7B", "671B"],
)
def test_parameters_and_cache_are_the_published_ones(config, parameters, kv_bytes):
    shape = shape_of(config, "config.json")
    assert shape.parameters == parameters
    assert shape.kv_bytes_per_token == kv_bytes


def test_half_a_billion_fits_one_small_device():
    """16 bytes a parameter are 7.9 GB; 0.136e9 tied embeddings take 4 + 4 more, one layer's 0.0149e9 take 10 less."""
    memory = train_memory(demand(QWEN_HALF).train, 1, 1, cpu_offload=False).terms["actor"]
    states = memory["weights"] + memory["gradients"] + memory["optimiser"]
    assert states == 16 * 494_032_768
    assert memory["gathered"] == 8 * 151936 * 896
    assert memory["logits"] == 12 * 2048 * 151936
    found = solve(parse_budget("1x24GB"), ClusterConfig(), demand(QWEN_HALF))
    assert found.layout == "colocate"
    # while it generates: both processes' reserve, 4 + 8 bytes of states, 2 bytes of the engine's weights, the cache
    usage = found.usage[0]
    assert usage.rollout == pytest.approx(2 * RESERVE + 14 * 494_032_768 + 8192 * 12_288)
    assert found.concurrent == int((0.9 * 24e9 - 2 * RESERVE - 14 * 494_032_768) / (8192 * 12_288))
    assert found.shares[0] == pytest.approx((0.9 * 24e9 - RESERVE - 12 * 494_032_768) / 24e9)


def test_seven_billion_on_one_machine():
    """Per device of eight: 16 x 7.616e9 / 8 = 15.23 GB of states; untied embeddings 2 x 152064 x 3584 = 1.09e9."""
    wanted = demand(QWEN_7B)
    memory = train_memory(wanted.train, 8, 1, cpu_offload=False).terms["actor"]
    assert memory["weights"] + memory["gradients"] + memory["optimiser"] == pytest.approx(15.231e9, rel=1e-4)
    embeddings, layer = 1_089_994_752, 233_057_792
    assert memory["gathered"] == 4 * embeddings + max(10 * layer, 4 * embeddings)
    # five norms and residuals, queries and outputs, keys and values, four of the MLP's width: bfloat16 numbers
    numbers = 5 * 3584 + 2 * 3584 + 2 * 512 + 4 * 18944
    assert memory["activations"] == 2 * 8192 * numbers + 2 * 8192 * 3584 * 28
    found = solve(parse_budget("8x80GB"), ClusterConfig(), wanted)
    assert (found.layout, len(found.train), len(found.rollout[0])) == ("colocate", 8, 1)
    assert found.engine_parked == 2 * 7_615_616_512


def test_seventy_billion_needs_machines():
    """States are 1.129 TB: 16 devices of 80 GB have 70.6 GB each of them, which leaves nothing for the rest."""
    wanted = demand(LLAMA_70B)
    assert rollout_weights(wanted.rollout.model, 4) == pytest.approx(35.28e9, rel=1e-3)
    assert kv_per_rollout(wanted.rollout, 4) == 8192 * 327_680 / 4
    with pytest.raises(PlacementError, match=r"device 0:0 would need .* GB to train .*weights 17\.6"):
        solve(parse_budget("16x80GB"), ClusterConfig(), wanted)
    found = solve(parse_budget("32x80GB"), ClusterConfig(), wanted)
    assert len(found.train) == 32 and found.data_parallel == 32
    # an engine on one device would have 141 GB of weights, on two 70.6 GB beside the trainer's 26.5 GB, on four 35.3 GB
    assert {len(engine) for engine in found.rollout} == {4}
    states = 16 * 70_553_706_496 / 32
    assert found.usage[0].train > states + 2 * RESERVE + 4 * 2 * 128256 * 8192
    assert smallest_budget(80 * 10**9, ClusterConfig(), wanted) in {24, 32}


def test_experts_of_hundreds_of_billions_need_layers_shared():
    """A layer of 11.5e9 parameters: gathered whole it takes 115 GB, over eight devices 14.4 GB."""
    wanted = demand(DEEPSEEK_V3)
    expert_layer = 256 * 3 * 7168 * 2048 + 3 * 7168 * 2048 + 256 * 7168
    assert wanted.train.actor.layer_parameters == pytest.approx(expert_layer + 187e6, rel=1e-3)
    whole = train_memory(wanted.train, 512, 1, cpu_offload=False).terms["actor"]["gathered"]
    shared = train_memory(wanted.train, 512, 8, cpu_offload=False).terms["actor"]["gathered"]
    embeddings = 4 * 2 * 129280 * 7168
    assert whole - embeddings == pytest.approx(115e9, rel=0.01)
    assert shared - embeddings == pytest.approx(115e9 / 8, rel=0.01)
    with pytest.raises(PlacementError, match=r"No number of such devices .*tensor parallelism"):
        solve(parse_budget("64x80GB"), ClusterConfig(), wanted)
    # an engine's 1.34 TB of weights need 16 devices of 192 GB behind one switch
    wishes = ClusterConfig(gpus_per_node=16, train={"tensor_parallel": 8})
    found = solve(parse_budget("128x192GB", 16), wishes, wanted)
    assert len(found.rollout[0]) == 16 and found.data_parallel == 16
    states = 16 * (671.03e9 - embeddings / 4 + 8 * embeddings / 4) / 128
    trained = found.train_memory.terms["actor"]
    assert trained["weights"] + trained["gradients"] + trained["optimiser"] == pytest.approx(states, rel=1e-3)
    # every engine device holds the whole latent cache: it is not divided
    assert kv_per_rollout(wanted.rollout, 16) == 8192 * 70_272


def test_the_smallest_budget_is_said_and_is_the_smallest():
    wanted = demand(LLAMA_70B)
    with pytest.raises(PlacementError) as caught:
        solve(parse_budget("8x80GB"), ClusterConfig(), wanted)
    smallest = smallest_budget(80 * 10**9, ClusterConfig(), wanted)
    assert f"smallest budget of such devices that fits is {smallest}x80GB" in str(caught.value)
    solve(parse_budget(f"{smallest}x80GB"), ClusterConfig(), wanted)
    with pytest.raises(PlacementError):
        solve(parse_budget(f"{smallest - 8}x80GB"), ClusterConfig(), wanted)
    assert smallest_budget(8 * 10**9, ClusterConfig(), wanted) is None
    fixed = ClusterConfig(train={"gpus": 4})
    assert smallest_budget(80 * 10**9, fixed, wanted) is None


def test_adapters_copies_and_what_stays_gathered():
    """LoRA keeps the base in two bytes, and moments of its adapters only; copies make shards larger."""
    lora = train_memory(demand(QWEN_7B, lora_rank=16).train, 8, 1, cpu_offload=False).terms["actor"]
    adapters = 16 * 28 * (2 * (3584 + 3584) + 2 * (3584 + 512) + 3 * (3584 + 18944))
    assert lora["optimiser"] == 8 * adapters / 8
    assert lora["weights"] == pytest.approx((2 * 7_615_616_512 + 4 * adapters) / 8)
    copied = train_memory(demand(QWEN_7B, replicate=2).train, 8, 1, cpu_offload=False).terms["actor"]
    assert copied["weights"] == 4 * 7_615_616_512 / 4
    kept = train_memory(demand(QWEN_7B, is_resharded=False).train, 8, 1, cpu_offload=False).terms["actor"]
    plain = train_memory(demand(QWEN_7B).train, 8, 1, cpu_offload=False).terms["actor"]
    assert kept["gathered"] - plain["gathered"] == 2 * (7_615_616_512 - 1_089_994_752)
    with pytest.raises(PlacementError, match="cannot hold 3 copies"):
        solve(parse_budget("8x80GB"), ClusterConfig(layout="colocate"), demand(QWEN_7B, replicate=3))


def test_what_generates_ahead_takes_no_turns():
    ahead = Demand(demand(QWEN_7B).train, demand(QWEN_7B).rollout, 64, 512, is_ahead=True)
    assert solve(parse_budget("8x80GB"), ClusterConfig(), ahead).layout == "apart"
    both = solve(parse_budget("8x80GB"), ClusterConfig(layout="colocate", offload=False), ahead)
    assert both.usage[0].train > both.train_memory.total + 2 * 7_615_616_512
    with pytest.raises(PlacementError, match="cannot take turns"):
        solve(parse_budget("8x80GB"), ClusterConfig(layout="colocate"), ahead)
    written = ClusterConfig(map={"train": [f"0:{i}" for i in range(8)], "rollout": ["0:0"]})
    with pytest.raises(PlacementError, match="devices 0:0 train and generate"):
        solve(parse_budget("8x80GB"), written, ahead)
