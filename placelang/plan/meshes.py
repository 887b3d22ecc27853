"""Building the mesh: sizes of axes, `*` as what is left of the devices, views and their common refinement.

Not for: what a mesh is (`mesh`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import prod

import attrs

from placelang.diagnostics.diagnostic import Diagnostic, Label
from placelang.diagnostics.problems import Problems, Refused, fault, refuse
from placelang.frozen import Frozen
from placelang.plan.meant import meant
from placelang.plan.mesh import WELL_KNOWN, Axis, Role, View, atomic
from placelang.plan.scope import Scope, size_of
from placelang.plan.values import evaluate
from placelang.source import Span
from placelang.syntax import ast


def build(
    meshes: Sequence[ast.Mesh],
    scope: Scope,
    devices: int | None,
    broken: Diagnostic | None,
    problems: Problems,
    asked: bool = False,
) -> None:
    """Put the axes and views of the mesh lines into the scope. `devices`: how many the hardware has, if said;
    `broken`: why what is said of it is not known. `asked`: they are not the hardware's but there to run on."""
    main = next((m for m in meshes if m.name is None), None)
    if main is not None:
        before = len(scope.broken)
        sized = _axes(main, scope, _Total(devices, "devices", broken), problems)
        if asked and devices is not None and len(scope.broken) == before and not problems.any_error:
            try:
                sized = filled(sized, devices, scope, main.span)
            except Refused as refused:
                problems.add(*refused.diagnostics)
                scope.broken |= {a.name: refused.diagnostic for a in sized if a.size is None}
        scope.axes.update({a.name: a for a in sized})
        world = _product(sized)
        if not asked and devices is not None and world not in (None, devices) and len(scope.broken) == before:
            problems.add(
                fault(
                    "E109",
                    f"the mesh has {world:,} ranks, the hardware {devices:,} devices",
                    main.span,
                    help=_fit(sized, devices, scope),
                )
            )
    for mesh in meshes:
        if mesh.name is not None:
            try:
                scope.views.append(_view(mesh, scope, problems))
            except Refused as refused:
                problems.add(*refused.diagnostics)
                scope.broken |= {a.name.text: refused.diagnostic for a in mesh.axes}


@attrs.frozen(eq=False, repr=False)
class _Total(Frozen):
    """The ranks that the axes of a line make together, where they are known, and why not if a mistake is why."""

    ranks: int | None
    what: str
    broken: Diagnostic | None = None
    needed: tuple[str, ...] = ()  # axes whose sizes would tell


def filled(axes: Sequence[Axis], devices: int, scope: Scope, span: Span | None) -> tuple[Axis, ...]:
    """The axes with a size for the one that has none, if it is one, so that they make the devices that there are.

    Raises Refused where sizes do not make that number.
    """
    open_ = [a for a in axes if a.size is None]
    known = prod(a.size or 1 for a in axes)
    if len(open_) > 1:
        return tuple(axes)
    sizes = [f"{a.name} = {a.size}" for a in axes if a.size is not None]
    there = f"{devices:,} device{'s' * (devices != 1)}"
    if not open_ and devices != known:
        mine = f"{known:,} rank{'s' * (known != 1)} ({', '.join(sizes) or 'no axis'})"
        more = f", or {_fit(axes, devices, scope)}" if axes else ""
        raise refuse("E503", f"the mesh has {mine}, not {there}", span, help=f"`--nproc {known}`{more}")
    if devices % known:
        help_ = f"`--nproc {known}` or a multiple of it"
        raise refuse("E503", f"{there} do not divide by {' * '.join(sizes)}", span, help=help_)
    return tuple(attrs.evolve(a, size=devices // known) if a.size is None else a for a in axes)


def _product(axes: Sequence[Axis]) -> int | None:
    sizes = [a.size for a in axes]
    return None if None in sizes else prod(s for s in sizes if s is not None)


def _fit(sized: Sequence[Axis], total: int, scope: Scope) -> str:
    """Sizes that make the product right: one axis changed, data axes first; else two. Ends in what always helps."""

    def written(axis: Axis, size: int) -> str:
        return f"`--set {axis.name}={size}`" if axis.name in scope.sets else f"`{axis.name} = {size}`"

    by_use = sorted(sized, key=lambda a: a.role is not Role.DATA)
    for axis in by_use:
        rest = prod(a.size or 1 for a in sized if a is not axis)
        if total % rest == 0 and (axis.role is Role.DATA or total // rest > 1):
            star = "" if axis.name in scope.sets else f", or `{axis.name} = *`"
            return written(axis, total // rest) + star
    for axis in by_use:
        for other in by_use[::-1]:
            rest = prod(a.size or 1 for a in sized if a is not axis and a is not other)
            if axis is not other and total % rest == 0:
                fits = [d for d in range(1, total // rest + 1) if (total // rest) % d == 0] if total < 2**20 else []
                near = min(fits, key=lambda d: (abs(d - (other.size or 1)), d), default=1)
                return f"{written(other, near)} and {written(axis, total // rest // near)}"
    return f"sizes whose product is {total:,}"


def _axes(line: ast.Mesh, scope: Scope, total: _Total, problems: Problems) -> tuple[Axis, ...]:
    """The axes of one mesh line; at most one size is `*`. Those that are refused are left out."""
    axes: list[Axis] = []
    star: ast.AxisDecl | None = None
    inside = {one.name.text for one in line.axes}
    for one in line.axes:
        try:
            axis = Axis(one.name.text, _role(one), _size(one, scope, inside), one.name.span)
            if isinstance(one.size, ast.Star) and axis.size is None:
                if star is not None:
                    first = (Label(star.size.span, "the first"),) if star.size else ()
                    raise refuse("E109", "a second `*`: only one size can be what is left", one.size.span, causes=first)
                star = one
            axes.append(axis)
        except Refused as refused:
            problems.add(*refused.diagnostics)
            scope.broken[one.name.text] = refused.diagnostic
    if star is None or inside & set(scope.broken):
        return tuple(axes)
    others = [a for a in axes if a.name != star.name.text]
    with problems.catching():
        left = _left(star, others, total)
        return tuple(attrs.evolve(a, size=left) if a.name == star.name.text else a for a in axes)
    return tuple(axes)


def _left(star: ast.AxisDecl, others: Sequence[Axis], total: _Total) -> int:
    span = star.size.span if star.size else star.span
    name, rest = star.name.text, _product(others)
    if total.broken is not None:
        raise Refused(total.broken)
    if total.ranks is None and total.needed:
        sets = " ".join(f"--set {a}=8" for a in total.needed)
        names = " and ".join(f"`{a}`" for a in total.needed)
        raise refuse("E121", f"`{name} = *` needs the size of {names}, which no line gives", span, help=f"`{sets}`")
    if total.ranks is None:
        raise refuse(
            "E121",
            f"`{name} = *` needs the number of devices, which no line gives",
            span,
            help=f"a `hardware` line, or `--set {name}=8`",
        )
    if rest is None:
        open_ = [a.name for a in others if a.size is None]
        names, sets = " and ".join(f"`{a}`" for a in open_), " ".join(f"--set {a}=1" for a in open_)
        raise refuse("E121", f"`{name} = *` needs the size of {names}, which no line gives", span, help=f"`{sets}`")
    if total.ranks % rest:
        raise refuse(
            "E109",
            f"{total.ranks:,} {total.what} do not divide by {' * '.join(f'{a.name} = {a.size}' for a in others)}",
            span,
            help=_dividing(others, total.ranks),
        )
    return total.ranks // rest


def _dividing(others: Sequence[Axis], ranks: int) -> str:
    """The nearest size of one axis with which the others divide the ranks."""
    for axis in others[::-1]:
        rest = prod(a.size or 1 for a in others if a is not axis)
        if ranks % rest == 0 and axis.size:
            fits = [d for d in range(1, min(ranks // rest, 4 * axis.size) + 1) if (ranks // rest) % d == 0]
            near = sorted(sorted(fits, key=lambda d: abs(d - (axis.size or 1)))[:2])
            return " or ".join(f"`{axis.name} = {d}`" for d in near)
    return f"sizes whose product divides {ranks:,}"


def _role(declared: ast.AxisDecl) -> Role:
    name, span = declared.name.text, declared.name.span
    if name == "sp":
        help_ = "`cp` for context parallelism, `tp` for Megatron's, or another name with a role"
        raise refuse("E114", "`sp` means sequence parallelism in two ways", span, help=help_)
    if declared.role is not None:
        roles = {r.value: r for r in Role}
        if declared.role.text not in roles:
            near = meant(declared.role.text, roles)
            raise refuse(
                "E101",
                f"no role is called `{declared.role.text}`",
                declared.role.span,
                help=f"did you mean `{near}`?" if near else f"roles: {', '.join(roles)}",
            )
        return roles[declared.role.text]
    if name in WELL_KNOWN:
        return WELL_KNOWN[name]
    near = meant(name, WELL_KNOWN)
    others = ", ".join(r.value for r in Role if r is not Role.DATA)
    written = f"mesh ({name}: data{declared.span.text[len(declared.name.span.text) :]})"
    raise refuse(
        "E113",
        f"axis `{name}` needs a role",
        span,
        help=(f"did you mean `{near}`? Else " if near else "") + f"say it: `{written}`, or {others}",
        rule=f"only these names carry one: {', '.join(WELL_KNOWN)}",
    )


def _size(declared: ast.AxisDecl, scope: Scope, inside: set[str]) -> int | None:
    name = declared.name.text
    if name in scope.sets:
        scope.used_sets.add(name)
        return size_of(scope.sets[name], name, None)
    if declared.size is None or isinstance(declared.size, ast.Star):
        return None
    try:
        return size_of(evaluate(declared.size, scope.lookup), name, declared.size.span)
    except Refused:
        if other := next((n.text for n in ast.names(declared.size) if n.text in inside - scope.lets.keys()), None):
            help_ = f"`let n = ...` before the mesh, for both `{name}` and `{other}`"
            message = f"the size of `{name}` depends on axis `{other}` of the same mesh"
            raise refuse("E109", message, declared.size.span, help=help_) from None
        raise


def _view(mesh: ast.Mesh, scope: Scope, problems: Problems) -> View:
    assert mesh.name is not None
    over: list[str] = []
    for name in mesh.over:
        if name.text not in scope.axes:
            scope.whole(name.text)
            near = meant(name.text, scope.axes)
            raise refuse(
                "E102",
                f"`over` names `{name.text}`, which is no axis of the mesh",
                name.span,
                help=f"did you mean `{near}`?" if near else f"axes: {', '.join(scope.axes)}",
            )
        over.append(name.text)
    if not over:
        raise refuse(
            "E107",
            f"`mesh {mesh.name.text}` needs the axes whose ranks it factors",
            mesh.span,
            help=f"`over ({', '.join(scope.axes) or 'dp, tp'})`, or a part of these",
        )
    if len(set(over)) < len(over):
        twice = next(name for name in mesh.over if over.count(name.text) > 1)
        raise refuse("E104", f"`{twice.text}` is named twice after `over`", mesh.over[-1].span)
    order = [a for a in scope.axes if a in over]
    if order != over or not _adjacent(order, scope):
        raise refuse(
            "E117",
            f"`over ({', '.join(over)})` is no run of neighbouring axes in the order of the mesh",
            mesh.span,
            rule="a view factors ranks that lie next to each other",
            help=f"`over ({', '.join(order)})`" if _adjacent(order, scope) else f"mesh order: {', '.join(scope.axes)}",
        )
    total = _product([scope.axes[a] for a in over])
    unsized = tuple(a for a in over if scope.axes[a].size is None)
    axes = _axes(mesh, scope, _Total(total, f"ranks of {' * '.join(over)}", None, unsized), problems)
    product = _product(axes)
    sound = mesh.axes and not {a.name.text for a in mesh.axes} & scope.broken.keys()
    if total is not None and product is not None and sound:
        _refines(mesh.span, axes, [scope.axes[a] for a in over], total, product, scope)
    return View(mesh.name.text, axes, tuple(over), mesh.span)


def _adjacent(over: Sequence[str], scope: Scope) -> bool:
    axes = list(scope.axes)
    return axes[axes.index(over[0]) :][: len(over)] == list(over)


def _refines(span: Span, axes: Sequence[Axis], over: Sequence[Axis], total: int, product: int, scope: Scope) -> None:
    sizes, ranks = ([a.size or 1 for a in group] for group in (axes, over))
    written = " * ".join(str(s) for s in sizes)
    if product != total:
        raise refuse(
            "E109",
            f"the view has {written} = {product:,} ranks, the axes after `over` have {total:,}",
            span,
            help=_fit(axes, total, scope),
        )
    if atomic([tuple(sizes), tuple(ranks)]) is None:
        fitting = (p for p in permutations(axes) if atomic([tuple(a.size or 1 for a in p), tuple(ranks)]))
        turned = next(fitting, None) if len(axes) <= 5 else None
        order = ", ".join(f"{a.name} = {a.size}" for a in turned) if turned else ""
        raise refuse(
            "E117",
            f"{written} and {' * '.join(str(r) for r in ranks)} cut the same ranks in ways that do not fit",
            span,
            rule="of the products of sizes from the inside, each must divide the next larger one",
            help=f"in another order they do: `({order})`" if order else "",
        )
