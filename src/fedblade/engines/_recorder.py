"""Records what a function of tensors computes, as a program without autograd and vmap."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from fedblade.engines._program import Call, Program, Register, registers_in

_ATEN = torch.ops.aten
_SAME = {_ATEN.detach.default, _ATEN.alias.default}
"""Operations whose result is the tensor itself, once there is no autograd."""
_READING = {
    Tensor.numpy, Tensor.tolist, Tensor.data_ptr, Tensor.untyped_storage, Tensor.__array__, Tensor.__dlpack__,
}  # fmt: skip
"""Ways to a tensor's numbers that no operation shows."""


class Unrecordable(Exception):
    """The computation depends on numbers in a way that a program cannot repeat."""


def record(function: Callable[[], Sequence[Tensor]], inputs: Sequence[Tensor]) -> Program:
    """The program of a call of the function, which reads and changes `inputs`. Other tensors count as constants.

    Random draws, results whose size depends on numbers, and numbers that Python reads are refused, because a program
    would repeat the value of this call. Only a yes or no may be read: the program checks that it is the same.
    """
    recorder, versions = _Recorder(inputs), [leaf._version for leaf in inputs]
    with recorder, _NoReading():
        outputs = function()
    if recorder.refused is not None:
        # Also where the function went on after the error.
        raise recorder.refused
    if recorder.changed_constants():
        raise Unrecordable("a tensor is changed that is no input")
    changed = tuple(number for number, leaf in enumerate(inputs) if leaf._version != versions[number])
    registers = tuple(map(recorder.register, outputs))
    return Program(tuple(recorder.calls), registers, recorder.constants, changed).without_unused()


class _NoReading(TorchFunctionMode):
    """Refuses what reads a tensor's numbers past all operations."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _READING:
            raise Unrecordable(f"{func.__name__} reads numbers")
        return func(*args, **(kwargs or {}))


class _Recorder(TorchDispatchMode):
    """Sees every operation that torch computes, below autograd and vmap."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False, because torch would import its compiler, for a second and more."""
        return False

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Call] = []
        self.constants: dict[Register, Tensor] = {}
        self.refused: Unrecordable | None = None
        self._versions: dict[Register, int] = {}
        # Weak, so that tensors are freed as without a recorder.
        self._registers = WeakTensorKeyDictionary()
        self._results = 0
        for number, leaf in enumerate(inputs):
            self._registers[leaf] = Register(f"i{number}")

    def register(self, leaf: Tensor) -> Register:
        """The register of a tensor; one that no call made is a constant."""
        known: Register | None = self._registers.get(leaf)  # type: ignore[no-untyped-call]
        if known is None:
            known = self._registers[leaf] = Register(f"c{len(self.constants)}")
            self.constants[known], self._versions[known] = leaf, leaf._version
        return known

    def changed_constants(self) -> bool:
        """Whether a tensor that counts as a constant was changed in place."""
        return any(leaf._version != self._versions[register] for register, leaf in self.constants.items())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        try:
            _refuse(func, args)
            if func in _SAME:
                result = func(*args, **kwargs)
                self._registers[result] = self.register(args[0])
                return result
            # A number written as a tensor: a copy, which may be changed, because the next run needs the number again.
            func = _ATEN.clone.default if func is _ATEN.lift_fresh.default else func
            parts, named = self._template(args), tuple((name, self._template(part)) for name, part in kwargs.items())
            result = func(*args, **kwargs)
            if not func._schema.is_mutable and args and _is_same(result, args[0]):
                self._registers[result] = self.register(args[0])
            elif any(registers_in((parts, named))) or isinstance(result, Tensor):
                self._append(func, parts, named, result, [*_tensors(args), *_tensors(tuple(kwargs.values()))])
        except Unrecordable as error:
            self.refused = error
            raise
        return result

    def _append(
        self, func: Any, parts: tuple[Any, ...], named: tuple[tuple[str, Any], ...], result: Any, given: list[Tensor]
    ) -> None:
        if func is _ATEN._local_scalar_dense.default:
            if not isinstance(result, bool):
                raise Unrecordable("Python reads a number")
            self.calls.append(Call(Tensor.item, parts, named, (), check=result))
            return
        is_list = isinstance(result, tuple | list)
        made = result if is_list else (result,)
        results = tuple(self._new(leaf, func) for leaf in made)
        memory = tuple(self._viewed(leaf, given) for leaf in made)
        self.calls.append(Call(func._op, parts, named, results, _written(func, parts, named), memory, is_list))

    def _new(self, leaf: Any, func: Any) -> Register | None:
        """The register of a result; None for no result, and for a tensor that has a register."""
        if leaf is None or (isinstance(leaf, Tensor) and leaf in self._registers):
            return None
        if not isinstance(leaf, Tensor):
            raise Unrecordable(f"{func} returns something else than tensors")
        register = self._registers[leaf] = Register(f"r{self._results}")
        self._results += 1
        return register

    def _viewed(self, leaf: Any, given: list[Tensor]) -> Register | None:
        """The argument whose memory a result is a view of."""
        if not isinstance(leaf, Tensor):
            return None
        return next((self.register(arg) for arg in given if _share_memory(arg, leaf)), None)

    def _template(self, value: Any) -> Any:
        """Arguments with registers in place of tensors."""
        if isinstance(value, Tensor):
            return self.register(value)
        return tuple(map(self._template, value)) if isinstance(value, tuple | list) else value


def _is_same(result: Any, arg: Any) -> bool:
    """Whether a result is a view that is its argument again."""
    return (
        isinstance(result, Tensor)
        and isinstance(arg, Tensor)
        and _share_memory(arg, result)
        and _layout(arg) == _layout(result)
    )


def _share_memory(one: Tensor, other: Tensor) -> bool:
    shared: bool = torch._C._is_alias_of(one, other)  # type: ignore[attr-defined]
    return shared


def _layout(leaf: Tensor) -> tuple[Any, ...]:
    """How a tensor reads its memory."""
    return leaf.shape, leaf.stride(), leaf.storage_offset(), leaf.dtype, leaf.is_conj(), leaf.is_neg()


def _tensors(value: Any) -> list[Tensor]:
    """The tensors among arguments."""
    if isinstance(value, tuple | list):
        return [leaf for part in value for leaf in _tensors(part)]
    return [value] if isinstance(value, Tensor) else []


def _written(func: Any, parts: tuple[Any, ...], named: tuple[tuple[str, Any], ...]) -> tuple[Register, ...]:
    """The arguments that an operation changes."""
    writes = {
        argument.name: number
        for number, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    }
    changed = [parts[number] for number in writes.values() if number < len(parts)]
    changed += [part for name, part in named if name in writes]
    return tuple(registers_in(tuple(changed)))


def _refuse(func: Any, args: tuple[Any, ...]) -> None:
    """Refuse operations that a program cannot repeat."""
    if torch.Tag.nondeterministic_seeded in func.tags:
        raise Unrecordable(f"{func} draws random numbers")
    by_number = func is not _ATEN.index.Tensor or any(
        index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
    )
    if torch.Tag.dynamic_output_shape in func.tags and by_number:
        raise Unrecordable(f"the size of the result of {func} depends on numbers")
