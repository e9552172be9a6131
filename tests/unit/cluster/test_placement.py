from __future__ import annotations

import json
import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roll_core.cluster import PlacementError, WorkerSpec
from roll_core.cluster.budget import Device, names_of, parse_budget
from roll_core.cluster.declared import declared_defaults
from roll_core.cluster.devices import DevicePool, visible_devices
from roll_core.cluster.memory import RESERVE, RolloutLoad, TrainLoad, kv_per_rollout, train_memory
from roll_core.cluster.model_shape import read_shape, shape_of
from roll_core.cluster.placed import Demand
from roll_core.cluster.placement import solve
from roll_core.cluster.placement_report import placement_dict, render_placement
from roll_core.config.cluster import ClusterConfig
from roll_core.errors import ConfigError

QWEN_7B = {
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
}
SEVEN = shape_of(QWEN_7B, "config.json")
SMALL = shape_of(
    {**QWEN_7B, "num_hidden_layers": 4, "hidden_size": 512, "intermediate_size": 1024, "head_dim": 64}, "c"
)


def demand(model=SEVEN, micro_tokens=4096, checkpointed=True, longest=10_240, prompts=64, **train):
    load = TrainLoad(model, micro_tokens, is_checkpointed=checkpointed, **train)
    return Demand(load, RolloutLoad(model, longest, group_size=8), prompts, rollouts_per_update=512)


def placed(budget, wanted=None, **wishes):
    return solve(parse_budget(budget), ClusterConfig(**wishes), wanted or demand())


# --- budget ---


def test_budgets_are_machines():
    devices = parse_budget("16x80GB")
    assert len(devices) == 16 and names_of(devices) == "0:0-7, 1:0-7" and devices[0].memory == 80 * 10**9
    mixed = parse_budget("2x24GB + 8x80GiB")
    assert names_of(mixed) == "0:0-1, 1:0-7" and mixed[-1].memory == 80 * 2**30
    assert names_of(parse_budget("10x80gb", 4)) == "0:0-3, 1:0-3, 2:0-1"
    assert names_of(parse_budget("24x80GB+1x80GB")) == "0-2:0-7, 3:0" and parse_budget("none") == ()
    for wrong in ("16", "x80GB", "0x80GB", "2x80GB+", "2x80TB"):
        with pytest.raises(ConfigError, match="write COUNTxMEMORY"):
            parse_budget(wrong)


@given(st.sets(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=1))
def test_names_name_every_device_once(places):
    text = names_of(Device(node, index, 1) for node, index in places)
    found = set()
    for part in text.split(", "):
        nodes, indices = ([int(end) for end in each.split("-")] for each in part.split(":"))
        found |= {
            (node, index) for node in range(nodes[0], nodes[-1] + 1) for index in range(indices[0], indices[-1] + 1)
        }
    assert found == places


# --- models ---


def test_parameters_are_derived_as_the_model_has_them():
    assert SEVEN.parameters == pytest.approx(7.615e9, rel=0.002)
    assert SEVEN.kv_bytes_per_token == 2 * 28 * 4 * 128 * 2
    tied = shape_of({**QWEN_7B, "tie_word_embeddings": True}, "c")
    assert SEVEN.parameters - tied.parameters == 152064 * 3584
    experts = shape_of({**QWEN_7B, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 1000}, "c")
    assert experts.intermediate == 2000 and experts.parameters > 28 * 3 * 3584 * 8000
    assert shape_of({"text_config": QWEN_7B}, "c") == SEVEN
    with pytest.raises(ConfigError, match="has no usable 'hidden_size'"):
        shape_of({}, "config.json")


def test_parameters_are_counted_in_weight_files_without_loading_them(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(QWEN_7B))
    assert not read_shape(tmp_path).is_exact
    header = json.dumps({"__metadata__": {}, "a": {"dtype": "F32", "shape": [3, 5], "data_offsets": [0, 60]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    shape = read_shape(tmp_path)
    assert shape.is_exact and shape.parameters == 15
    (tmp_path / "model.safetensors").write_bytes(b"\x00")
    assert not read_shape(tmp_path).is_exact
    with pytest.raises(ConfigError, match="cannot read"):
        read_shape(tmp_path / "nothing")


# --- memory ---


def test_the_formulas_are_the_stated_ones():
    memory = train_memory(demand().train, 8, 1, cpu_offload=False)
    actor, parameters = memory.terms["actor"], SEVEN.parameters
    assert (actor["weights"], actor["gradients"], actor["optimiser"]) == (parameters / 2, parameters / 2, parameters)
    assert actor["logits"] == 12 * 2048 * 152064
    assert actor["activations"] == 2 * 4096 * 3584 * 28 + 2 * 4096 * SEVEN.activation_numbers
    whole = train_memory(demand(checkpointed=False).train, 8, 1, cpu_offload=False)
    assert whole.terms["actor"]["activations"] == 28 * 2 * 4096 * SEVEN.activation_numbers
    away = train_memory(demand().train, 8, 1, cpu_offload=True)
    assert away.total + away.host == pytest.approx(memory.total)
    assert away.host == 2 * parameters
    lora = train_memory(demand(lora_rank=16).train, 8, 1, cpu_offload=False).terms["actor"]
    assert lora["weights"] < parameters / 3.5 and lora["optimiser"] < 0.01 * parameters
    assert kv_per_rollout(demand().rollout, 8) == kv_per_rollout(demand().rollout, 4)  # only 4 KV heads


def test_reference_and_critic_are_roles_on_the_same_devices():
    wanted = demand(reference=SEVEN, critic=SEVEN, teachers=(SMALL,))
    terms = train_memory(wanted.train, 8, 1, cpu_offload=False).terms
    assert list(terms) == ["actor", "critic", "reference", "teacher 0"]
    assert terms["critic"] == terms["actor"] and terms["reference"]["weights"] == SEVEN.parameters / 4


# --- solving ---


def test_colocated_placements_use_every_device_for_both():
    found = placed("16x80GB")
    assert found.layout == "colocate" and len(found.train) == 16 and found.data_parallel == 16
    assert len(found.rollout) == 16 and found.concurrent >= 8
    assert all(usage.peak <= 0.9 * 80e9 for usage in found.usage)
    assert found.usage[0].train == 2 * RESERVE + found.train_memory.total
    assert found.engine_parked == 2 * SEVEN.parameters
    assert found.usage[0].rollout > 2 * SEVEN.parameters + found.train_memory.resident > 0
    both = placed("16x80GB", offload=False)
    assert both.usage[0].train > found.usage[0].train and both.concurrent < found.concurrent
    assert both.engine_parked == 0


def test_apart_shares_nothing():
    found = placed("8x80GB", layout="apart")
    train, rollout = ({device for process in role for device in process} for role in (found.train, found.rollout))
    assert not train & rollout and len(train) == 4 and len(rollout) == 4
    assert len(placed("8x80GB", layout="apart", train={"gpus": 6}).rollout) == 2
    with pytest.raises(PlacementError, match="at least one more for generation; there are 1"):
        placed("1x80GB", layout="apart")


def test_few_devices_are_left_idle():
    """Engines of two on 2 + 8 devices: five of the large ones would leave one over."""
    found = placed("2x24GB + 8x80GB", demand(longest=8192), rollout={"tensor_parallel": 2})
    assert (found.layout, len(found.train), len(found.rollout), len(found.rollout[0])) == ("apart", 4, 3, 2)
    found = placed("31x80GB", layout="apart", rollout={"tensor_parallel": 4})
    assert abs(len(found.train) - 15.5) <= 4 and len(found.usage) >= 28


def test_the_trainer_gets_the_larger_devices():
    found = placed("2x24GB + 8x80GB", demand(longest=2048), layout="apart")
    assert {device.memory for process in found.train for device in process} == {80 * 10**9}
    assert {device.node for process in found.rollout for device in process} >= {0}
    assert placed("2x24GB + 8x80GB").layout == "apart"  # the small ones cannot train, so auto does not colocate


def test_engines_grow_until_they_hold_a_group():
    found = placed("8x24GB", demand(lora_rank=8, longest=16_384))
    assert len(found.rollout[0]) == 2 and found.concurrent >= 8
    assert all(len({device.node for device in process}) == 1 for process in found.rollout)
    assert len(placed("8x80GB", rollout={"replicas": 2, "tensor_parallel": 4}).rollout) == 2
    with pytest.raises(PlacementError, match="no room for 3 engines of 4 devices"):
        placed("8x80GB", rollout={"replicas": 3, "tensor_parallel": 4})


def test_what_does_not_fit_is_explained():
    with pytest.raises(PlacementError) as caught:
        placed("2x80GB", demand(checkpointed=False))
    text = str(caught.value)
    for part in (
        "colocate, 2 devices to train: device 0:0 would need",
        "optimiser 30.5",
        "72.0 of its 80.0 GB",
        "apart, 1",
    ):
        assert part in text, text
    assert "gradient checkpointing" in text and "cpu_offload" in text and "tensor parallelism" in text
    smallest = int(re.search(r"smallest budget of such devices that fits is (\d+)x80GB", text).group(1))
    assert smallest > 2
    placed(f"{smallest}x80GB", demand(checkpointed=False))
    with pytest.raises(PlacementError):
        placed(f"{smallest - 1}x80GB", demand(checkpointed=False))
    with pytest.raises(PlacementError, match="28 attention heads cannot be divided by"):
        placed("8x80GB", train={"tensor_parallel": 8})
    with pytest.raises(PlacementError, match="would share layers across machines"):
        placed("2x80GB+2x80GB", train={"tensor_parallel": 4})


def test_sizes_that_leave_devices_without_work_are_named():
    wanted = Demand(demand(SMALL).train, demand(SMALL).rollout, prompts=2, rollouts_per_update=4)
    warnings = " ".join(placed("8x80GB", wanted).warnings)
    assert "4 rollouts for 8 data-parallel ranks" in warnings and "2 prompts for 8 engines" in warnings


def test_maps_by_hand_are_checked():
    found = placed("8x80GB", map={"train": ("0:0", "0:1", "0:2", "0:3"), "rollout": ("0:4-5", "0:6-7")})
    assert found.layout == "apart" and [len(process) for process in found.rollout] == [2, 2]
    assert placed("8x80GB", map={"train": [f"0:{i}" for i in range(8)], "rollout": ["0:0-3"]}).layout == "colocate"
    for wrong, message in (
        ({"train": ["0:9"], "rollout": ["0:0"]}, "'0:9' names 0:9; there are 0:0-7"),
        ({"train": ["a"], "rollout": ["0:0"]}, "write machine:device"),
        ({"train": ["0:0", "0:0"], "rollout": ["0:1"]}, "map.train uses 0:0 twice"),
        ({"train": ["0:0"]}, "map.rollout has no process"),
        ({"train": ["0:0-1"], "rollout": ["0:2"]}, "a trainer process has one device"),
        ({"train": ["0:0"], "rollout": ["0:1"]}, "does not fit: device 0:0 would need"),
    ):
        with pytest.raises((ConfigError, PlacementError), match=message):
            placed("8x80GB", map=wrong)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.sampled_from([16, 24, 48, 80, 192])), min_size=1, max_size=3),
    st.sampled_from(["auto", "colocate", "apart"]),
    st.booleans(),
    st.sampled_from([1, 2, 4]),
)
def test_whatever_is_placed_fits(terms, layout, offload, tensor_parallel):
    budget = "+".join(f"{count}x{memory}GB" for count, memory in terms)
    wishes = ClusterConfig(layout=layout, offload=offload, train={"tensor_parallel": tensor_parallel})
    try:
        found = solve(parse_budget(budget), wishes, demand())
    except PlacementError as error:
        assert "no placement fits" in str(error)
        return
    assert all(usage.peak <= 0.9 * usage.device.memory for usage in found.usage)
    assert found.concurrent >= 1
    assert len({device for process in found.rollout for device in process}) == sum(map(len, found.rollout))
    assert json.loads(json.dumps(placement_dict(found)))["layout"] == found.layout
    assert any("KV cache" in line for line in render_placement(found))


# --- devices of this machine, options, specs ---


def test_devices_are_shared_out():
    pool = DevicePool(["0", "1", "2"])
    assert pool.take(2, "a") == ("0", "1")
    assert pool.take(0.5, "b") == pool.take(0.5, "c") == ("2",)
    with pytest.raises(PlacementError, match=r"d asks for 0.3 devices; this machine's devices are 0: 0 free"):
        pool.take(0.3, "d")
    pool.give_back(("2",), 0.5)
    assert pool.take(0.3, "d") == ("2",)
    pool.give_back(("0", "1"), 2)
    with pytest.raises(PlacementError, match="asks for 3"):
        pool.take(3, "e")
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "3, 5"}) == ("3", "5")
    assert visible_devices({"CUDA_VISIBLE_DEVICES": ""}) == ()


def test_defaults_are_read_without_importing():
    options = declared_defaults("roll_core.builtin.local_train.strategy:LocalTrainStrategy")
    assert options["micro_tokens"] == 4096 and options["gradient_checkpointing"] is False
    assert declared_defaults("roll_core.settings:OptimSettings")["clip_norm"] == 1.0
    assert declared_defaults("roll_core.cluster.sharding:micro_batches") == {"count": None}
    assert declared_defaults(test_defaults_are_read_without_importing) == {}
    assert declared_defaults("_socket:socket") == {}


def test_specs_are_checked():
    for options, message in (
        ({"count": 0}, "count must be at least 1"),
        ({"count": 2, "per_rank": [{}]}, "per_rank has 1 entries for 2 processes"),
        ({"count": 1, "gpus": 1.5}, "whole number above 1"),
        ({"count": 1, "cpus": -1}, "must not be negative"),
        ({"count": 1, "gpus": 1, "share_with": "train"}, "gpus must be 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            WorkerSpec("actor", "a:b", **options)
    spec = WorkerSpec("actor", "a:b", 2, kwargs={"x": 1}, per_rank=[{}, {"x": 2}], gpus=1)
    assert (spec.arguments(0), spec.arguments(1)) == ({"x": 1}, {"x": 2})
    assert spec.resources() == {"CPU": 1.0, "GPU": 1}
