"""Steps that are recorded once and then repeated without autograd, vmap and the code of layers and terms.

Starting the operations of a step takes longer than computing them where models and batches are small. A recorded step
starts the same operations in the same order, so that its results are the same bit for bit.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedblade.core.phase import Phase
from fedblade.core.plan import Batch
from fedblade.core.terms import StepGradient
from fedblade.engines._program import Changed, Code, Program, generalised, inputs_of
from fedblade.engines._program_passes import ahead, without_repetitions
from fedblade.engines._recorded_step import Steps, batch_of, batch_tensors
from fedblade.engines._recorder import record

LEAST_STEPS = 25
"""Steps of a kind before one is recorded. To record and compare costs about what fifty recorded steps save: short runs
should lose little by it, and long runs gain nearly all."""
MOST_PROGRAMS = 64
"""The largest number of programs that a run records."""
MOST_BYTES = 2**26
"""Bytes of the tensors of a step that is recorded. Recording copies them, and in larger steps starting costs little."""
MOST_FAILURES = 4
"""How often a kind is recorded anew, because a yes or no that Python reads has changed or bits are not the same."""


@dataclass
class _Room:
    """How many programs may still be recorded."""

    programs: int = field(default_factory=lambda: MOST_PROGRAMS)


class Recordings:
    """The recorded steps of a run."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, tuple[Phase, dict[Hashable, _Kind]]] = {}
        self._room = _Room()

    def gradients(self, steps: Steps) -> Callable[[Batch], StepGradient]:
        """The gradient of each of these steps, by a program if there is one of a step of the same kind."""
        phase, (leaves, still, key) = steps.work.phase, steps.tensors()
        # The phase is kept, so that no other one gets its id.
        _, of_batch = self._kinds.setdefault((id(phase), key), (phase, {}))
        of_steps = _Leaves(steps, leaves, still)

        def gradient(batch: Batch) -> StepGradient:
            own, batch_key = batch_tensors(batch)
            kind = of_batch.get(batch_key) or of_batch.setdefault(batch_key, _Kind(self._room))
            return kind.gradient(of_steps, batch, own)

        return gradient


@dataclass(frozen=True)
class _Leaves:
    """The tensors of some steps, of which the first `still` are never changed, and what programs made before them."""

    steps: Steps
    leaves: Sequence[Tensor]
    still: int
    made: dict["_Recorded", tuple[Tensor, ...]] = field(default_factory=dict)

    def copy(self) -> "_Leaves":
        """Copies of the tensors."""
        return _Leaves(self.steps, [_copy(leaf) for leaf in self.leaves], self.still)


@dataclass(frozen=True, eq=False)
class _Recorded:
    """A program that can be run: what it computes once before the steps, and what in every step."""

    ahead: Code
    code: Code
    changed: tuple[int, ...]

    @staticmethod
    def of(program: Program, of_steps: _Leaves, num_inputs: int) -> "_Recorded":
        """The program with inputs to put back, if it checks anything."""
        checks = any(call.check is not None for call in program.calls)
        inputs = inputs_of(num_inputs)
        own = inputs[: len(of_steps.leaves)]
        first, rest = ahead(without_repetitions(program), own, own[: of_steps.still])
        codes = first.code(own), rest.code([*first.outputs, *inputs])
        return _Recorded(*codes, program.changed if checks else ())

    @torch.no_grad()
    def run(self, clients: int, of_steps: _Leaves, own: Sequence[Tensor]) -> tuple[Tensor, ...] | None:
        """The outputs; None, with the inputs as they were, if a yes or no is another one than in the recording."""
        made = of_steps.made.get(self)
        if made is None:
            made = of_steps.made[self] = self.ahead(clients, of_steps.leaves)
        leaves = [*of_steps.leaves, *own]
        before = [leaves[number].clone() for number in self.changed]
        try:
            return self.code(clients, [*made, *leaves])
        except Changed:
            for number, leaf in zip(self.changed, before, strict=True):
                leaves[number].copy_(leaf)
            return None

    def gives(self, clients: int, of_steps: _Leaves, own: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
        """Whether the outputs, and the inputs afterwards, are the expected ones bit for bit."""
        try:
            outputs = self.run(clients, of_steps, own)
        except Exception:
            # Such as sizes that do not fit: the program of another number of clients is a guess.
            return False
        return outputs is not None and _same_bits([*outputs, *of_steps.leaves, *own], expected)


@dataclass
class _Kind:
    """Steps that differ in the number of clients alone, and how they are repeated.

    A new program is compared with the next step of as many clients, and `trusted` if it gives the same bits. `general`
    is the program of any number of clients, made from two of the `programs`.
    """

    room: _Room
    steps: int = 0
    failures: int = 0
    is_refused: bool = False
    names: tuple[tuple[str, ...], ...] = ()
    programs: dict[int, Program] = field(default_factory=dict)
    general: _Recorded | None = None
    untested: dict[int, _Recorded | None] = field(default_factory=dict)
    trusted: dict[int, _Recorded] = field(default_factory=dict)

    def gradient(self, of_steps: _Leaves, batch: Batch, own: Sequence[Tensor]) -> StepGradient:
        """The gradient of a step of this kind."""
        clients = len(batch.indices)
        recorded = self.trusted.get(clients)
        if recorded is not None:
            outputs = recorded.run(clients, of_steps, own)
            if outputs is not None:
                return self._named(outputs)
            self._forget()
        self.steps += 1
        if self.is_refused or self.steps < LEAST_STEPS:
            return of_steps.steps.gradient(batch)
        return self._learn(of_steps, batch, own)

    def _named(self, outputs: Sequence[Tensor]) -> StepGradient:
        remaining = iter(outputs)
        gradient, values, logs = ({name: next(remaining) for name in names} for names in self.names)
        return StepGradient(gradient, values, logs)

    def _forget(self) -> None:
        """Begin anew after a program has failed, as when a yes or no has changed; give up where it happens often."""
        self.failures += 1
        self.is_refused = self.failures > MOST_FAILURES
        self.general = None
        for table in (self.programs, self.untested, self.trusted):
            table.clear()

    def _learn(self, of_steps: _Leaves, batch: Batch, own: Sequence[Tensor]) -> StepGradient:
        """An ordinary step, and beside it, on copies, one that is recorded or compared."""
        clients, steps, leaves = len(batch.indices), of_steps.steps, [*of_steps.leaves, *own]
        recorded = self.untested.get(clients, self.general)
        is_large = sum(leaf.nbytes for leaf in leaves) > MOST_BYTES
        if is_large or (recorded is None and not self.room.programs):
            self.is_refused = is_large
            return steps.gradient(batch)
        copies, own_copies = of_steps.copy(), [_copy(leaf) for leaf in own]
        if recorded is None:
            self._record(copies, batch, own_copies)
            return steps.gradient(batch)
        result = steps.gradient(batch)
        if recorded.gives(clients, copies, own_copies, [*_outputs(result), *leaves]):
            self.trusted[clients] = recorded
        elif recorded is self.general:
            # This number of clients gets a program of its own.
            self.untested[clients] = None
        else:
            self._forget()
        return result

    def _record(self, of_steps: _Leaves, batch: Batch, own: Sequence[Tensor]) -> None:
        """Record the step. Where two programs make one for any number of clients, no other is needed."""
        copies = [*of_steps.leaves, *own]

        def work() -> list[Tensor]:
            leaves = iter(copies)
            result = of_steps.steps.of(leaves).gradient(batch_of(batch, leaves))
            self.names = (tuple(result.gradient), tuple(result.values), tuple(result.logs))
            return [leaf.detach() for leaf in _outputs(result)]

        self.room.programs -= 1
        try:
            program = record(work, copies)
        except Exception:
            # Whatever the code of a term did: it has not been trusted, and the ordinary step will tell.
            self.is_refused = True
            return
        clients = len(batch.indices)
        known = self.programs.items() if self.general is None else ()
        joined = (generalised(program, clients, other, others) for others, other in known)
        general = next((every for every in joined if every is not None), None)
        recorded = _Recorded.of(program if general is None else general, of_steps, len(copies))
        self.untested[clients] = recorded
        self.general = self.general if general is None else recorded
        self.programs[clients] = program


def _outputs(result: StepGradient) -> list[Tensor]:
    return [leaf for tree in (result.gradient, result.values, result.logs) for leaf in tree.values()]


def _same_bits(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    return len(one) == len(other) and all(
        a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(one, other, strict=True)
    )


def _copy(leaf: Tensor) -> Tensor:
    """A copy with the same strides; what all clients share is never changed and needs none."""
    leaf = leaf.detach()
    if any(stride == 0 and size > 1 for size, stride in zip(leaf.shape, leaf.stride(), strict=True)):
        return leaf
    return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype).copy_(leaf)
