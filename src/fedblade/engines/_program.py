"""Programs: the operations of a recorded computation as data, and as Python code that repeats them.

A program is a flat list of calls of torch's own kernels. Autograd, vmap and the code of layers and terms have run while
it was recorded and are no longer in it. Two programs of different numbers of clients that differ in whole numbers only
make one program for every number: each such number is a linear function of the clients.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor

Code: TypeAlias = Callable[[int, Sequence[Tensor]], tuple[Tensor, ...]]


class Changed(Exception):
    """A yes or no that Python read while recording is another one now."""


@dataclass(frozen=True, order=True)
class Register:
    """The name of a tensor of a program: an input `i…`, a constant `c…` or a result `r…`."""

    name: str


def inputs_of(number: int) -> list[Register]:
    """The registers of the inputs of a recorded function."""
    return [Register(f"i{position}") for position in range(number)]


@dataclass(frozen=True)
class Linear:
    """A whole number that depends on the number of clients: base + factor·clients."""

    base: int
    factor: int


@dataclass(frozen=True)
class Call:
    """One operation: its arguments, and the registers of its results, None where there is none or it is known already.

    `written` are the arguments that it changes. `memory` has for each result the argument whose memory it is a view of,
    None where the memory is new. `check` is what Python read of the one result, which it must be again.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...]
    results: tuple[Register | None, ...]
    written: tuple[Register, ...] = ()
    memory: tuple[Register | None, ...] = ()
    is_list: bool = False
    check: bool | None = None

    @cached_property
    def read(self) -> frozenset[Register]:
        """The registers that the operation reads."""
        return frozenset(registers_in((self.args, self.named)))

    @cached_property
    def touched(self) -> frozenset[Register]:
        """The registers that the operation reads or makes."""
        return self.read | {result for result in self.results if result is not None}


@dataclass(frozen=True)
class Program:
    """Calls in order, the registers of the outputs, and the tensors that are the same in every run.

    `changed` has the positions of the inputs that the calls change.
    """

    calls: tuple[Call, ...]
    outputs: tuple[Register, ...]
    constants: Mapping[Register, Tensor] = field(default_factory=dict)
    changed: tuple[int, ...] = ()

    def without_unused(self) -> "Program":
        """The program without calls whose results nobody reads."""
        needed, kept = set(self.outputs), list[Call]()
        for call in reversed(self.calls):
            if call.written or call.check is not None or any(result in needed for result in call.results):
                needed |= call.read
                kept.append(call)
        constants = {register: leaf for register, leaf in self.constants.items() if register in needed}
        return replace(self, calls=tuple(reversed(kept)), constants=constants)

    def code(self, inputs: Sequence[Register]) -> Code:
        """A function of the number of clients and the inputs. Tensors that are no longer needed are freed at once."""
        space: dict[str, Any] = {register.name: leaf for register, leaf in self.constants.items()}
        space["Changed"] = Changed
        names = {function: f"f{number}" for number, function in enumerate({call.function for call in self.calls})}
        space |= {name: function for function, name in names.items()}
        unpacked = "".join(f"{register.name}, " for register in inputs)
        lines = [*([f"{unpacked}= inputs"] if inputs else []), *_lines(self, names, space)]
        lines.append(f"return ({''.join(f'{register.name}, ' for register in self.outputs)})")
        # Names as default values are local, which is how Python finds them fastest.
        local = "".join(f", {name}={name}" for name in space)
        source = f"def run(n, inputs{local}):\n    " + "\n    ".join(lines)
        exec(compile(source, "<recorded step>", "exec"), space)  # noqa: S102 - the source has names of torch and numbers only
        run: Code = space["run"]
        return run


def _lines(program: Program, names: Mapping[Callable[..., Any], str], space: dict[str, Any]) -> Iterator[str]:
    """The calls as lines of Python; values that Python cannot write down are put into `space`."""
    last = {register: number for number, call in enumerate(program.calls) for register in call.touched}
    for number, call in enumerate(program.calls):
        parts = [_text(part, space) for part in call.args]
        parts += [f"{name}={_text(part, space)}" for name, part in call.named]
        text = f"{names[call.function]}({', '.join(parts)})"
        if call.check is not None:
            yield f"if {text} is not {call.check}: raise Changed"
        elif any(call.results):
            made = ", ".join("_" if result is None else result.name for result in call.results)
            yield f"{made}{',' if call.is_list else ''} = {text}"
        else:
            yield text
        done = [register for register in call.touched if last[register] == number]
        dead = sorted(register.name for register in done if register not in program.outputs)
        if results := [name for name in dead if name.startswith("r")]:
            yield f"{' = '.join(results)} = None"


def registers_in(value: Any) -> Iterator[Register]:
    if isinstance(value, Register):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from registers_in(part)


def _text(value: Any, space: dict[str, Any]) -> str:
    """An argument as Python writes it."""
    match value:
        case Register():
            return value.name
        case Linear():
            return f"{value.base}+{value.factor}*n"
        case tuple():
            return f"[{', '.join(_text(part, space) for part in value)}]"
        case bool() | int() | None:
            return repr(value)
        case _:
            name = f"k{len(space)}"
            space[name] = value
            return name


def generalised(first: Program, clients: int, second: Program, others: int) -> Program | None:
    """The program of any number of clients, from those of two numbers; None if they differ in more than numbers."""
    if len(first.calls) != len(second.calls) or first.outputs != second.outputs:
        return None
    if not _same_constants(first.constants, second.constants):
        return None
    calls: list[Call] = []
    for one, other in zip(first.calls, second.calls, strict=True):
        try:
            args = _joined((one.args, one.named), clients, (other.args, other.named), others)
        except _DifferentError:
            return None
        if replace(one, args=(), named=()) != replace(other, args=(), named=()):
            return None
        calls.append(replace(one, args=args[0], named=args[1]))
    return replace(first, calls=tuple(calls))


class _DifferentError(Exception):
    """Two arguments differ in more than whole numbers that are linear in the clients."""


def _joined(one: Any, clients: int, other: Any, others: int) -> Any:
    if type(one) is not type(other):
        raise _DifferentError
    if isinstance(one, tuple):
        if len(one) != len(other):
            raise _DifferentError
        return tuple(_joined(a, clients, b, others) for a, b in zip(one, other, strict=True))
    if one == other:
        return one
    if type(one) is not int or (one - other) % (clients - others):
        raise _DifferentError
    factor = (one - other) // (clients - others)
    return Linear(one - factor * clients, factor)


def _same_constants(one: Mapping[Register, Tensor], other: Mapping[Register, Tensor]) -> bool:
    """Whether two programs read the same tensors, or equal ones."""
    return one.keys() == other.keys() and all(
        leaf is other[name] or (leaf.dtype == other[name].dtype and torch.equal(leaf, other[name]))
        for name, leaf in one.items()
    )
