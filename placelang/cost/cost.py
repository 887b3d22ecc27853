"""The cost of a program: memory, traffic and time as formulas and, where every size is known, as numbers.

Not for: layout on a screen (`tools`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import cached_property

import attrs

from placelang.cost import memory as memory_room
from placelang.cost.expr import BYTES, Expr, Formula, constant, evaluate, free, text, total
from placelang.cost.memory import Memory, memory
from placelang.cost.stages import at, in_flight, kinds
from placelang.cost.time import UNCERTAIN, Time, Untimed, time
from placelang.cost.traffic import Traffic, traffic
from placelang.diagnostics.problems import refuse
from placelang.model.model import Model
from placelang.plan.plan import Assumption, Plan
from placelang.plan.values import Unknown, Value
from placelang.program.atoms import refined
from placelang.program.program import Program
from placelang.program.stages import Stages
from placelang.quantity import Quantity
from placelang.source import Span


def _untimed() -> Time | Untimed:
    return Untimed("a stage alone has none")


@attrs.frozen(slots=False)
class Cost:
    """Memory of one rank, its traffic in one step, and how long that takes. `values` binds the symbols whose number is
    known."""

    memory: Memory
    traffic: tuple[Traffic, ...]
    values: Mapping[str, int]
    assumptions: tuple[Assumption, ...]
    stages: tuple[tuple[int, Cost], ...] = ()  # of a pipeline, the cost of each kind of stage by its first coordinate
    _time: Callable[[], Time | Untimed] = attrs.field(default=_untimed, eq=False, repr=False)

    @cached_property
    def time(self) -> Time | Untimed:
        """Seconds of a step, found when first asked for; or why there are none."""
        return self._time()

    def seconds(self, expr: Expr) -> float | None:
        """A time, or another figure that is not bytes, as a number; None while a size is unknown."""
        if set(free(expr)) - set(self.values):
            return None
        return float(evaluate(expr, {name: float(value) for name, value in self.values.items()}))

    def number(self, expr: Expr | None) -> int | None:
        """The whole number of bytes (rounded up, for formats below a byte); None while a size is unknown."""
        if expr is None or set(free(expr)) - set(self.values):
            return None
        value = evaluate(expr, self.values)
        return -int(-value // 1)

    def unknown(self, expr: Expr) -> tuple[str, ...]:
        """The symbols that a number still needs."""
        return tuple(sorted(set(free(expr)) - set(self.values)))

    @property
    def peak(self) -> Expr | None:
        """The most that a device holds at one time."""
        return self.memory.peak

    @property
    def by_state(self) -> dict[str, Expr | None]:
        """Device memory by state; `views` and `raw_grads` are the transient copies of a step."""
        return self.memory.by_state

    def value(self, name: str, span: Span) -> Value | None:
        """What an `assert` reads: `memory.peak`, `comm.bytes(dp)`, `time.step`, `mfu`. None for a name that is no cost.

        Raises Refused where the text gives too little for a time.
        """
        if name in ("mfu", "time.step", "time.exposed", "time.hidden", "time.bubble"):
            return self._timed(name, span)
        kind, _, what = name.partition(".")
        if kind == "memory" and what == "host":
            return Quantity(Fraction(0), "bytes")
        states = {"peak": self.memory.peak, **self.by_state}
        if kind == "memory" and what in states:
            return self._quantity(states[what])
        if kind == "comm" and what.startswith("bytes("):
            axes = tuple(what[len("bytes(") : -1].split("*"))
            return self._quantity(_sum(t.alg for t in self.on(axes)))
        return None

    def _timed(self, name: str, span: Span) -> Value:
        dimension = "" if name == "mfu" else "seconds"
        if isinstance(self.time, Untimed):
            if not self.time.named:
                return Unknown("hardware", dimension)
            raise refuse("E121", f"`{name}` needs a time, and {self.time.reason}", span)
        expr: Expr = getattr(self.time, name.removeprefix("time."))
        number = self.seconds(expr)
        if number is None:
            return Unknown(self.unknown(expr)[0], dimension)
        return Quantity(Fraction(number), dimension) if dimension else Fraction(number)

    def _quantity(self, expr: Expr | None) -> Value:
        number = self.number(expr)
        if number is not None:
            return Quantity(Fraction(number), "bytes")
        return Unknown(self.unknown(expr)[0] if expr is not None else "activations")

    @property
    def axes(self) -> tuple[tuple[str, ...], ...]:
        return tuple(dict.fromkeys(t.axes for t in self.traffic))

    def on(self, axes: tuple[str, ...]) -> tuple[Traffic, ...]:
        return tuple(t for t in self.traffic if t.axes == axes)


def cost(plan: Plan, model: Model, program: Program) -> Cost:
    """The cost of one step of `program`, which `plan` denotes for `model`."""
    values = {axis.name: axis.size for axis in program.mesh.axes if axis.size is not None}
    plan = refined(plan) or plan
    values |= dict(model.sizes)
    values["M"] = plan.train.microbatches
    if plan.train.seq is not None:
        values["s"] = plan.train.seq
    if plan.train.micro_batch is not None:
        values["b"] = plan.train.micro_batch
    assumed = (*plan.assumptions, *memory_room.ASSUMPTIONS, Assumption("runtime", program.profile.text))
    if program.stages is None:
        found = Cost(memory(plan, model, program), traffic(program), values, assumed)
    else:
        found = _of_stages(plan, model, program, program.stages, values, assumed)
    return attrs.evolve(found, time=lambda: time(plan, model, program))


def _of_stages(
    plan: Plan,
    model: Model,
    program: Program,
    stages: Stages,
    values: Mapping[str, int],
    assumed: tuple[Assumption, ...],
) -> Cost:
    """Memory of the stage that needs most, and traffic of the one that sends most."""
    found: dict[int, Cost] = {}
    for rank in kinds(stages):
        part, held = at(program, model, rank)
        found[rank] = Cost(memory(plan, held, part, in_flight(plan, stages, rank)), traffic(part), values, assumed)
    fullest = max(found, key=lambda r: found[r].number(found[r].memory.peak) or 0)
    busiest = max(found, key=lambda r: found[r].number(_sum(t.wire for t in found[r].traffic)) or 0)
    said = f"memory is that of stage {fullest} of {stages.axis}, traffic that of stage {busiest}: the most there is"
    return Cost(
        found[fullest].memory,
        found[busiest].traffic,
        values,
        (*assumed, Assumption("stages", said)),
        tuple(found.items()),
    )


def as_json(cost: Cost) -> dict[str, object]:
    """The documented JSON object of a cost: sizes in bytes, null where a size is not known."""
    formulas = {f"memory.device.{k}": _formula(e) for k, e in cost.by_state.items() if e is not None}
    if (peak := cost.memory.peak) is not None:
        formulas["memory.device.peak"] = _formula(peak)
    by_axis = {}
    for axes in cost.axes:
        rows = cost.on(axes)
        name = "*".join(axes)
        formulas[f"comm.{name}.bytes"] = _formula(_sum(t.alg for t in rows))
        by_axis[name] = {
            "bytes": cost.number(_sum(t.alg for t in rows)),
            "wire_bytes": cost.number(_sum(t.wire for t in rows)),
            "collectives": [
                {
                    "kind": t.kind,
                    "phase": t.phase,
                    "dtype": t.dtype,
                    "count": cost.number(t.count),
                    "message_bytes": cost.number(t.message),
                }
                for t in rows
            ],
        }
    return {
        "memory": {
            "device": {
                "peak": cost.number(cost.memory.peak),
                "by_state": {k: cost.number(e) for k, e in cost.by_state.items()},
            },
            "host": 0,
        },
        "comm": {"by_axis": by_axis},
        "time": _times(cost),
        "assumptions": [{"name": a.name, "text": a.text} for a in (*cost.assumptions, *of_time(cost))],
        "formulas": formulas,
    }


def of_time(cost: Cost) -> tuple[Assumption, ...]:
    """What the time of a cost assumes."""
    return () if isinstance(cost.time, Untimed) else cost.time.assumptions


def _times(cost: Cost) -> dict[str, object]:
    """Seconds of a step and of its parts, with utilisation and tokens/s; why not, where there are none."""
    t = cost.time
    if isinstance(t, Untimed):
        nothing = dict.fromkeys(("step", "parts", "hidden", "exposed", "mfu", "tokens_per_second", "within"))
        return {**nothing, "reason": t.reason}
    return {
        "step": cost.seconds(t.step),
        "reason": None,
        "parts": {name: cost.seconds(expr) for name, expr in t.parts.items()},
        "hidden": cost.seconds(t.hidden),
        "exposed": cost.seconds(t.exposed),
        "mfu": cost.seconds(t.mfu),
        "tokens_per_second": cost.seconds(t.tokens_per_second),
        "within": {"half": UNCERTAIN[0], "nine_in_ten": UNCERTAIN[1]},
    }


def _sum(parts: Iterable[Expr]) -> Expr:
    return total((constant(0, BYTES), *parts))


def _formula(expr: Expr) -> str:
    formula: Formula = text(expr)
    return str(formula)
