"""Every example of the language reference: it elaborates as a fixed point, or is refused by the code that is shown."""

from __future__ import annotations

import pytest

from tests.plan.elaborated import is_fixed_point, journeys, read

CATALOGUE = """\
strategy ddp   { params: replicate; optimizer: replicate; grads: all_reduce(dp) }
strategy zero1 { params: replicate; grads: reduce_scatter(dp, when = step); optimizer: shard(dp)
                 update: all_gather(dp) }
strategy zero1_3p { params: replicate; grads: all_reduce(dp); optimizer: shard(dp) }   # half as much again to send
strategy zero2 { params: replicate; grads: reduce_scatter(dp); optimizer: shard(dp) }
strategy zero3 { params: shard(dp) | gather(dp, unit = layer); grads: reduce_scatter(dp); optimizer: shard(dp) }
strategy hsdp  { params: shard(dp_shard) | gather; optimizer: shard(dp_shard)
                 grads: reduce_scatter(dp_shard) | all_reduce(dp_replicate) }
strategy hpz   { params: shard(dp_shard * dp_replicate) | gather(keep = shard(dp_shard))       # backward gathers inside
                 grads: reduce_scatter(dp_shard * dp_replicate); optimizer: shard(dp_shard * dp_replicate) }
strategy megatron_sp {                                   # a fragment: compose it
  on attn.qkv, mlp.up   { params: colwise(tp) }
  on attn.out, mlp.down { params: rowwise(tp); activations: partial(tp) | reduce_scatter(tp, dim = seq) }
  on embed              { params: shard(tp, dim = vocab); activations: partial(tp) | reduce_scatter(tp, dim = seq) }
  on head               { params: shard(tp, dim = vocab) }
  on norm               { activations: shard(tp, dim = seq) }
  grads[replicated(tp)]: all_reduce(tp)                  # norms, row biases, router, shared KV heads
}
strategy context_parallel { activations: shard(dp, dim = batch) * shard(cp, dim = seq); grads: reduce_scatter(dp * cp) }
strategy experts_folded { on experts {
  params: shard(ep, dim = expert) * shard(efsdp) | gather; grads: reduce_scatter(efsdp) | all_reduce(dp_replicate)
  optimizer: shard(ep, dim = expert) * shard(efsdp) } }
strategy tied_stages   { grads[tied]: all_reduce(pp) }
strategy lora          { params[frozen]: shard(dp) as nf4 | gather as bf16; params[trainable]: replicate
                         grads[trainable]: all_reduce(dp) }
strategy zero_offload  { grads: reduce_scatter(dp) | offload(cpu)
                         optimizer: shard(dp) | offload(cpu, pin_memory = true) }
strategy zero_infinity { params: shard(dp) | offload(nvme, buffers = 5, buffer_size = 100MB) | gather
                         optimizer: shard(dp) | offload(nvme, path = "scratch", overlap = true) }
strategy selective     { activations[block]: recompute(selective, save = [matmul, sdpa])
                         override activations["layers.{0..3}"]: recompute(none) | offload(cpu, prefetch = 1) }
"""
FACTS = {
    "hsdp": "mesh (dp_replicate = 2, dp_shard = 2)",
    "hpz": "mesh (dp_replicate = 2, dp_shard = 2)",
    "megatron_sp": "model gpt2_124m\nmesh (dp = 2, tp = 4)",
    "context_parallel": "mesh (dp = 2, cp = 2)",
    "experts_folded": (
        "model mixtral_8x7b\nmesh (dp_replicate = 2, dp_shard = 4, tp = 2)\n"
        "mesh moe (efsdp = *, ep = 4) over (dp_shard, tp)\nparams: shard(dp_shard)"
    ),
    "tied_stages": "model gpt2_124m\nmesh (pp = 2, dp = 2)\nparams: shard(pp, dim = layer)\nschedule: gpipe",
    "lora": "model llama3_8b(lora = 16)\nmesh (dp = 4)",
    "selective": "model gpt2_124m\nmesh (dp = 2)",
}
NAMES = [line.split()[1] for line in CATALOGUE.splitlines() if line.startswith("strategy ")]


@pytest.mark.parametrize("name", NAMES)
def test_catalogue(name: str) -> None:
    is_fixed_point(read(f"{FACTS.get(name, 'mesh (dp = 4)')}\n{CATALOGUE}apply {name}"))


CARD = """\
place 1
model    gpt3_175b
hardware dgx_a100(nodes = 128)
mesh     (pp = 8, dp = *, tp = 8)            # outermost first, like DeviceMesh; * is what is left of the 1,024 devices
train    (optimizer = adamw, precision = bf16_fp32_grads, seq = 2048, micro_batch = 1, global_batch = 1536)

apply    megatron_sp(tp) * zero1(dp) * pipelined(pp, schedule = interleaved_1f1b(chunks = 6))

require  heads % tp == 0, "Megatron TP splits whole heads"
assert   memory.peak <= 76GiB
assert   time.step <= 20s
"""
MESHES = """\
hardware dgx_h100(nodes = 32)
arg      N: int                                              # no default: unknown, carried as a symbol until --set N=4
mesh     (pods: data = N, dp_shard = 16, cp = 2, tp = 4)     # sizes: integer, arg, * = what is left, or none (symbolic)
mesh moe (efsdp = *, ep = 32) over (dp_shard, cp, tp)        # another factorisation of the same ranks
mesh kv  (kv_tp: tensor = 2, kv_copy: tensor = 2) over (tp)  # 2 KV heads on tp = 4
axis fsdp = dp_shard * cp                                    # a folded axis; its factors keep their roles
apply hsdp(fsdp, pods)
"""
VALUES = """\
strategy zero3(d: axis = dp, reshard: bool = true) {
  params:    shard(d) | gather(d, reshard_after_forward = reshard)
  grads:     reduce_scatter(d)
  optimizer: shard(d)
}
strategy big   = megatron_sp(tp) * zero3(dp, reshard = false) * pipelined(pp)
strategy cheap = big with { override optimizer: offload(cpu) }
apply cheap
"""
ORDER = """\
model mixtral_8x7b
mesh (pp = 2, cp = 2, ep = 4)
params:               shard(pp, dim = layer, split = balanced(first_less = 1, last_less = 1))
schedule:             1f1b                           # with the line above: std's pipelined(pp)
activations[attn]:    ring(cp, balance = headtail)   # or all_gather(cp), or ulysses(cp) = all_to_all(cp, dim = heads)
activations[experts]: all_to_all(ep)                 # dispatch, and combine on the way back
params[experts]:      shard(ep, dim = expert)
"""
FACTS_OF_A_JOB = """\
let tiny = transformer(layers = 4, hidden = 256, heads = 8, kv_heads = 2, ffn = 1024, vocab = 1000, tied = true)
let box  = node(devices = 8, device = gpu(memory = 80GiB, bf16 = 989TFLOP/s, bandwidth = 3.35TB/s),
                link = nvlink(450GB/s), network = roce(400Gb/s), host = host(memory = 2TiB, pcie = 64GB/s))
model tiny ; hardware box(nodes = 4)
train (optimizer = adamw, clip = 1.0, seq = 4096, micro_batch = 1, global_batch = 64, loss = tokens,
       frozen = "layers.{0..1}")
mesh (dp = *)
params: shard(dp) as fp32 | gather as bf16
grads: partial(dp) as fp32 | reduce_scatter(dp, wire = bf16)
optimizer: as (master = fp32, moments = bf16)
"""


@pytest.mark.parametrize("text", [CARD, MESHES, VALUES, FACTS_OF_A_JOB], ids=["card", "meshes", "values", "facts"])
def test_sections(text: str) -> None:
    is_fixed_point(read(text))


def test_order_and_algorithm() -> None:
    is_fixed_point(read(ORDER))


def test_params_with_one_owner_are_gathered() -> None:
    found = journeys("mesh (dp = 2)\nparams: shard(dp, dim = tensor)")
    assert found["params"].startswith("shard(dp, dim = tensor) | gather(dp,")
    assert found["grads"] == "partial(dp) | reduce_scatter(dp, when = microbatch, dim = tensor)"


@pytest.mark.parametrize(
    ("algorithm", "printed"),
    [
        ("all_gather(cp)", "all_gather(cp)"),
        ("ulysses(cp)", "ulysses(cp)"),
        ("all_to_all(cp, dim = heads)", "all_to_all(cp, dim = heads)"),
        ("ring(cp)", "ring(cp, balance = contiguous)"),
    ],
)
def test_how_a_module_fetches_tokens(algorithm: str, printed: str) -> None:
    assert journeys(f"mesh (cp = 2)\nactivations[attn]: {algorithm}")["activations[attn]"] == printed


@pytest.mark.parametrize(
    "line",
    [
        'params["layers.*.attn.{wq,wk,wv}"]: colwise(tp)',
        "params[sharded(tp)]: offload(cpu)",
        "grads[replicated(tp)]: all_reduce(tp)",
        "params[attn.q]: colwise(tp)",
        "params[attn]: offload(cpu)",
        "params[tied]: shard(tp, dim = vocab)",
    ],
)
def test_selectors(line: str) -> None:
    is_fixed_point(read(f"model llama3_2_1b\nmesh (dp = 2, tp = 2)\n{line}"))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("parms: shard(dp)", "E101"),
        ("mesh (dp = 2, sp = 2)\nparams: shard(dp)", "E114"),
        ("let a = 4\narg a: int = 2\nparams: shard(dp)", "E103"),
        ("mesh (dp = 2)\nparams: shard(dp)\nrequire dp == 3", "E122"),
        ("mesh (dp = 2)\nparams: shard(dp)\nrequire 1GiB + 1s > 2s", "E111"),
        ("model gpt2_124m\nmesh (tp = 8)\napply megatron_sp(tp)", "E420"),
        ("model megatron_22b\nmesh (pp = 6, dp = 8)\ntrain (micro_batch = 1, global_batch = 24)\n"
         "apply ddp(dp) * pipelined(pp, schedule = interleaved_1f1b(chunks = 2))", "E410"),
    ],
)  # fmt: skip
def test_refused_by_name(text: str, code: str) -> None:
    assert [d.code for d in read(text).diagnostics if d.is_error] == [code]


@pytest.mark.parametrize(
    "line", ["grads: all_reduce(dp) | compress(onebit)", "grads: all_reduce(dp) | delay(steps = 4, fraction = 0.9)"]
)
def test_named_although_not_exact(line: str) -> None:
    is_fixed_point(read(f"mesh (dp = 2)\n{line}"))


def test_replicas_that_differ_between_averages() -> None:
    is_fixed_point(read("mesh (dp = 2)\nparams: all_reduce(dp, mean, when = every(100))\ngrads: partial(dp)"))
