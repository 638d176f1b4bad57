"""Changes of programs that keep every bit: no operation twice, and none in a step that could be done before the steps.

All of them know of memory: a tensor that a call changes in place is never taken for one that it was before, views of it
included.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedblade.engines._program import Call, Program, Register


@dataclass(frozen=True)
class _Memory:
    """Which register owns the memory of each register, and which owners the calls change or the program returns."""

    owners: Mapping[Register, Register]
    changed: frozenset[Register]
    returned: frozenset[Register]

    @staticmethod
    def of(program: Program) -> "_Memory":
        """The memory of a program."""
        owners: dict[Register, Register] = {}
        for call in program.calls:
            for result, viewed in zip(call.results, call.memory, strict=True):
                if result is not None:
                    owners[result] = result if viewed is None else owners.get(viewed, viewed)
        changed = frozenset(owners.get(leaf, leaf) for call in program.calls for leaf in call.written)
        return _Memory(owners, changed, frozenset(owners.get(leaf, leaf) for leaf in program.outputs))

    def owner(self, register: Register) -> Register:
        """The register that owns the memory of this one."""
        return self.owners.get(register, register)

    def is_view(self, call: Call) -> bool:
        """Whether a call only looks at memory in another way."""
        return not call.written and call.check is None and bool(call.memory) and None not in call.memory

    def is_fixed(self, call: Call) -> bool:
        """Whether nobody changes the results of a call, in the program or behind it."""
        owners = {self.owner(result) for result in call.results if result is not None}
        return not (call.written or call.check is not None or owners & (self.changed | self.returned))


def without_repetitions(program: Program) -> Program:
    """The program without calls that were made before with the same arguments and the same numbers in them."""
    memory, writes = _Memory.of(program), Counter[Register]()
    kept: list[Call] = []
    first: dict[Any, Call] = {}
    known: dict[Register, Register] = {}
    for original in program.calls:
        call = _renamed(original, known)
        writes.update(memory.owner(leaf) for leaf in call.written)
        if memory.is_view(call) or memory.is_fixed(original):
            read = frozenset[Register]() if memory.is_view(call) else call.read
            state = frozenset((leaf, writes[memory.owner(leaf)]) for leaf in read)
            key = (call.function, _exact((call.args, call.named)), state)
            before = first.setdefault(key, call)
            if before is not call and _pairs(before, call):
                known |= {new: old for new, old in zip(call.results, before.results, strict=True) if new and old}
                continue
        kept.append(call)
    outputs = tuple(known.get(leaf, leaf) for leaf in program.outputs)
    return replace(program, calls=tuple(kept), outputs=outputs)


def _pairs(before: Call, call: Call) -> bool:
    """Whether the results of a call that is left out all have a register in the one before."""
    return all(old is not None or new is None for old, new in zip(before.results, call.results, strict=True))


def ahead(program: Program, same: Collection[Register], still: Collection[Register]) -> tuple[Program, Program]:
    """Two programs: calls that can be made once before many runs, and those of every run, which read their outputs.

    `same` are inputs that are the same tensors in all these runs, and `still` those whose numbers do not change either.
    """
    memory = _Memory.of(program)
    same, still = {*same, *program.constants}, {*still, *program.constants} - memory.changed
    early, late = list[Call](), list[Call]()
    for call in program.calls:
        made = {result for result in call.results if result is not None}
        is_view, owners = memory.is_view(call), {memory.owner(result) for result in made}
        if call.read <= still and (memory.is_fixed(call) or (is_view and not owners & memory.returned)):
            still |= made - memory.changed
            same |= made
        elif is_view and call.read <= same and not owners & memory.returned:
            same |= made
        else:
            late.append(call)
            continue
        early.append(call)
    made = {result for call in early for result in call.results if result is not None}
    needed = {leaf for call in late for leaf in call.read if leaf in made}
    first = replace(program, calls=tuple(early), outputs=tuple(sorted(needed)), changed=()).without_unused()
    return first, replace(program, calls=tuple(late)).without_unused()


def _renamed(call: Call, known: Mapping[Register, Register]) -> Call:
    """The call with other registers as its arguments."""
    if known.keys().isdisjoint(call.read):
        return call
    args, named = _with_names((call.args, call.named), known)
    written, memory = _with_names((call.written, call.memory), known)
    return replace(call, args=args, named=named, written=written, memory=memory)


def _with_names(value: Any, known: Mapping[Register, Register]) -> Any:
    if isinstance(value, tuple):
        return tuple(_with_names(part, known) for part in value)
    return known.get(value, value) if isinstance(value, Register) else value


def _exact(value: Any) -> Any:
    """Arguments that are equal only if type and value are: 1, 1.0 and True are three, 0.0 and -0.0 two."""
    if isinstance(value, tuple):
        return tuple(map(_exact, value))
    return (type(value), repr(value)) if isinstance(value, int | float | complex) else value
