"""Building the mesh: sizes of axes, `*` as what is left of the devices, views and their common refinement.

Not for: what a mesh is (`mesh`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import attrs

from placelang.diagnostics.problems import Problems, fault, refuse
from placelang.plan.meant import meant
from placelang.plan.mesh import WELL_KNOWN, Axis, Role, View, atomic
from placelang.plan.scope import Scope, size_of
from placelang.plan.values import evaluate
from placelang.source import Span
from placelang.syntax import ast


def build(meshes: Sequence[ast.Mesh], scope: Scope, devices: int | None, problems: Problems) -> None:
    """Put the axes and views of the mesh lines into the scope. `devices`: how many the hardware has, if said."""
    main = next((m for m in meshes if m.name is None), None)
    if main is not None:
        sized = _axes(main.axes, scope, devices, "hardware", problems)
        scope.axes.update({a.name: a for a in sized})
        world = _product(sized)
        if devices is not None and world is not None and world != devices:
            problems.add(
                fault(
                    "E109",
                    f"the mesh has {world:,} ranks, the hardware {devices:,} devices",
                    main.span,
                    help=_fit(main.axes, sized, devices),
                )
            )
    for mesh in meshes:
        if mesh.name is not None:
            with problems.catching():
                scope.views.append(_view(mesh, scope, problems))


def _product(axes: Sequence[Axis]) -> int | None:
    sizes = [a.size for a in axes]
    return None if None in sizes else prod(s for s in sizes if s is not None)


def _fit(declared: Sequence[ast.AxisDecl], sized: Sequence[Axis], devices: int) -> str:
    """Which axis could become what, so that the product is right."""
    for axis in sized:
        rest = prod(a.size or 1 for a in sized if a is not axis)
        if axis.role is Role.DATA and devices % rest == 0:
            return f"`{axis.name} = {devices // rest}`, or `{axis.name} = *`"
    return "make one size `*`: it becomes what is left"


def _axes(
    declared: Sequence[ast.AxisDecl], scope: Scope, total: int | None, whose: str, problems: Problems
) -> tuple[Axis, ...]:
    """The axes of one mesh line; at most one size is `*`."""
    axes: list[Axis] = []
    star: ast.AxisDecl | None = None
    for one in declared:
        with problems.catching():
            axis = Axis(one.name.text, _role(one), _size(one, scope), one.name.span)
            if isinstance(one.size, ast.Star) and axis.size is None:
                if star is not None:
                    raise refuse("E109", "a second `*`: only one size can be what is left", one.size.span)
                star = one
            axes.append(axis)
    if star is None:
        return tuple(axes)
    rest = _product([a for a in axes if a.name != star.name.text])
    with problems.catching():
        return tuple(
            attrs.evolve(a, size=_left(star, rest, total, whose)) if a.name == star.name.text else a for a in axes
        )
    return tuple(axes)


def _left(star: ast.AxisDecl, rest: int | None, total: int | None, whose: str) -> int:
    span = star.size.span if star.size else star.span
    if total is None:
        raise refuse(
            "E121",
            f"`{star.name.text} = *` needs the number of devices, which no line gives",
            span,
            help=f"a `hardware` line, or `--set {star.name.text}=8`",
        )
    if rest is None:
        raise refuse("E121", f"`{star.name.text} = *` needs the sizes of the other axes", span)
    if total % rest:
        near = [d for d in range(1, rest + 1) if total % d == 0][-1]
        raise refuse(
            "E109",
            f"{total:,} devices do not divide by the other axes' {rest:,}",
            span,
            help=f"the other axes may take {near:,}" if whose == "hardware" else "",
        )
    return total // rest


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
    raise refuse(
        "E113",
        f"axis `{name}` needs a role",
        span,
        help=f"`{name}: data`" + (f"; or did you mean `{near}`?" if near else ""),
        rule=f"only these names carry one: {', '.join(WELL_KNOWN)}",
    )


def _size(declared: ast.AxisDecl, scope: Scope) -> int | None:
    name = declared.name.text
    if name in scope.sets:
        scope.used_sets.add(name)
        return size_of(scope.sets[name], name, declared.name.span)
    if declared.size is None or isinstance(declared.size, ast.Star):
        return None
    return size_of(evaluate(declared.size, scope.lookup), name, declared.size.span)


def _view(mesh: ast.Mesh, scope: Scope, problems: Problems) -> View:
    assert mesh.name is not None
    over: list[str] = []
    for name in mesh.over:
        if name.text not in scope.axes:
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
            "E107", f"`mesh {mesh.name.text}` needs the axes whose ranks it factors", mesh.span, help="`over (dp, tp)`"
        )
    if len(set(over)) < len(over):
        raise refuse("E104", "an axis is named twice after `over`", mesh.span)
    order = [a for a in scope.axes if a in over]
    if order != over or list(scope.axes)[list(scope.axes).index(over[0]) :][: len(over)] != over:
        raise refuse(
            "E117",
            f"`over ({', '.join(over)})` is no run of neighbouring axes in the order of the mesh",
            mesh.span,
            rule="a view factors ranks that lie next to each other",
            help=f"mesh order: {', '.join(scope.axes)}",
        )
    total = _product([scope.axes[a] for a in over])
    axes = _axes(mesh.axes, scope, total, "view", problems)
    product = _product(axes)
    if total is not None and product is not None:
        _refines(mesh.span, axes, [scope.axes[a] for a in over], total, product)
    return View(mesh.name.text, axes, tuple(over), mesh.span)


def _refines(span: Span, axes: Sequence[Axis], over: Sequence[Axis], total: int, product: int) -> None:
    sizes, ranks = ([a.size or 1 for a in group] for group in (axes, over))
    written = " * ".join(str(s) for s in sizes)
    if product != total:
        raise refuse(
            "E109",
            f"the view has {written} = {product:,} ranks, the axes after `over` have {total:,}",
            span,
            help="make one size `*`: it becomes what is left",
        )
    if atomic([tuple(sizes), tuple(ranks)]) is None:
        raise refuse(
            "E117",
            f"{written} and {' * '.join(str(r) for r in ranks)} cut the same ranks in ways that do not fit",
            span,
            rule="partial products from the inside must form a chain of divisors",
        )
