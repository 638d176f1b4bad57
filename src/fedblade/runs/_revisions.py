"""The revisions of the parts of a run. A revision is a whole number, raised with every change of a part's results."""

from collections.abc import Mapping
from typing import Any

from fedblade.config.run_config import UNIFORM, ChosenPart, RunConfig
from fedblade.core.local import LOCAL_LOOP_REVISION
from fedblade.core.registry import heads
from fedblade.core.views import Head
from fedblade.models import USER_MODULE_REVISION

Revisions = Mapping[str, int | None]


def revisions_of(config: RunConfig) -> dict[str, int]:
    """The revision of every part that a run of this configuration uses.

    A part by reference (`file.py:name`) has revision 0: the digest of its file is compared instead. How this library
    adapts a user's module has a revision too. It is added to the revision of the model.
    """
    return {
        **config.method.revisions(config.method_knobs),
        **_head_revision(config.build_method().head),
        f"model {config.model.name}": _part_revision(config.model)
        + (USER_MODULE_REVISION if config.model.is_own else 0),
        f"partition {config.partition.name}": _part_revision(config.partition),
        **_participation_revision(config.participation),
        "local loop": LOCAL_LOOP_REVISION,
    }


def without_partition(revisions: Mapping[str, int]) -> dict[str, int | None]:
    """The revisions of a run whose clients have their own data: it does not use its partition."""
    return {part: None if part.startswith("partition ") else revision for part, revision in revisions.items()}


def revision_difference(stored: Mapping[str, Any], config: RunConfig) -> str | None:
    """The first part whose revision in `partition.json` is not the present one, in words; None if all agree.

    A part without a stored revision has revision 0. A part with the revision null was not used.
    """
    known: Revisions = stored.get("revisions") or {}
    for part, present in revisions_of(config).items():
        before = known.get(part, 0)
        if before is not None and before != present:
            return f"{part} of revision {before}, and this version of fedblade has its revision {present}"
    return None


def may_keep_last_layer(stored: Mapping[str, Any], config: RunConfig) -> bool:
    """Whether the body of a run may include the last layer of the user's module, as before revision 1 of modules."""
    known: Revisions = stored.get("revisions") or {}
    return config.model.is_own and not known.get(f"model {config.model.name}")


def _head_revision(head: Head) -> dict[str, int]:
    entry = next((entry for entry in heads.entries() if entry.make is type(head)), None)
    return (
        {f"head {type(head).__name__}": 0} if entry is None else {f"head {entry.name}": entry.revision_for(vars(head))}
    )


def _participation_revision(part: ChosenPart) -> dict[str, int]:
    """Runs of earlier versions know no other participation than the uniform one, and have no revision of it."""
    revision = _part_revision(part)
    return {f"participation {part.name}": revision} if revision or part.name != UNIFORM else {}


def _part_revision(part: ChosenPart) -> int:
    return 0 if part.entry is None else part.entry.revision_for(part.knobs)
