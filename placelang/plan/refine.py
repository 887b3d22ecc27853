"""What the tensors of selections do: the words of every selection that takes a tensor, joined, over those for all.

A tensor that several selections take does what all of them say, axis by axis (language reference, "Selectors"); the
words of a later one replace where it overrides. Journeys are complete, so where selections meet the plan says what
happens there: the narrower one, or the names of the tensors that they share, `override` the wider.
Not for: which tensors a selector takes (`selectors`), or what no line says of all tensors (`infer`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce

import attrs

from placelang.diagnostics.diagnostic import Diagnostic, Label
from placelang.diagnostics.problems import Problems, fault
from placelang.frozen import Frozen
from placelang.model.model import Model
from placelang.plan.compose import Key, Written
from placelang.plan.infer import check_gathers, complete, is_local, parameters
from placelang.plan.merge import differ, needs_whole, ordered, replace, together
from placelang.plan.mesh import Mesh, Role
from placelang.plan.plan import Placed, Selection, State
from placelang.plan.selectors import matches, named, tell_layers
from placelang.plan.steps import FORMS, Journey, Partial, Reduce, Replicate, Shard, Step, When

_WEIGHTS = (State.PARAMS, State.OPTIMIZER, State.GRADS)

Runs = Mapping[str, tuple[Journey, ...]]
"""By head: what is said of some tensors, as runs of words of which each replaces what it names of those before it."""


@attrs.frozen(eq=False, repr=False)
class _Words(Frozen):
    """What a text says of some selections, by head, and the tensors that they take."""

    selections: tuple[Selection, ...]
    own: Mapping[str, Written]
    taken: frozenset[str]

    @property
    def of_weights(self) -> bool:
        """Whether it says how named weights lie, from which the rest of what they do follows."""
        return all(s.by_name for s in self.selections) and any(s.value in self.own for s in _WEIGHTS)


@attrs.frozen(eq=False, repr=False)
class Refined(Frozen):
    """What selections do, in an order in which later ones replace earlier ones, and the complete journeys of params
    and optimizer of each."""

    placed: tuple[Placed, ...]
    lie: tuple[tuple[Journey, Journey], ...]


def refined(
    written: Mapping[Key, Written],
    states: Mapping[State, Journey],
    mesh: Mesh,
    model: Model,
    frozen: tuple[str, ...],
    problems: Problems,
) -> Refined:
    """The complete journeys of the selections of a text, over `states`, those of all tensors. Two selections that say
    different things of one tensor, without `override`, are a fault (E108)."""
    base = {head: w.journey for (head, selections), w in written.items() if not selections}
    words, each = _words(written, model, frozen)
    clashes = [d for state in State for d in _clashes(state.value, written, words, mesh)]
    problems.add(*clashes)
    alone = {i: _alone(w, base, states, mesh, problems) for i, w in enumerate(words.values()) if w.of_weights}
    groups = list(words.values())
    who = _who(groups)
    placed: list[Placed] = []
    lie: list[tuple[Journey, Journey]] = []
    before: dict[str, list[Mapping[State, Journey]]] = {}  # what was placed so far, by tensor
    always = _always(who)
    # Wider selections first; and an order that is the same when the plan is printed and read again.
    nothing = {(i,): frozenset[str]() for i in alone if not groups[i].taken}
    for several, tensors in sorted((who | nothing).items(), key=lambda item: (item[0][-1], len(item[0]), item[0])):
        group = [groups[i] for i in several]
        journeys = alone[several[-1]]
        if len(several) > 1 and not clashes:
            joined = _complete(_joined(group, written), base, states, mesh, Problems())
            wider = {id(said): said for name in tensors for said in before.get(name, ())}
            journeys = _unlike(joined, [states, *wider.values()], mesh)
        narrowest = next((groups[i] for i in reversed(several) if always.get(i, set(several)) >= set(several)), None)
        selections = narrowest.selections if narrowest else named(tensors, model, each)
        reach = narrowest.taken if narrowest else tensors
        again = any(name in before for name in reach)
        unlike = [s for s in _WEIGHTS if any(said[s] != states[s] for said in (journeys, *(alone[i] for i in several)))]
        placed += _placed(group, journeys, unlike, selections, again)
        lie.append((journeys[State.PARAMS], () if any(map(_is_frozen, group)) else journeys[State.OPTIMIZER]))
        for name in reach:
            before.setdefault(name, []).append(journeys)
    for (head, selections), own in written.items():
        weights = head != State.ACTIVATIONS.value and all(s.by_name for s in selections)
        if selections and not weights:
            placed.append(Placed(State(head), own.journey, selections, own.override, own.span))
    return Refined(tuple(placed), tuple(lie))


def _words(
    written: Mapping[Key, Written], model: Model, frozen: tuple[str, ...]
) -> tuple[dict[tuple[Selection, ...], _Words], bool]:
    """What is said of each selection, in the order of the text; and whether layers of a run are told apart."""
    groups: dict[tuple[Selection, ...], dict[str, Written]] = {}
    for (head, selections), said in written.items():
        if selections:
            groups.setdefault(selections, {})[head] = said
    each = tell_layers((s for selections in groups for s in selections), frozen)

    def taken(selections: tuple[Selection, ...]) -> frozenset[str]:
        return frozenset().union(*(matches(s, model, frozen, each) for s in selections if s.by_name))

    return {selections: _Words(selections, own, taken(selections)) for selections, own in groups.items()}, each


def _placed(
    group: Sequence[_Words],
    journeys: Mapping[State, Journey],
    unlike: Iterable[State],
    selections: tuple[Selection, ...],
    again: bool,
) -> Iterator[Placed]:
    """What is placed of the tensors of some words: what they say, and what is `unlike` that of all tensors. `again`:
    some of the tensors are placed already."""
    one = len(group) == 1
    for state in _WEIGHTS:
        own = [w.own[state.value] for w in group if state.value in w.own]
        follows = state in unlike and (state is State.PARAMS or not any(map(_is_frozen, group)))
        if own or follows:
            # what follows from an override overrides too
            overrides = own[0].override if own else any(x.override for x in group[0].own.values())
            span = own[0].span if own and one else None
            yield Placed(state, journeys[state], selections, (overrides and one) or again, span)


def _who(words: Sequence[_Words]) -> dict[tuple[int, ...], set[str]]:
    """The tensors whose weights several selections place, by who places them."""
    by_tensor: dict[str, list[int]] = {}
    for i, w in enumerate(words):
        for name in w.taken if w.of_weights else ():
            by_tensor.setdefault(name, []).append(i)
    found: dict[tuple[int, ...], set[str]] = {}
    for name, several in by_tensor.items():
        found.setdefault(tuple(several), set()).add(name)
    return found


def _always(who: Iterable[tuple[int, ...]]) -> dict[int, set[int]]:
    """By words: those who say something of each tensor that they take."""
    found: dict[int, set[int]] = {}
    for several in who:
        for i in several:
            found[i] = found.get(i, set(several)) & set(several)
    return found


def _joined(group: Sequence[_Words], written: Iterable[Key]) -> Runs:
    """What several words say of the tensors that they share, in the order in which it is said."""
    runs: dict[str, tuple[Journey, ...]] = {}
    by_selections = {w.selections: w for w in group}
    for head, selections in written:
        if (w := by_selections.get(selections)) is not None:
            own, before = w.own[head], runs.get(head, ())
            if own.override or not before:
                runs[head] = (*before, own.journey)
            else:
                runs[head] = (*before[:-1], together(before[-1], own.journey))
    return runs


def _alone(
    w: _Words, base: Mapping[str, Journey], states: Mapping[State, Journey], mesh: Mesh, problems: Problems
) -> dict[State, Journey]:
    """What the tensors do that these words alone are about. Where params lie otherwise, so does what follows."""
    full = _complete({head: (own.journey,) for head, own in w.own.items()}, base, states, mesh, problems)
    if "params" in w.own:
        check_gathers(w.own["params"].journey, full[State.PARAMS], mesh, problems)
    return _unlike(full, [states], mesh)


def _unlike(
    full: Mapping[State, Journey], wider: Sequence[Mapping[State, Journey]], mesh: Mesh
) -> dict[State, Journey]:
    """The journeys with a word on each axis that `wider` ones split and these leave whole: said in their place, they
    say all of it."""
    found = dict(full)
    for state in (State.PARAMS, State.OPTIMIZER):
        forms = [s for s in full[state] if isinstance(s, FORMS)]
        said = {shared for s in forms for a in s.axes for shared in mesh.shared(a)}
        shards = [s for other in wider for s in other[state] if isinstance(s, Shard)]
        held = any(a not in needs_whole(s, mesh) for s in shards for a in s.axes)
        missing = {a for s in shards for a in s.axes if a not in said}
        if missing and (held or any(s.axes for s in forms)):
            units = [s for s in forms if isinstance(s, Replicate)]
            if state is State.OPTIMIZER and any(not s.axes for s in units):  # which spoke of what would split it, too
                missing |= {a for s in full[State.PARAMS] for a in needs_whole(s, mesh)}
                missing |= {a for s in full[State.GRADS] if isinstance(s, Reduce) and s.scatter for a in s.axes}
            whole = {*missing, *(a for s in units for a in s.axes)}
            axes = tuple(a.name for a in (*mesh.axes, *(a for v in mesh.views for a in v.axes)) if a.name in whole)
            unit = Replicate(axes=axes, why="whole here, split elsewhere")
            found[state] = ordered((*(s for s in full[state] if s not in units), unit))
    return found


def _is_frozen(w: _Words) -> bool:
    """What is frozen has neither gradients nor an optimizer."""
    return all(s.value == "frozen" for s in w.selections)


def _complete(
    words: Runs,
    base: Mapping[str, Journey],
    states: Mapping[State, Journey],
    mesh: Mesh,
    problems: Problems,
) -> dict[State, Journey]:
    """What a selection's tensors do: its own words where it has any, else those of the text for all tensors."""

    def over(journey: Journey, head: str) -> Journey:
        return reduce(lambda said, run: replace(said, run, mesh), words.get(head, ()), journey)

    merged = {head: over(base.get(head, ()), head) for head in (*base, *words)}
    # What compute uses as it is lies outside of what is gathered, so that a gather gives back whole local shards.
    held = sorted(merged.get("params", ()), key=lambda s: isinstance(s, FORMS) and not is_local(s, mesh))
    merged["params"] = ordered(tuple(held))
    params = parameters(merged["params"], mesh)
    for head in ("optimizer", "grads"):
        if head in base:
            merged[head] = over(_seen_from(params, base[head], mesh), head)
    merged["activations"] = states[State.ACTIVATIONS]  # what a module returns does not say which tokens it sees
    moves = [s for run in words.get("grads", ()) for s in run]
    if moves:
        if "grads" not in base:  # axis by axis: what the selection does not name is inferred as elsewhere
            rest = {head: journey for head, journey in merged.items() if head != "grads"}
            inferred = complete(rest, mesh, problems)[State.GRADS]
            merged["grads"] = over(tuple(s for s in inferred if not isinstance(s, Partial)), "grads")
        merged["grads"] = tuple(sorted(merged["grads"], key=_moment))
    over_axes = dict.fromkeys(a for s in moves if isinstance(s, (Reduce, Partial)) for a in s.axes)
    also = tuple(a for a in over_axes if mesh[a].role in (Role.STAGE, Role.TENSOR))
    return complete(merged, mesh, problems, also)


def _moment(step: Step) -> int:
    """When a step of a gradient happens: produced, reduced each microbatch, reduced each step, put to rest."""
    if isinstance(step, Reduce):
        return 1 if step.when is When.MICROBATCH else 2
    return 0 if isinstance(step, Partial) else 3


def _seen_from(params: Journey, journey: Journey, mesh: Mesh) -> Journey:
    """What is said of all tensors, for tensors whose compute holds other shards: an axis over which they are split is
    dropped, and the axes that a view factors become those axes of the view that are left."""
    local = {a for s in params if is_local(s, mesh) for a in s.axes}
    views = [v for v in mesh.views if any(a in v for s in params if isinstance(s, Shard) for a in s.axes)]
    done: set[str] = set()
    found: list[Step] = []
    for step in journey:
        axes: list[str] = []
        for axis in step.axes:
            view = next((v for v in views if axis in v.over), None)
            if view is None:
                axes += [axis] if axis not in local or mesh[axis].role not in (Role.DATA, Role.EXPERT) else []
            elif (kind := f"{view.name} of {type(step).__name__}") not in done:
                done.add(kind)
                axes += [a.name for a in view.axes if a.name not in local]
        if axes or not step.axes:
            found.append(attrs.evolve(step, axes=tuple(axes)))
    return tuple(found)


def _clashes(
    head: str, written: Mapping[Key, Written], words: Mapping[tuple[Selection, ...], _Words], mesh: Mesh
) -> Iterator[Diagnostic]:
    """Two selections of one tensor do not contradict each other without `override`."""
    seen: dict[str, dict[Journey, Written]] = {}  # by tensor, what was said of it before
    for (of, selections), later in written.items():
        if of != head or not selections:
            continue
        names = words[selections].taken
        earlier = {journey: one for name in sorted(names) for journey, one in seen.get(name, {}).items()}
        for journey, first in earlier.items() if not later.override else ():
            if where := differ(later.journey, journey, mesh):
                both = min(n for n in names if journey in seen.get(n, {}))
                span = later.span
                yield fault(
                    "E108",
                    f"two selections place {head} of `{both}` differently {where}",
                    span,
                    causes=(Label(first.span, "one"),) if first.span else (),
                    help=f"`override {span.text}` lets this one replace the other" if span else "",
                )
                break
        for name in names:
            seen.setdefault(name, {}).setdefault(later.journey, later)
