"""A Model of any `nn.Module`, so that a user's own module can be placed, costed and run.

Runs of children with equal parameters in a ModuleList or Sequential are stacks of blocks; everything else stands
outside them. Tied parameters are found by identity. Layers that are not known stay honest: role "other", dims by
number. Saved activations are not read. Not for: running code of the module; shapes are all that is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from placelang.model.model import Model, Stack, Tensor


def read(module: nn.Module, name: str = "") -> Model:
    """The parameters of `module` as stacks, in the order of its children. The module may live on the meta device."""
    owners: dict[int, str] = {}
    for full, parameter in module.named_parameters(remove_duplicate=False):
        owners.setdefault(id(parameter), full)
    runs = tuple(_runs(module, owners))
    inside = {f"{path}.{i}." for path, first, count in runs for i in range(first, first + count)}
    stacks: list[Stack] = []
    outside: dict[str, list[Tensor]] = {}
    for full, parameter in module.named_parameters(remove_duplicate=False):
        if any(full.startswith(prefix) for prefix in inside):
            continue
        owner = owners[id(parameter)]
        tensor = _tensor(module, full, full, parameter, None if owner == full else owner)
        outside.setdefault(full.split(".")[0], []).append(tensor)
    stacks += [Stack(label, 1, 0, False, tuple(tensors), indexed=False) for label, tensors in outside.items()]
    for path, first, count in runs:
        block = module.get_submodule(f"{path}.{first}")
        tensors = tuple(
            _tensor(module, f"{path}.{first}.{short}", short, parameter, None)
            for short, parameter in block.named_parameters(remove_duplicate=False)
        )
        stacks.append(Stack(path, count, first, True, tensors))
    order = {full: i for i, (full, _) in enumerate(module.named_parameters(remove_duplicate=False))}
    stacks.sort(key=lambda s: order[s.fqn(s.tensors[0])])
    return Model(name or type(module).__name__, "module", tuple(stacks), source=f"read from {type(module).__name__}")


def _runs(module: nn.Module, owners: dict[int, str]) -> Iterator[tuple[str, int, int]]:
    """(path, first, count) of the runs of two or more equal children, outermost first; runs do not nest."""
    for path, holder in module.named_modules():
        if not isinstance(holder, (nn.ModuleList, nn.Sequential)) or not path or _within(path, module):
            continue
        yield from _equal_runs(path, holder, owners)


def _within(path: str, module: nn.Module) -> bool:
    """Whether an outer ModuleList or Sequential already holds this one as part of a child."""
    parts = path.split(".")
    outer = (module.get_submodule(".".join(parts[:i])) for i in range(1, len(parts)))
    return any(isinstance(m, (nn.ModuleList, nn.Sequential)) for m in outer)


def _equal_runs(path: str, holder: nn.Module, owners: dict[int, str]) -> Iterator[tuple[str, int, int]]:
    children = list(holder.named_children())
    signs = [_signature(f"{path}.{label}.", child, owners) for label, child in children]
    start = 0
    for i in range(1, len(children) + 1):
        if i == len(children) or signs[i] is None or signs[i] != signs[start]:
            if i - start > 1 and signs[start]:
                yield path, int(children[start][0]), i - start
            start = i


def _signature(prefix: str, child: nn.Module, owners: dict[int, str]) -> tuple[object, ...] | None:
    """Names, shapes and whether trained, of a child's parameters; None where one of them is tied to another place."""
    named = list(child.named_parameters(remove_duplicate=False))
    if any(owners[id(p)] != prefix + n for n, p in named):
        return None
    return tuple((n, tuple(p.shape), p.requires_grad) for n, p in named)


def _tensor(module: nn.Module, full: str, name: str, parameter: nn.Parameter, tied: str | None) -> Tensor:
    path, _, leaf = full.rpartition(".")
    layer = module.get_submodule(path)
    shape = tuple(parameter.shape)
    role, dims = "other", tuple(str(i) for i in range(len(shape)))
    if isinstance(layer, nn.Embedding):
        role, dims = "embed", ("vocab", "hidden")
    elif isinstance(layer, (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm)):
        role = "norm"
    elif isinstance(layer, nn.Linear):
        dims = ("out", "in")[: len(shape)]
    return Tensor(
        name, shape, dims, role, "bias" if leaf == "bias" else "weight", tied, frozen=not parameter.requires_grad
    )
