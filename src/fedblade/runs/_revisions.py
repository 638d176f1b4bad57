"""The revisions of the parts that a run uses: one whole number each, raised with every change of a part's results."""

from collections.abc import Mapping
from typing import Any

from fedblade.config.run_config import Chosen, RunConfig
from fedblade.core.local import LOCAL_LOOP_REVISION
from fedblade.core.registry import heads
from fedblade.core.views import Head
from fedblade.models import OWN_MODEL_REVISION

Revisions = Mapping[str, int | None]


def revisions_of(config: RunConfig) -> dict[str, int]:
    """Revision by part for everything that a run of this configuration uses.

    A part by reference (`file.py:name`) has revision 0: the digest of its file is compared instead. What this library
    does with a user's module has a revision too, which is added to the model's.
    """
    return {
        **config.method.revisions(config.method_knobs),
        **_of_head(config.build_method().head),
        f"model {config.model.name}": _of_part(config.model) + (OWN_MODEL_REVISION if config.model.is_own else 0),
        f"partition {config.partition.name}": _of_part(config.partition),
        "local loop": LOCAL_LOOP_REVISION,
    }


def without_partition(revisions: Mapping[str, int]) -> dict[str, int | None]:
    """The revisions that a run stores whose clients brought their own data: its partition is not used."""
    return {part: None if part.startswith("partition ") else revision for part, revision in revisions.items()}


def revision_difference(stored: Mapping[str, Any], config: RunConfig) -> str | None:
    """What differs between the revisions in a run's `partition.json` and today's, in words; None where nothing does.

    A part without a stored revision counts as 0, and one stored as null was not used.
    """
    known: Revisions = stored.get("revisions") or {}
    for part, today in revisions_of(config).items():
        then = known.get(part, 0)
        if then is not None and then != today:
            return f"{part} of revision {then}, and this version of fedblade has its revision {today}"
    return None


def keeps_last_layers(stored: Mapping[str, Any], config: RunConfig) -> bool:
    """Whether a run may have kept the last layer of a user's module: so it was before revision 1 of own modules."""
    known: Revisions = stored.get("revisions") or {}
    return config.model.is_own and not known.get(f"model {config.model.name}")


def _of_head(head: Head) -> dict[str, int]:
    entry = next((entry for entry in heads.entries() if entry.make is type(head)), None)
    return (
        {f"head {type(head).__name__}": 0} if entry is None else {f"head {entry.name}": entry.revision_for(vars(head))}
    )


def _of_part(part: Chosen) -> int:
    return 0 if part.entry is None else part.entry.revision_for(part.knobs)
