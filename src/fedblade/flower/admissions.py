"""Who may take part: the keys that were admitted, each with the clients that its node may speak for.

The SuperLink knows keys, and the file `admissions.json` of the coordinator says which clients each key stands for. A
client that gets a new key keeps its number: the old key is revoked, and the new key is admitted for the same client.
"""

import datetime
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.core.files import write_atomic
from fedblade.flower import _processes
from fedblade.flower._flwr_internals.database import UNREGISTERED, known_nodes
from fedblade.flower._public_keys import PublicKey, fingerprint_of, read_public_key
from fedblade.flower._superlink import SuperLink
from fedblade.flower.app_folder import AppFolder

_FORMAT = 1
_LOCK_SECONDS = 60.0


@dataclass(frozen=True)
class Admission:
    """A key that was admitted: its fingerprint, Flower's id of its node, and the clients of the node.

    `revoked_at` is None as long as the key is valid. Times are in UTC. If the coordinator was down, there is no id yet,
    and `key` is the public key itself, until the coordinator starts and Flower gives the id.
    """

    fingerprint: str
    node_id: str
    clients: tuple[int, ...]
    admitted_at: str
    revoked_at: str | None = None
    key: str | None = None


def admit(app: AppFolder, key: Path, clients: Sequence[int]) -> Admission:
    """Admit the node that has a key: it may speak for the clients from now on, or from the coordinator's next start."""
    if not coordinator_is_up(app):
        return admit_at(None, app, key, clients)
    with SuperLink(app) as superlink:
        return admit_at(superlink, app, key, clients)


def admit_at(superlink: SuperLink | None, app: AppFolder, key: Path, clients: Sequence[int]) -> Admission:
    """Admit the node that has a key at a SuperLink that is open already; None if the coordinator is down."""
    public_key = read_public_key(key)
    with _locked(app):
        admissions = _read(app.admissions) or []
        known = next((entry for entry in admissions if entry.fingerprint == public_key.fingerprint), None)
        if known is not None:
            return _admitted_before(app, known, clients)
        for client in clients:
            owner = _owner(admissions, client)
            if owner is not None:
                raise Misconfigured(
                    f"client {client} already has the key {owner.fingerprint}, admitted {owner.admitted_at}. If the "
                    f"new key is to replace it, revoke it first: fedblade flower revoke --client {client} {app.quoted}"
                )
        node_id = "" if superlink is None else _register(app, key, public_key, superlink)
        kept = None if node_id else key.read_text(encoding="ascii")
        admission = Admission(public_key.fingerprint, node_id, tuple(clients), _now(), key=kept)
        _write(app.admissions, [*admissions, admission])
        return admission


def revoke(app: AppFolder, client: int) -> Admission:
    """Revoke the key of a client: its node is cut off at once, and the key never comes back.

    The front and the run's server ask the file of admissions alone, so the file comes first. If the coordinator is
    down, Flower learns of it at the next start.
    """
    with _locked(app):
        admissions = _read(app.admissions) or []
        admission = _owner(admissions, client)
        if admission is None:
            held = sorted(number for entry in admissions if entry.revoked_at is None for number in entry.clients)
            raise Misconfigured(
                f"no key is admitted for client {client}; there are keys for {held or 'no client'}. Give --client one "
                f"of these."
            )
        revoked = replace(admission, revoked_at=_now())
        _write(app.admissions, [revoked if entry is admission else entry for entry in admissions])
        if coordinator_is_up(app):
            _unregister(app, admission)
        return revoked


def coordinator_is_up(app: AppFolder) -> bool:
    """Whether the coordinator runs, so that what is admitted or revoked takes effect at once."""
    return bool(_processes.running(app))


def catch_up(app: AppFolder, tell: Callable[[str], None]) -> None:
    """Have a SuperLink that has just started learn what was admitted and revoked while the coordinator was down.

    `tell` hears of keys that Flower does not take.
    """
    with _locked(app):
        admissions = _read(app.admissions) or []
        registered = {node.node_id for node in known_nodes(app.database)} if admissions else set()
        new = [entry for entry in admissions if entry.key and entry.revoked_at is None]
        gone = [entry for entry in admissions if entry.revoked_at is not None and entry.node_id in registered]
        if not new and not gone:
            return
        with SuperLink(app) as superlink:
            for entry in gone:
                superlink.unregister(entry.node_id)
            for entry in new:
                try:
                    node_id = _register_kept(app, entry, superlink)
                except RunFailed as error:
                    tell(f"the key {entry.fingerprint} of client(s) {list(entry.clients)} is not admitted: {error}")
                    continue
                admissions[admissions.index(entry)] = replace(entry, node_id=node_id, key=None)
        _write(app.admissions, admissions)


def valid_admissions(app: AppFolder) -> list[Admission] | None:
    """The keys that are valid now; None if no admissions are kept, as in a federation without keys."""
    admissions = _read(app.admissions)
    return None if admissions is None else [entry for entry in admissions if entry.revoked_at is None]


class CurrentAdmissions:
    """The keys that are valid now, for a process that asks often: the file is read again when it has changed."""

    def __init__(self, app: AppFolder) -> None:
        self._app = app
        self._version: tuple[int, int] | None = None
        self._valid: list[Admission] | None = None

    def valid(self) -> list[Admission] | None:
        """The keys that are valid now; None if no admissions are kept."""
        try:
            found = self._app.admissions.stat()
            version = found.st_ino, found.st_mtime_ns
        except FileNotFoundError:
            version = None
        if version != self._version:
            self._valid, self._version = valid_admissions(self._app), version
        return self._valid

    def has_key(self, pem: bytes) -> bool:
        """Whether a public key in PEM format is valid now; no key is if no admissions are kept."""
        fingerprint = fingerprint_of(pem)
        return any(entry.fingerprint == fingerprint for entry in self.valid() or ())

    def clients_of(self, node: int) -> Collection[int] | None:
        """The clients that a node may speak for; None if no admissions are kept."""
        admissions = self.valid()
        if admissions is None:
            return None
        return next((entry.clients for entry in admissions if entry.node_id == str(node)), ())


def _admitted_before(app: AppFolder, known: Admission, clients: Sequence[int]) -> Admission:
    """The admission of a key that is admitted again for the same clients; any other repetition is refused."""
    if known.revoked_at is not None:
        raise Misconfigured(
            f"the key {known.fingerprint} was revoked {known.revoked_at}, and Flower takes no key twice. Let the node "
            f"make a new key, and admit that for the same client."
        )
    if known.clients != tuple(clients):
        raise Misconfigured(
            f"the key {known.fingerprint} is admitted for client(s) {list(known.clients)}, not for {list(clients)}. "
            f"Revoke it (fedblade flower revoke --client {known.clients[0]} {app.quoted}), let the node make a new "
            f"key, and admit that."
        )
    return known


def _register(app: AppFolder, key: Path, public_key: PublicKey, superlink: SuperLink) -> str:
    """Flower's id of the node. A registration that was cut short, or made by hand, is taken over."""
    try:
        return superlink.register(key)
    except RunFailed:
        node_ids = [node.node_id for node in known_nodes(app.database) if node.public_key == public_key.pem]
        if not node_ids:
            raise
        return node_ids[0]


def _unregister(app: AppFolder, admission: Admission) -> None:
    """Have the SuperLink cut off a node whose key is revoked, unless it has done so already."""
    try:
        with SuperLink(app) as superlink:
            if superlink.nodes().get(admission.node_id, UNREGISTERED) != UNREGISTERED:
                superlink.unregister(admission.node_id)
    except RunFailed as error:
        raise RunFailed(
            f"the key {admission.fingerprint} is revoked, and its node is refused from now on; but the SuperLink could "
            f"not be told, and learns of it when the coordinator starts again: {error}"
        ) from error


def _register_kept(app: AppFolder, admission: Admission, superlink: SuperLink) -> str:
    """Flower's id of a node whose key was kept while the coordinator was down."""
    path = app.admissions.with_suffix(".pub")
    try:
        write_atomic(path, admission.key or "")
        return _register(app, path, read_public_key(path), superlink)
    finally:
        path.unlink(missing_ok=True)


def _owner(admissions: Sequence[Admission], client: int) -> Admission | None:
    return next((entry for entry in admissions if entry.revoked_at is None and client in entry.clients), None)


@contextmanager
def _locked(app: AppFolder) -> Iterator[None]:
    """Only one process at a time changes the admissions."""
    from filelock import FileLock, Timeout

    path = app.admissions.with_suffix(".lock")
    try:
        with FileLock(path, timeout=_LOCK_SECONDS):
            yield
    except Timeout as error:
        raise RunFailed(f"'{path}' is held by another process for {_LOCK_SECONDS:.0f} s. Try again later.") from error


def _read(path: Path) -> list[Admission] | None:
    try:
        raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if raw["format"] != _FORMAT:
            raise ValueError(f"its format is {raw['format']!r}, expected {_FORMAT}")
        return [Admission(**{**entry, "clients": tuple(entry["clients"])}) for entry in raw["admissions"]]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RunFailed(f"'{path}' cannot be read: {error}. Restore it from the backup.") from error


def _write(path: Path, admissions: Sequence[Admission]) -> None:
    content = {"format": _FORMAT, "admissions": [asdict(entry) for entry in admissions]}
    write_atomic(path, json.dumps(content, indent=2) + "\n")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
