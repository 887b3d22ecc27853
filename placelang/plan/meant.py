"""What an unknown word most probably stands for: the word of another tool for the same thing, else the nearest known.

Not for: which words are known (`words`, `facts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from placelang.diagnostics.suggest import did_you_mean

_ELSEWHERE: Mapping[str, str] = {
    # states
    **dict.fromkeys(("weights", "weight", "parameters", "model_states"), "params"),
    **dict.fromkeys(("gradients", "gradient"), "grads"),
    **dict.fromkeys(("optim", "opt", "optimizer_states"), "optimizer"),
    # steps
    "scatter": "shard",
    "split": "shard",
    "replicated": "replicate",
    "checkpoint": "recompute",
    # number formats
    **dict.fromkeys(("bfloat16", "bfloat"), "bf16"),
    **dict.fromkeys(("float16", "half"), "fp16"),
    **dict.fromkeys(("float32", "float"), "fp32"),
    **dict.fromkeys(("float64", "double"), "fp64"),
    # values
    **dict.fromkeys(("avg", "average"), "mean"),
    **dict.fromkeys(("yes", "on"), "true"),
    **dict.fromkeys(("no", "off", "never"), "false"),
    **dict.fromkeys(("block", "module"), "layer"),
    "host": "cpu",
    "disk": "nvme",
    # facts
    **dict.fromkeys(("batch_size", "batch", "train_batch_size"), "global_batch"),
    "gradient_accumulation_steps": "microbatches",
    **dict.fromkeys(("seq_len", "seq_length", "sequence_length", "context"), "seq"),
    "gradient_clipping": "clip",
    "dtype": "precision",
    # strategies
    **dict.fromkeys(("megatron", "sequence_parallel"), "megatron_sp"),
    **dict.fromkeys(("data_parallel", "dp"), "ddp"),
    "fsdp2": "fsdp",
    "pipeline": "pipelined",
}


_MOST = 500  # names among which a guess is worth its time
_SHOWN = 20


def listed(names: Iterable[str]) -> str:
    """Names in a row, the first few where there are many."""
    names = tuple(dict.fromkeys(names))
    return ", ".join((*names[:_SHOWN], *(["..."] if len(names) > _SHOWN else [])))


def meant(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` stands for, or None."""
    known = tuple(known)
    ours = _ELSEWHERE.get(word.lower())
    if ours in known:
        return ours
    return did_you_mean(word, known) if len(known) <= _MOST else None
