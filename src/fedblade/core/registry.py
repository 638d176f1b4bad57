"""One registry per kind of part: methods, losses, heads, models, datasets, partitions, participations, metrics.

A part is a function whose signature is its configuration schema. The registry finds built-in parts in their package
and parts of other packages through the entry-point group `fedblade.plugins`. A part in a user's file or module has a
reference as its name: `path/to/file.py:name` or `package.module:name`.
"""

import importlib
import importlib.metadata
import importlib.util
import inspect
import pkgutil
import sys
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from fedblade.core.errors import FedbladeError, Misconfigured, nearest
from fedblade.core.fixed_source import source_spec
from fedblade.core.machine import memory_ran_out

F = TypeVar("F", bound=Callable[..., Any])
Revision = int | Callable[[Mapping[str, Any]], int]
ENTRY_POINT_GROUP = "fedblade.plugins"


@dataclass(frozen=True)
class Entry:
    """A registered part: its name, the function that makes it, facts about it, and its revision.

    `revision` counts the changes of the part's results, rounding aside. A run stores the revisions of its parts, so
    that results of an older revision are never taken for results of this one. If a change concerns only some values of
    the knobs, `revision` is a function of the knobs. `tune` has values to try, by knob: what `fedblade sweep --tune`
    combines. `clients` gives the names of the clients, from the knobs, if a data set comes divided among them.
    """

    name: str
    make: Callable[..., Any]
    info: Mapping[str, str] = field(default_factory=dict)
    revision: Revision = 0
    tune: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    clients: Callable[..., Sequence[str]] | None = None

    def revision_for(self, knobs: Mapping[str, Any]) -> int:
        """The revision of the part with these knobs."""
        return self.revision if isinstance(self.revision, int) else self.revision(knobs)

    def build(self, *args: Any, **knobs: Any) -> Any:
        """Make the part. What goes wrong in a function that the user refers to is the user's to mend."""
        if ":" not in self.name:
            return self.make(*args, **knobs)
        try:
            inspect.signature(self.make).bind(*args, **knobs)
        except (TypeError, ValueError) as error:
            given = f"{len(args)} argument{'' if len(args) == 1 else 's'}" if args else "no arguments"
            raise Misconfigured(
                f"'{self.name}' cannot be called with {given}: {error}. Expected a function that takes {given} and has "
                f"defaults for all others; its defaults are settings."
            ) from error
        try:
            return self.make(*args, **knobs)
        except Exception as error:
            if isinstance(error, FedbladeError | OSError) or memory_ran_out(error):
                raise
            raise Misconfigured(
                f"'{self.name}' fails: {type(error).__name__}: {error}. Correct the function; --debug shows where."
            ) from error

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return (inspect.getdoc(self.make) or "").partition("\n")[0]

    def knobs(self) -> dict[str, inspect.Parameter]:
        """Parameters that a user may set: those with a default, in order, with resolved annotations."""
        signature = inspect.signature(self.make, eval_str=True)
        return {n: p for n, p in signature.parameters.items() if p.default is not inspect.Parameter.empty}


class Registry:
    """Parts of one kind by name, loaded when first asked for."""

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self._package = package
        self._entries: dict[str, Entry] = {}
        self._loaded = False

    def register(
        self,
        name: str | None = None,
        *,
        revision: Revision = 0,
        tune: Mapping[str, tuple[Any, ...]] | None = None,
        clients: Callable[..., Sequence[str]] | None = None,
        **info: str,
    ) -> Callable[[F], F]:
        """Decorator that registers a function under its own name, or under `name`.

        Raise `revision` by one with every change of the part's results, and give knobs with values to try in `tune`;
        see `Entry`.
        """

        def add(make: F) -> F:
            key = name or make.__name__
            known = self._entries.get(key)
            if known is not None and _origin(known.make) != _origin(make):
                raise Misconfigured(
                    f"{self.kind} '{key}' is registered twice: by {known.make.__module__} and by {make.__module__}. "
                    f"Give one of them another name."
                )
            self._entries[key] = Entry(key, make, info, revision, tune or {}, clients)
            return make

        return add

    def get(self, name: str) -> Entry:
        """The part called `name`, or the part that a reference `file.py:name` or `module:name` points to."""
        self._load()
        if name in self._entries:
            return self._entries[name]
        if ":" in name:
            return self._by_reference(name)
        if name.endswith(".py"):
            raise Misconfigured(f"{self.kind} '{name}' is a file; name the function in it: {name}:FUNCTION.")
        kinds = f"{self.kind}es" if self.kind.endswith("s") else f"{self.kind}s"
        raise Misconfigured(
            f"unknown {self.kind} '{name}'.{nearest(name, self._entries)} `fedblade list {kinds}` explains all "
            f"{len(self._entries)}."
        )

    def name_of(self, make: Callable[..., Any]) -> str | None:
        """The name that this function was registered with, None if it was not."""
        self._load()
        return next((name for name, entry in self._entries.items() if entry.make is make), None)

    def names(self) -> list[str]:
        """Every name, sorted."""
        self._load()
        return sorted(self._entries)

    def entries(self) -> list[Entry]:
        """Every part, sorted by name."""
        return [self._entries[name] for name in self.names()]

    def _load(self) -> None:
        if self._loaded:
            return
        # Before the imports, because a part may ask for other parts while it is imported.
        self._loaded = True
        try:
            package = importlib.import_module(self._package)
            for module in pkgutil.iter_modules(package.__path__):
                importlib.import_module(f"{self._package}.{module.name}")
        except BaseException:
            self._loaded = False
            raise
        load_plugins()

    def _by_reference(self, reference: str) -> Entry:
        source, _, attribute = reference.rpartition(":")
        module = _import_file(Path(source)) if source.endswith(".py") else _import_module(source, self.kind)
        make = getattr(module, attribute, None)
        if not callable(make):
            functions = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
            raise Misconfigured(f"'{source}' has no {self.kind} '{attribute}'.{nearest(attribute, functions)}")
        registered = next((entry for entry in self._entries.values() if entry.make is make), None)
        return Entry(reference, make, tune=registered.tune if registered else {})


def _origin(make: Callable[..., Any]) -> tuple[str, str]:
    """Where a function is defined, so that importing its file again is no conflict."""
    return inspect.getsourcefile(make) or make.__module__, make.__qualname__


def _import_module(name: str, kind: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise Misconfigured(
            f"cannot import '{name}' for {kind} '{name}:…': {error}. Install it or give the path of a .py file."
        ) from error
    except FedbladeError:
        raise
    except Exception as error:
        raise Misconfigured(
            f"'{name}' cannot be imported: {type(error).__name__}: {error}. Correct the module or its name."
        ) from error


def _import_file(path: Path) -> Any:
    resolved = path.resolve()
    if not resolved.is_file():
        raise Misconfigured(
            f"no such file '{path}' (looked in {resolved.parent}). Give the path of an existing .py file."
        )
    name = f"fedblade_user_{resolved.stem}_{zlib.crc32(str(resolved).encode()):x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = source_spec(name, resolved)
    if spec is None or spec.loader is None:
        raise Misconfigured(f"'{path}' cannot be imported as Python. Give the path of a .py file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if not isinstance(error, Exception) or isinstance(error, FedbladeError):
            raise
        raise Misconfigured(
            f"'{path}' cannot be imported: {type(error).__name__}: {error}. Correct the file."
        ) from error
    return module


_plugins_loaded = False


def load_plugins() -> None:
    """Import the plugins of installed packages from the entry-point group, once."""
    global _plugins_loaded
    if _plugins_loaded:
        return
    _plugins_loaded = True
    for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        try:
            point.load()
        except Exception as error:
            warnings.warn(f"plugin '{point.name}' ({point.value}) was left out: {error!r}", stacklevel=2)


methods = Registry("method", "fedblade.methods")
losses = Registry("loss", "fedblade.losses")
heads = Registry("head", "fedblade.heads")
models = Registry("model", "fedblade.models")
datasets = Registry("dataset", "fedblade.data")
partitions = Registry("partition", "fedblade.partitions")
participations = Registry("participation", "fedblade.participations")
regularisers = Registry("regulariser", "fedblade.regularisers")
metrics = Registry("metric", "fedblade.diagnostics")
engines = Registry("engine", "fedblade.engines")
