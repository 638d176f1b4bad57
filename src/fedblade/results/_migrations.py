"""The formats of run folders, and the steps that lead from each format to the next one.

A folder says its format in `folder.json`; a folder without that file has format 0. Whoever reads a folder sees it as a
folder of today's format, and the files themselves are changed only when its run goes on.

To change the format: add a step to `STEPS`, which raises `FORMAT` by one, and add a folder of the format before to the
stored ones (tests/support/stored_folders.py). A setting that is new needs an entry in `settings` of the last step that
is not released yet, because a folder without the setting must keep its meaning when the default changes. Where a knob
of a part is new, its default must give the former results; otherwise the part gets a new revision.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Table = Mapping[str, Any]


def _unchanged(contents: Table) -> Table:
    """What a step does to `folder.json` if nothing in it changes but the number of the format."""
    return contents


@dataclass(frozen=True)
class Step:
    """What leads from one format to the next.

    - `files`: for people: what folders of the format before lack or have otherwise, and where that is handled.
    - `settings`: the settings that these folders may lack, each with the value that means what was done without it.
    - `contents`: makes the contents of today's `folder.json` from those of the format before.
    """

    files: str
    settings: Mapping[str, Table] = field(default_factory=dict)
    contents: Callable[[Table], Table] = _unchanged


STEPS = (
    Step(
        # `model.init` is not among the settings, because some models have a knob of this name.
        files=(
            "No folder.json and no journal: `runs/_settle.py` writes them when the run goes on. Checkpoints without "
            "the digest of their run: `FolderRecord.unmarked` tells which. A file for each state of a client: "
            "`core/old_states.py` puts them into state files. No metrics.json: readers take the built-in "
            "descriptions. No revisions, hardness or pictures in partition.json: every revision is 0, and the hardness "
            "is measured by the reader. No names of clients in partition.json and clients.jsonl: readers show numbers."
        ),
        settings={
            "": {"tf32": False, "trackers": []},
            "partition": {"seed": "auto"},
            "model": {"output": "auto", "neck": "none", "neck_hidden": "none", "neck_norm": "none"},
            "federation": {"dropout": 0.0, "partial_work": 0.0, "unseen": 0.0},
            "participation": {"name": "uniform"},
            "local": {"steps": "none"},
            "evaluation": {"on": "test", "diagnostics_every": 1},
            "stop": {"max_seconds": "none", "patience": "none"},
            "distributed": {"order": "any", "store": "shared", "timeout_seconds": 600.0},
        },
    ),
)
"""The step at place n leads from format n to format n + 1."""


def newest_format() -> int:
    """The format of today's run folders."""
    return len(STEPS)


def with_later_settings(config: Table) -> dict[str, Any]:
    """A stored configuration with the settings that came after it, as they were when it was stored."""
    table = {key: dict(value) if isinstance(value, Mapping) else value for key, value in config.items()}
    for step in STEPS:
        for section, settings in step.settings.items():
            if section:
                table[section] = {**settings, **table[section]} if section in table else dict(settings)
            else:
                table = {**settings, **table}
    return table


def is_later_setting(key: str, value: Any) -> bool:
    """Whether folders of an earlier format may lack this setting, and it has the value that they stand for."""
    section, _, name = key.rpartition(".")
    return any(name in (found := step.settings.get(section, {})) and found[name] == value for step in STEPS)


def migrated(contents: Table, stored_format: int) -> Table:
    """The contents of `folder.json` of an earlier format, as today's format has them."""
    for step in STEPS[stored_format:]:
        contents = step.contents(contents)
    return contents
