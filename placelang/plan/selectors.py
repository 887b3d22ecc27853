"""Selectors: which tensors a placement is about. Globs over full names, roles, and placements on an axis.

Not for: what is said of the selected (`compose`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from placelang.diagnostics.diagnostic import Diagnostic
from placelang.diagnostics.problems import every, fault, refuse
from placelang.model.model import ROLES, Model, Stack, Tensor
from placelang.plan.globs import EXAMPLES, RANGE, fault_of, glob
from placelang.plan.meant import meant
from placelang.plan.plan import Selection
from placelang.plan.scope import Scope
from placelang.plan.values import Axes, Value, Word, evaluate
from placelang.syntax import ast

ACROSS = ("block", "tied", "frozen", "trainable")
"""Roles that lie across the others: a layer, shared storage, what the optimizer leaves or updates."""

_PLACEMENTS = ("replicated", "sharded", "partial")
_DOT = re.compile(r"\.(?![^{]*\})")  # between segments, not inside braces


def known_roles() -> tuple[str, ...]:
    """Every role, with the prefixes that select a subtree: `attn` for `attn.q` to `attn.out`."""
    heads = (role.split(".")[0] for role in ROLES)
    return tuple(dict.fromkeys((*ROLES, *heads, *ACROSS)))


def typed(selectors: tuple[ast.Selector, ...], scope: Scope) -> tuple[Selection, ...]:
    """The selections that selectors say. Raises Refused on an unknown role, a bad glob, or a name that is no axis."""
    return tuple(every(lambda s: _typed(s, scope), selectors))


def _typed(selector: ast.Selector, scope: Scope) -> Selection:
    span = selector.span
    match selector.value:
        case ast.String(value=pattern):
            if wrong := fault_of(pattern):
                raise refuse("E110", wrong, span, help=EXAMPLES)
            return Selection("glob", pattern, span)
        case ast.Name(text=role):
            if role in known_roles():
                return Selection("role", role, span)
            near = meant(role, (*known_roles(), *_PLACEMENTS))
            raise refuse(
                "E101",
                f"no role is called `{role}`",
                span,
                help=f"did you mean `{near}`?"
                if near
                else f'names of modules go in quotes, `"{role}"`; roles: {", ".join(known_roles())}',
            )
        case ast.Call(func=func, args=args):
            if func.text not in _PLACEMENTS:
                near = meant(func.text, _PLACEMENTS)
                raise refuse(
                    "E101", f"no selector is called `{func.text}`", span, help=f"did you mean `{near}`?" if near else ""
                )
            values = every(lambda a: _axis(a.value, scope), args)
            axes = tuple(n for v in values if isinstance(v, Axes) for n in v.names)
            if not axes or not all(isinstance(v, Axes) for v in values):
                raise refuse("E102", f"`{func.text}` selects by axes, as in `{func.text}(tp)`", span)
            return Selection(func.text, " * ".join(axes), span)


def _axis(expr: ast.Expr, scope: Scope) -> Value:
    """What stands where an axis is expected; an unknown name is refused."""
    value = evaluate(expr, scope.lookup)
    if isinstance(value, Word):
        raise scope.no_axis(value.name, expr.span)
    return value


def has_role(selection: str, tensor: Tensor, stack: Stack, tied: frozenset[str], fqn: str) -> bool:
    """Whether a tensor has a role; `attn.qkv` takes `attn.q` and `attn.kv` too."""
    if selection == "block":
        return stack.block
    if selection == "tied":
        return tensor.tied is not None or fqn in tied
    if selection in ("frozen", "trainable"):
        return tensor.frozen == (selection == "frozen")  # as far as the model says; the job may freeze more: `matches`
    if selection == "attn.qkv":
        return tensor.role in ("attn.qkv", "attn.q", "attn.kv")
    return tensor.role == selection or tensor.role.startswith(f"{selection}.")


def matches(selection: Selection, model: Model, frozen: tuple[str, ...] = (), each: bool = False) -> frozenset[str]:
    """The full names of the tensors that a selection hits; of a role, the first layer of a run stands for all unless
    `each` is asked for."""
    tied = frozenset(t.tied for s in model.stacks for t in s.tensors if t.tied)
    by_name = each or tell_layers((selection,), frozen)
    found: set[str] = set()
    for stack in model.stacks:
        for tensor in stack.tensors:
            for layer in range(stack.count) if by_name else (0,):
                fqn = stack.fqn(tensor, layer)
                if selection.kind == "glob":
                    hit = glob(selection.value).matches(fqn)
                elif selection.value in ("frozen", "trainable"):
                    is_frozen = tensor.frozen or any(glob(pattern).matches(fqn) for pattern in frozen)
                    hit = is_frozen == (selection.value == "frozen")
                else:
                    hit = has_role(selection.value, tensor, stack, tied, fqn)
                if hit:
                    found.add(fqn)
    return frozenset(found)


def tell_layers(selections: Iterable[Selection], frozen: tuple[str, ...]) -> bool:
    """Whether one of the selections may take some layers of a run and not others."""
    by_pattern = ("frozen", "trainable") if frozen else ()
    return any(s.kind == "glob" or s.value in by_pattern for s in selections)


def named(tensors: Collection[str], model: Model, each: bool) -> tuple[Selection, ...]:
    """Globs of exactly these tensors, one for the layers of a run. Unless `each` layer is named, the first of a run
    stands for all."""
    globs: dict[str, None] = {}
    for stack in model.stacks:
        alone = sum(other.name == stack.name for other in model.stacks) == 1
        for tensor in stack.tensors:
            hits = [i for i in range(stack.count) if stack.fqn(tensor, i if each else 0) in tensors]
            if hits and stack.indexed:
                runs = _runs([stack.first + i for i in hits])
                numbers = "*" if alone and len(hits) == stack.count else runs if len(hits) == 1 else f"{{{runs}}}"
                globs[f"{stack.name}.{numbers}.{tensor.name}"] = None
            elif hits:
                globs[tensor.name] = None
    return tuple(Selection("glob", pattern) for pattern in globs)


def _runs(numbers: Sequence[int]) -> str:
    """`0..3,7` of sorted numbers."""
    found: list[list[int]] = []
    for n in numbers:
        if found and n == found[-1][-1] + 1:
            found[-1][1:] = [n]
        else:
            found.append([n])
    return ",".join("..".join(map(str, run)) for run in found)


def check_match(selection: Selection, model: Model, frozen: tuple[str, ...]) -> Diagnostic | None:
    """A glob that selects nothing is an error; a role that the model lacks is a note: one text serves many models."""
    if selection.kind not in ("glob", "role") or matches(selection, model, frozen):
        return None
    if selection.kind == "role":
        return fault("N101", f"{model.name} has no `{selection.value}`", selection.span)
    return fault(
        "E110",
        f'`"{selection.value}"` matches no parameter of {model.name}',
        selection.span,
        help=_near(selection.value, model),
    )


def _near(pattern: str, model: Model) -> str:
    """What may have been meant: a range the right way round or inside the model, a name that is near, or a sample."""
    for a, b in RANGE.findall(pattern):
        turned = pattern.replace(f"{a}..{b}", f"{b}..{a}")
        if int(a) > int(b) and _matches_any(turned, model):
            return f'ranges count up: `"{turned}"`'
    segments = _DOT.split(pattern)
    for stack in model.stacks:
        if stack.indexed and segments[0] == stack.name and len(segments) > 1 and any(c.isdigit() for c in segments[1]):
            inside = ".".join((stack.name, "*", *segments[2:]))
            if _matches_any(inside, model):
                return f"{model.name} has {stack.name}.{stack.first} to {stack.name}.{stack.first + stack.count - 1}"
    names = [fqn for fqn, _ in model.named()]
    for i, segment in enumerate(segments):
        known = dict.fromkeys(n.split(".")[i] for n in names if n.count(".") >= i and not n.split(".")[i].isdigit())
        near = None if set(segment) & set("*{") else meant(segment, known)
        fixed = ".".join((*segments[:i], near, *segments[i + 1 :])) if near else ""
        if fixed and _matches_any(fixed, model):
            return f'did you mean `"{fixed}"`?'
    sample = dict.fromkeys(n.split(".")[0] for n in names)
    return f"its names begin with {', '.join(f'`{n}`' for n in sample)}"


def _matches_any(pattern: str, model: Model) -> bool:
    return bool(matches(Selection("glob", pattern), model))
