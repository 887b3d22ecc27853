"""Published measurements as rows of numbers: sizes of the model, the run, the layout and the machine, and the seconds.

Every row of a folder of facts becomes a `Row`, or is `Left` out with the reason. Not for: what a source leaves to
prose (`readings`), or predictions (`layers`).
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from benchmarks.accuracy.devices import Skip, figures
from benchmarks.accuracy.devices import family as family_of
from benchmarks.accuracy.readings import NAMED, OTHER, READINGS, SC21, Reading
from benchmarks.accuracy.stacks import STACKS, Stack

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OURS = Path(__file__).parents[1] / "facts"
"""The facts beside this benchmark, whose shapes of models serve folders that have none."""

SC21_SIZES = ("megatron-sc21", "megatron-jan2021")
GATED = ("swiglu", "geglu")
NARROW = {"fp8": "fp8", "float8": "fp8", "mxfp8": "fp8", "nvfp4": "fp4"}


@attrs.frozen
class Row:
    """One measured step. `family` is its file, `numbers` every symbol of `layers.step` but the fitted ones."""

    family: str
    id: str
    kind: str  # of the expectation that `seconds` comes from
    seconds: float
    numbers: Mapping[str, float]
    device: str
    stack: str
    moe: bool = False
    task: str = "pretrain"


@attrs.frozen
class Left:
    """A measured row that the model does not predict, and why."""

    family: str
    id: str
    reason: str


def read(folder: Path) -> tuple[list[Row], list[Left]]:
    """All measured step times of a folder of facts."""
    shapes = folder if (folder / "models.toml").exists() else OURS
    models = {m["id"]: m for m in _load(shapes / "models.toml").get("model", ())}
    rows: list[Row] = []
    left: list[Left] = []
    for file in sorted(folder.glob("*.toml")):
        facts = _load(file)
        source = facts.get("source", {})
        reading = READINGS.get(source.get("id", ""), OTHER)
        for case in facts.get("case", ()):
            if not _gradable(case):
                continue
            try:
                rows.append(_row(file.stem, case, reading, models))
            except Skip as skip:
                left.append(Left(file.stem, case["id"], str(skip)))
            except KeyError as missing:
                left.append(Left(file.stem, case["id"], f"{missing.args[0]} is not printed"))
            except (TypeError, ValueError, ZeroDivisionError) as unread:
                left.append(Left(file.stem, case["id"], f"not in the documented format: {unread}"))
    return rows, left


def _load(file: Path) -> dict[str, Any]:
    facts: dict[str, Any] = tomllib.loads(file.read_text("utf-8"))
    return facts


TIMES = ("step_time_s", "tokens_per_s_per_gpu", "tokens_per_s_total", "samples_per_gpu_per_s", "samples_per_s", "mfu",
         "model_flops_per_s_per_gpu", "flops_per_s_per_gpu", "layer_total_s")  # fmt: skip


def _gradable(case: Mapping[str, Any]) -> bool:
    """Whether it is a measured step of a model on named hardware."""
    expect = case.get("expect", {})
    named = isinstance(case.get("hardware"), Mapping) and "gpu" in case["hardware"] and "model" in case
    return (
        case.get("kind") == "measured" and named and any(k in expect for k in TIMES) and "op" not in case.get("run", {})
    )


def _row(family: str, case: Mapping[str, Any], reading: Reading, models: Mapping[str, Any]) -> Row:
    if case["expect"].get("fits") is False:
        raise Skip("did not fit")
    name = reading.stack_of(case)
    stack = STACKS[name]
    run = reading.run_of(case)
    layout = {**reading.layout, **case.get("layout", {})}
    hardware = case["hardware"]
    model = _model(case["model"], reading, models)
    gpu = reading.gpu.get(hardware["gpu"], hardware["gpu"])
    _refuse(run, layout, model)
    numbers: dict[str, float] = {}
    numbers |= _shape(model, stack)
    numbers |= _layout(layout, run, hardware, numbers, stack)
    numbers |= _batch(family, run, layout, numbers)
    numbers |= _stages(family, run, numbers)
    numbers |= _precision(run, layout, stack)
    numbers |= figures(gpu, hardware, reading, numbers)
    numbers |= _stack(stack, run)
    numbers["split_softmax"] = not stack.flash and (numbers["a"] / numbers["t"] * numbers["b"]) % 4 != 0
    kind, seconds = _seconds(case, numbers)
    return Row(
        family,
        case["id"],
        kind,
        seconds,
        numbers,
        family_of(gpu),
        name,
        numbers["E"] > 1,
        str(run.get("task", "pretrain")),
    )


def _refuse(run: Mapping[str, Any], layout: Mapping[str, Any], model: Mapping[str, Any]) -> None:
    if any(
        layout.get(k) not in (None, "none", False)
        for k in ("offload", "offload_param", "offload_optimizer", "offload_gradients")
    ):
        raise Skip("offload is not in the benchmark's layers")
    if "mamba_layers" in model or "Nemotron_3" in str(model.get("name")) or "DeepSeekV4" in str(model.get("name")):
        raise Skip("a hybrid or unpublished architecture")
    if (
        str(run.get("task", "")).startswith("pretrain (MLM")
        or model.get("encoder_layers")
        or "vit" in str(model.get("name"))
    ):
        raise Skip("no decoder")
    if run.get("checkpoint_in_cpu"):
        raise Skip("offload is not in the benchmark's layers")


def _model(said: Mapping[str, Any], reading: Reading, models: Mapping[str, Any]) -> dict[str, Any]:
    base = dict(models.get(said.get("ref", ""), {}))
    if "ref" in said and not base:
        raise Skip(f"no model {said['ref']}")
    known = {
        k: v
        for pattern, values in NAMED.items()
        if re.search(pattern, str(said.get("name", "")))
        for k, v in values.items()
    }
    return {**reading.model, **known, **base, **{k: v for k, v in said.items() if k != "ref"}}


def _shape(m: Mapping[str, Any], stack: Stack) -> dict[str, float]:
    """Sizes of a decoder. `in`, `out`: features into and out of attention; latent attention counts by its weights."""
    h, heads, layers = m["hidden"], m["heads"], m.get("layers") or m["layers"]
    kv = m.get("kv_heads") or heads
    f = m.get("ffn") or 4 * h
    gated = m.get("mlp") in GATED
    width = m.get("head_dim") or h / heads
    into, out, wide = heads * width + 2 * kv * width, heads * width, width
    if m.get("attention") == "mla":
        rank, latent = m.get("q_lora_rank") or 0, m["kv_lora_rank"]
        nope, rope, value = m["qk_nope_head_dim"], m["qk_rope_head_dim"], m["v_head_dim"]
        query = rank * (h + heads * (nope + rope)) if rank else h * heads * (nope + rope)
        into = (query + h * (latent + rope) + latent * heads * (nope + value)) / h
        out, wide = heads * value, nope + rope
    experts = m.get("experts") or 1
    dense = layers if experts == 1 else m.get("dense_layers") or 0
    shared = m.get("shared_ffn") or (m.get("shared_experts") or 0) * (m.get("moe_ffn") or 0)
    vocab = m["vocab"]
    return {
        "h": h, "a": heads, "kv": kv, "w": width, "wide": wide, "into": into, "out": out, "f": f, "gated": gated,
        "bias": m.get("mlp", "gelu") == "gelu", "V": math.ceil(vocab / 128) * 128 if stack.padded_vocab else vocab,
        "finest": m.get("finest", False), "L": layers, "Ld": dense, "E": experts, "k": m.get("top_k") or 1,
        "fm": m.get("moe_ffn") or f, "fs": shared,
    }  # fmt: skip


def _layout(
    layout: Mapping[str, Any], run: Mapping[str, Any], hardware: Mapping[str, Any], m: Mapping[str, float], stack: Stack
) -> dict[str, float]:
    t, p, c, e = (int(layout.get(k) or 1) for k in ("tp", "pp", "cp", "ep"))
    n = hardware.get("count")
    if n is None:
        raise Skip("the number of devices is not printed")
    fsdp = layout.get("fsdp")
    if layout.get("model_parallel") and "tp" not in layout:
        mp = layout["model_parallel"]
        t, p = min(8, mp), max(1, mp // 8)
    d = layout.get("dp") or n // (t * p * c)
    if isinstance(fsdp, int) and not isinstance(fsdp, bool) and "dcn_dp" in layout:
        d = fsdp * layout["dcn_dp"]
    if t * p * c * d != n:
        raise Skip(f"{t}·{p}·{c}·{d} ranks are not the {n} devices")
    zero = layout.get("zero_stage")
    full = bool(fsdp) or zero == 3 or bool(layout.get("fsdp_flag")) or bool(layout.get("fsdp_group"))
    if isinstance(fsdp, str) and "zero2" in fsdp:
        full, zero = True, 2
    shard = (
        layout.get("fsdp_group") or layout.get("hsdp_group") or (fsdp if isinstance(fsdp, int) and fsdp > 1 else d * c)
    )
    keeps = zero == 2 or fsdp == "SHARD_GRAD_OP"
    if full and p > 1:  # pipelines gather once a step and reduce once a step, as plain sharded optimizers do
        full, zero = False, 1
    return {
        "t": t, "p": p, "c": c, "e": e, "d": d, "n": n, "sp": bool(layout.get("sp", stack.flash != "" and t > 1)),
        "full": full, "keeps": keeps, "shard": min(shard, d * c) if full else d * c,
        "zero": (zero if zero is not None else stack.zero) >= 1, "v": layout.get("vpp") or 0,
        "ulysses": "ulysses" in str(layout.get("style", "")),
    }  # fmt: skip


def _batch(family: str, run: Mapping[str, Any], layout: Mapping[str, Any], m: Mapping[str, float]) -> dict[str, float]:
    s, d = run["seq_len"], m["d"]
    if family in SC21_SIZES and "micro_batch" not in run and m["h"] in SC21:
        run = {**run, "micro_batch": SC21[int(m["h"])][0]}
    b = run.get("micro_batch")
    total = run.get("global_batch") or (run["batch_per_dp"] * d if "batch_per_dp" in run else None)
    grads = run.get("num_microbatches") or run.get("grad_accum")
    if "dcn_dp" in layout and total:  # a batch of each device, which ranks of a tensor axis share
        b, grads = total / d, 1
    if b is None and "local_batch" in run:  # torchtitan cuts it into as many microbatches as there are stages
        b = run["local_batch"] / m["p"]
    if b is None and total and grads:
        b = total / (d * grads)
    if total is None and b and grads:
        total = b * d * grads
    if b is None and total and family == "megatron-2020-tables":
        b, grads = total / d, 1
    if total is None or b is None:
        raise Skip("the batch is not printed")
    many = total / (b * d)
    if many < 1:
        b, many = total / d, 1
    return {"s": s, "b": b, "m": many, "B": total}


def _stages(family: str, run: Mapping[str, Any], m: Mapping[str, float]) -> dict[str, float]:
    """Layers of the fullest stage and of the last, chunks, and how the schedule fills its bubble."""
    p, layers, v = m["p"], m["L"], m["v"]
    schedule = str(run.get("schedule", ""))
    if family in SC21_SIZES and m["h"] in SC21:
        v = SC21[int(m["h"])][1] if m["p"] > 1 else 1
    if p == 1:
        return {"v": 1, "most": layers, "last": layers, "weightless": 0}
    fewer = bool(run.get("layers_first_last_minus_one")) or (layers % p != 0 and (layers + 2) % p == 0)
    slots = (layers + 2 if fewer else layers) / p
    if "interleaved" in schedule and not v:
        v = 2 if "local_batch" in run else slots
    elif not v:
        v = slots if m.get("finest") else 1
    if slots % 1:
        slots = math.ceil(slots)
    v = max(1, min(v, slots))
    if not fewer and layers % (p * v) and (layers + 2) % (p * v) == 0:
        fewer, slots = True, (layers + 2) / p
    weightless = {"zb-h1": 1, "zb-1p": 1, "zb-h2": 2, "zb-2p": 2}.get(schedule, 0)
    if schedule in ("zb-v", "zbv"):
        weightless = 3
    last = slots - 1 if fewer else max(1, math.floor(layers / p))
    return {"v": v, "most": slots, "last": last, "weightless": weightless}


def _precision(run: Mapping[str, Any], layout: Mapping[str, Any], stack: Stack) -> dict[str, float]:
    word = re.split(r"[ ,(-]", str(run.get("precision", "bf16")).lower())[0]
    pure = run.get("mp_mode") == "PURE" or word == "amp"
    recompute = str(run.get("recompute", "none"))
    kind = NARROW.get(word, "fp8" if "fp8" in str(run.get("precision", "")).lower() else "")
    lora = run.get("task") == "lora"
    return {
        "fp8": kind == "fp8", "fp4": kind == "fp4", "lora": lora, "pure": pure,
        "replay": recompute == "full",
        "attention_again": "selective-attention" in recompute or recompute == "minimal_with_context",
        "half_again": recompute in ("selective-op", "selective-op (config default)", "minimal"),
        "gradient": layout.get("gradient_bytes") or stack.gradient,
    }  # fmt: skip


def _stack(stack: Stack, run: Mapping[str, Any]) -> dict[str, float]:
    return {
        "flash": stack.flash != "",
        "tensor_hidden": stack.tensor_hidden or bool(run.get("async_tp")),
        "data_hidden": bool(run.get("dp_overlap", stack.data_hidden)),
        "send_hidden": stack.send_hidden,
        "striped": stack.striped,
        "early_stop": stack.early_stop,
        "once_a_node": stack.once_a_node or "deepep" in str(run.get("flags", "")),
    }


def _seconds(case: Mapping[str, Any], m: Mapping[str, float]) -> tuple[str, float]:
    """Seconds of a step: as printed, or from a rate; from FLOP/s only where nothing else is printed."""
    expect, derived = case["expect"], case.get("derived", {})
    tokens = m["B"] * m["s"]
    if "step_time_s" in expect:
        return "step_time_s", expect["step_time_s"]
    if "tokens_per_s_per_gpu" in expect:
        return "tokens_per_s_per_gpu", tokens / (expect["tokens_per_s_per_gpu"] * m["n"])
    if "tokens_per_s_total" in expect:
        return "tokens_per_s_total", tokens / expect["tokens_per_s_total"]
    if "samples_per_gpu_per_s" in expect:
        return "samples_per_gpu_per_s", m["B"] / (expect["samples_per_gpu_per_s"] * m["n"])
    if "samples_per_s" in expect:
        return "samples_per_s", m["B"] / expect["samples_per_s"]
    if "step_time_s" in derived:
        return "derived.step_time_s", derived["step_time_s"]
    for name in ("model_flops_per_s_per_gpu", "flops_per_s_per_gpu"):
        if name in expect:
            again = 4 / 3 if m["replay"] and name == "flops_per_s_per_gpu" else 1
            return name, model_flops(m) * again / (expect[name] * m["n"])
    if "mfu" in expect:
        return "mfu", model_flops(m) / (expect["mfu"] * m["half"] * m["n"])
    raise Skip("no time of a whole step")


def model_flops(m: Mapping[str, float]) -> float:
    """FLOPs of a step: three times those of the forward, attention over the whole square (Korthikanti et al. 2022,
    appendix A, generalised to grouped queries, gated MLPs and experts)."""
    per_layer = m["h"] * (m["into"] + m["out"])
    dense = (2 + m["gated"]) * m["h"] * m["f"]
    routed = (2 + m["gated"]) * m["h"] * (m["k"] * m["fm"] + m["fs"])
    weights = m["L"] * per_layer + m["Ld"] * dense + (m["L"] - m["Ld"]) * routed + m["h"] * m["V"]
    attention = 4 * m["s"] * m["a"] * m["w"] * m["L"]
    return 3 * m["B"] * m["s"] * (2 * weights + attention)


def families(rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    for family in sorted({row.family for row in rows}):
        yield family, [row for row in rows if row.family == family]
