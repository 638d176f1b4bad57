"""What a run folder says of the nodes: the run's name for them, and the salted digests of the clients' samples."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedblade.core.errors import RunFailed
from fedblade.core.files import write_atomic
from fedblade.engines.nodes import ClientDescription
from fedblade.results import DEPLOYMENT

_TOKEN, _DIGESTS = "token", "samples"


@dataclass(frozen=True)
class DeploymentRecord:
    """The contents of `deployment.json`.

    Nodes know the run by `token`; a resumed run has the same. `digests` are the salted digests of the clients' samples
    with which the run began, by client; a run of an earlier version has none.
    """

    token: str = field(default_factory=lambda: secrets.token_hex(8))
    digests: Mapping[int, str] = field(default_factory=dict)


def read_record(folder: Path) -> DeploymentRecord | None:
    """The record in the folder of a run; None if there is none yet."""
    path = folder / DEPLOYMENT
    if not path.is_file():
        return None
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        digests = {int(client): str(digest) for client, digest in stored.get(_DIGESTS, {}).items()}
        return DeploymentRecord(str(stored[_TOKEN]), digests)
    except (ValueError, KeyError, AttributeError, OSError) as error:
        raise RunFailed(f"'{path}' cannot be read ({error}). Start a new run in another folder.") from error


def record_clients(folder: Path, clients: Mapping[int, ClientDescription]) -> DeploymentRecord:
    """Write the digests of the clients' samples into the record, and make the record if there is none."""
    former = read_record(folder)
    digests = {client: description.salted_digest for client, description in sorted(clients.items())}
    record = replace(former or DeploymentRecord(), digests=digests)
    if record != former:
        folder.mkdir(parents=True, exist_ok=True)
        stored = {str(client): digest for client, digest in record.digests.items()}
        write_atomic(folder / DEPLOYMENT, json.dumps({_TOKEN: record.token, _DIGESTS: stored}))
    return record
