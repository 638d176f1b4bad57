"""A stored run is refused once a part that it uses has another revision; other parts do not matter."""

from dataclasses import replace

from fedblade.core.registry import heads, methods, models, partitions
from fedblade.runs import _revisions
from support.stored_runs import facts_of, go_on, outdated, refusal, refused, runs_below

REGISTRIES = {"method": methods, "head": heads, "model": models, "partition": partitions}
CONSTANTS = {"local loop": "LOCAL_LOOP_REVISION", "model object": "USER_MODULE_REVISION"}
"""Parts that are in no registry, and where their revisions are."""


def raise_revision(patch, part):
    """Today's revision of a part is one higher."""
    if part in CONSTANTS:
        patch.setattr(_revisions, CONSTANTS[part], getattr(_revisions, CONSTANTS[part]) + 1)
        return
    kind, name = part.split(" ", 1)
    entry = REGISTRIES[kind].get(name)
    raised = replace(entry, revision=lambda knobs: entry.revision_for(knobs) + 1)
    patch.setitem(REGISTRIES[kind]._entries, name, raised)


def test_stored_runs_are_refused_after_a_used_part_was_changed(stored, monkeypatch):
    for folder in runs_below(stored):
        if outdated(folder):
            continue
        for part, then in facts_of(folder)["revisions"].items():
            with monkeypatch.context() as patch:
                raise_revision(patch, part)
                assert refusal(part, then, then + 1) in refused(folder)


def test_changes_of_parts_that_a_stored_run_does_not_use_do_not_matter(stored, monkeypatch):
    parts = {f"{kind} {name}" for kind, registry in REGISTRIES.items() for name in registry.names()}
    for folder in runs_below(stored):
        if outdated(folder):
            continue
        with monkeypatch.context() as patch:
            for part in parts - facts_of(folder)["revisions"].keys():
                raise_revision(patch, part)
            assert go_on(folder).summary["rounds"] == 4
