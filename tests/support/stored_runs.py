"""What the tests of stored folders share: reading a folder's files, going on with its run, being refused."""

import json

import pytest

import fedblade
from fedblade.config.run_config import complete_config
from fedblade.core.errors import Misconfigured
from fedblade.results import RunDirectory
from fedblade.runs import RunListener
from fedblade.runs._revisions import revisions_of
from support.stored_folders import on_nodes, own_module


def runs_below(folder):
    return sorted(path.parent for path in folder.rglob("config.toml"))


def facts_of(folder, name="partition.json"):
    return json.loads((folder / name).read_text())


def config_of(folder):
    return complete_config(RunDirectory(folder).stored_config())


def given(folder):
    """What is passed from Python besides the folder."""
    return {"model": own_module()} if config_of(folder).model.name == "object" else {}


def go_on(folder):
    """Resume a run, or get the result of a finished one, the way it was started."""
    if (folder / "deployment.json").exists():
        return on_nodes(config_of(folder), folder, folder.parent / "nodes", RunListener())
    return fedblade.run(out=folder, resume=True, listener=RunListener(), **given(folder))


def outdated(folder):
    """Each part of a run with another revision today: the part, the stored revision and today's."""
    then = facts_of(folder).get("revisions", {})
    now = revisions_of(config_of(folder))
    return [(part, then.get(part, 0), revision) for part, revision in now.items() if then.get(part, 0) != revision]


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refusal(part, then, now):
    return f"{part} of revision {then}, and this version of fedblade has its revision {now}"


def refused(folder):
    """The message that refuses to go on with a run, which changes nothing."""
    before = contents(folder)
    with pytest.raises(Misconfigured, match="gives other results") as error:
        go_on(folder)
    assert contents(folder) == before
    return str(error.value)
