"""vLLM (`AsyncLLM`) as the engine of a replica.

Everything that depends on vLLM's version is here, in `worker`, `transfer`, `gloo` and `trainer_side`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from roll_core.errors import BackendError
from roll_core.types import IntArray
from roll_plugin_vllm.asks import Ask, Facts, Piece, Span
from roll_plugin_vllm.engine import Engine
from roll_plugin_vllm.options import VllmOptions
from roll_plugin_vllm.segment import Shipment
from roll_plugin_vllm.versions import supported_build

_TIES_AHEAD = 64
"""Log-probs asked for beyond twice top-k, since all tokens that tie with the last kept one are kept."""
_MASS_LOST = 1e-3
"""Probability that may be missing from a kept set through rounding."""
_MIN_TEMPERATURE = 0.01
"""vLLM raises lower temperatures to this one without saying so to the caller."""
_SHUTDOWN_S = 2.0
"""How long vLLM's processes may take to end by themselves."""
_TURNS = 3
"""Of the event loop, in which streams take what vLLM had made before a pause, while the old version is known."""


async def start_engine(model: Path, options: VllmOptions) -> Engine:
    """Start vLLM with its processes; returns when it can serve.

    Raises:
        BackendError: vLLM is missing, of an unsupported version, or cannot serve the model this way.
    """
    build = supported_build()
    if build.is_cpu:
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")  # else all replicas bind to the same cores
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    try:
        llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**_engine_args(model, options, is_cpu=build.is_cpu)))
    except Exception as error:
        raise BackendError(f"vLLM {build.version} could not start with {model}: {error}") from error
    engine = VllmEngine(llm, options)
    try:
        await engine.prepare()
    except BaseException:
        await engine.close()
        raise
    return engine


def _engine_args(model: Path, options: VllmOptions, *, is_cpu: bool) -> dict[str, Any]:
    adapters = len(options.adapters) + 1 if options.max_lora_rank else 0
    lora = {"enable_lora": True, "max_lora_rank": options.max_lora_rank, "max_loras": adapters} if adapters else {}
    cache = {} if options.kv_cache_gb is None else {"kv_cache_memory_bytes": int(options.kv_cache_gb * 2**30)}
    return {
        "disable_log_stats": True,
        **options.engine_args,
        **lora,
        **cache,
        "model": str(model),
        "dtype": options.dtype,
        "tensor_parallel_size": options.span,
        "distributed_executor_backend": "mp" if options.span > 1 else "uni",  # in a Ray actor too
        "max_model_len": options.max_model_len,
        "max_num_seqs": options.max_num_seqs,
        "enable_prefix_caching": options.prefix_caching,
        "enforce_eager": is_cpu if options.eager is None else options.eager,
        "gpu_memory_utilization": options.fraction,
        "enable_sleep_mode": options.sleep_mode,
        "max_logprobs": -1,
        "logprobs_mode": "processed_logprobs",
        "skip_tokenizer_init": True,
        "weight_transfer_config": {"backend": "roll"},
        "worker_extension_cls": "roll_plugin_vllm.worker.WorkerExtension",
    }


class VllmEngine:
    """See `engine.Engine`.

    Args:
        llm: a started `AsyncLLM`.
        options: the backend's options.
    """

    def __init__(self, llm: Any, options: VllmOptions) -> None:
        self._llm = llm
        self._options = options
        self._draws_by_position = False
        self._is_updating = False
        self._version = 0
        self._policy_adapter: Any = None
        self._adapters: dict[str, Any] = {}
        config = llm.model_config
        self.facts = Facts(
            max_length=int(config.max_model_len),
            vocabulary=int(config.get_vocab_size()),
            can_sleep=options.sleep_mode,
        )

    async def prepare(self) -> None:
        """Set the workers up and load fixed adapters."""
        from vllm.distributed.weight_transfer.base import WeightTransferInitRequest

        told = await self._llm.collective_rpc("roll_prepare", args=(os.getpid(),))
        self._draws_by_position = all(by_position for by_position, _ in told)
        self.facts = replace(self.facts, devices=tuple(device for _, device in told if device))
        await self._llm.init_weight_transfer_engine(WeightTransferInitRequest({}))
        await self._llm.update_weight_version("0")
        for index, (name, folder) in enumerate(self._options.adapters.items(), start=2):
            self._adapters[name] = await self._add_adapter(name, index, folder)

    async def stream(self, ask: Ask) -> AsyncIterator[Piece]:
        """See `Engine.stream`.

        Raises:
            BackendError: vLLM refuses the request, or a kept set is not complete.
        """
        from vllm.exceptions import VLLMClientError

        adapter = self._policy_adapter if ask.adapter is None else self._adapters.get(ask.adapter)
        if ask.adapter is not None and adapter is None:
            raise BackendError(
                f"no adapter named '{ask.adapter}'; known: {', '.join(sorted(self._adapters)) or 'none'}"
            )
        prompt = {"prompt_token_ids": list(ask.token_ids)}
        try:
            async for output in self._llm.generate(prompt, self._sampling(ask), ask.key, lora_request=adapter):
                yield self._piece(ask, output.outputs[0])
        except (VLLMClientError, ValueError) as error:
            raise BackendError(f"vLLM refuses the request: {error}") from error

    async def abort(self, key: str) -> None:
        """See `Engine.abort`."""
        await self._llm.abort(key)

    async def pause(self) -> None:
        """See `Engine.pause`."""
        await self._llm.pause_generation(mode="keep", clear_cache=True)
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    async def stage(self, shipment: Shipment) -> None:
        """See `Engine.stage`.

        Raises:
            BackendError: they cannot be reached, or arrived damaged.
        """
        await self._start_update()
        await self._update("stage", shipment=shipment.to_dict())

    async def load(self, version: int) -> None:
        """See `Engine.load`.

        Raises:
            BackendError: they do not fit; the old ones are in use again.
        """
        await self._update("load")
        await self._finish_update(version)

    async def connect(self, route: str, info: Mapping[str, Any]) -> None:
        """See `Engine.connect`."""
        from vllm.distributed.weight_transfer.base import WeightTransferInitRequest

        request = WeightTransferInitRequest({"route": route, "info": dict(info)})
        await self._llm.init_weight_transfer_engine(request)

    async def begin(self) -> None:
        """See `Engine.begin`."""
        await self._start_update()
        await self._update("begin")

    async def receive(self, info: Mapping[str, Any]) -> None:
        """See `Engine.receive`.

        Raises:
            BackendError: they arrived damaged, or do not fit.
        """
        await self._update("receive", info=dict(info))

    async def end(self, version: int) -> None:
        """See `Engine.end`."""
        await self._update("end")
        await self._finish_update(version)

    async def load_adapter(self, folder: Path, version: int) -> None:
        """See `Engine.load_adapter`.

        Raises:
            BackendError: vLLM cannot take it.
        """
        self._policy_adapter = await self._add_adapter("policy", 1, folder)
        await self._llm.update_weight_version(str(version))
        self._version = version

    async def sleep(self, level: int) -> None:
        """See `Engine.sleep`."""
        await self._llm.sleep(level, mode="keep")

    async def wake_up(self, tags: list[str]) -> None:
        """See `Engine.wake_up`."""
        await self._llm.wake_up(tags)

    async def resume(self) -> None:
        """See `Engine.resume`."""
        await self._llm.resume_generation()

    async def close(self) -> None:
        """End vLLM's processes."""
        self._llm.shutdown(timeout=_SHUTDOWN_S)

    async def _start_update(self) -> None:
        if self._is_updating:  # what was staged before has been given up
            await self._llm.finish_weight_update()
        await self._llm.start_weight_update()
        self._is_updating = True

    async def _update(self, phase: str, **values: Any) -> None:
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        try:
            await self._llm.update_weights(WeightTransferUpdateRequest({"phase": phase, **values}))
        except Exception as error:
            self._is_updating = False
            if self._llm.errored:
                raise
            raise BackendError(f"the weight update failed in phase '{phase}': {error}") from error

    async def _finish_update(self, version: int) -> None:
        await self._llm.finish_weight_update(str(version))
        self._version, self._is_updating = version, False

    async def _add_adapter(self, name: str, number: int, folder: Path) -> Any:
        from vllm.lora.request import LoRARequest

        request = LoRARequest(name, number, str(folder), load_inplace=True)
        try:
            await self._llm.add_lora(request)
        except Exception as error:
            if self._llm.errored:
                raise
            raise BackendError(f"vLLM cannot load adapter '{name}' from {folder}: {error}") from error
        return LoRARequest(name, number, str(folder))

    def _sampling(self, ask: Ask) -> Any:
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        from roll_plugin_vllm.worker import POSITION, SEED

        if 0 < ask.temperature < _MIN_TEMPERATURE:
            raise BackendError(f"vLLM serves no temperature between 0 and {_MIN_TEMPERATURE}, got {ask.temperature}")
        top_k = ask.top_k or (self._options.max_kept if ask.top_p < 1.0 else 0)
        random: dict[str, Any] = {}
        if ask.temperature > 0:
            by_position = {SEED: ask.seed, POSITION: ask.made}
            random = {"seed": ask.seed} if self._draws_by_position else {"extra_args": by_position}
        return SamplingParams(
            temperature=ask.temperature,
            top_p=ask.top_p,
            top_k=min(top_k, self.facts.vocabulary),
            max_tokens=ask.limit,
            stop_token_ids=list(ask.stop_token_ids),
            ignore_eos=True,
            logprobs=min(2 * top_k + _TIES_AHEAD, self.facts.vocabulary) if ask.is_truncated else 0,
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
            **random,
        )

    def _piece(self, ask: Ask, output: Any) -> Piece:
        tokens = [int(token) for token in output.token_ids]
        piece = Piece(ask.key, tokens, version=self._version, finish_reason=output.finish_reason or "")
        if tokens:
            flat = output.logprobs
            piece.logprobs = [min(float(flat.logprobs[start]), 0.0) for start in flat.start_indices]
            if ask.is_truncated:
                bounds = zip(flat.start_indices, flat.end_indices, strict=True)
                piece.kept = [kept_set(flat.token_ids[a:b], flat.logprobs[a:b]) for a, b in bounds]
        if piece.finish_reason:
            spans = output.weight_versions or ()
            piece.spans = tuple(Span(span.start, span.end, int(span.version)) for span in spans)
        return piece


def kept_set(token_ids: list[int], logprobs: list[float]) -> IntArray:
    """The vocabulary a token was drawn from, sorted: candidates of non-zero probability.

    Args:
        token_ids: the drawn token and the most probable ones.
        logprobs: under the cut and renormalised distribution.

    Raises:
        BackendError: probability is missing, so that the set is not complete (very many tokens tie with the last).
    """
    ids, first = np.unique(np.asarray(token_ids, np.int32), return_index=True)
    values = np.asarray(logprobs, np.float64)[first]
    kept: IntArray = ids[values > -np.inf]
    mass = float(np.exp(values).sum())
    if mass < 1 - _MASS_LOST:
        raise BackendError(
            f"the {len(kept)} most probable tokens hold {mass:.4f} of the probability kept by top-k and top-p: too "
            "many tie with the last one; raise dtype to float32, or lower top_k"
        )
    return kept
