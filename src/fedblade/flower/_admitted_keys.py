"""Which keys of nodes are admitted now, for a process that asks often."""

from fedblade.flower._public_keys import fingerprint_of
from fedblade.flower.admissions import valid_admissions
from fedblade.flower.app_folder import AppFolder


class AdmittedKeys:
    """The admitted keys of an app's federation; the file is read again when it has changed."""

    def __init__(self, app: AppFolder) -> None:
        self._app = app
        self._read_at: int | None = None
        self._fingerprints: frozenset[str] = frozenset()

    def contains(self, pem: bytes) -> bool:
        """Whether a public key in PEM format is admitted and was not revoked."""
        path = self._app.admissions
        changed_at = path.stat().st_mtime_ns if path.exists() else None
        if changed_at != self._read_at:
            admissions = valid_admissions(self._app) or ()
            self._fingerprints, self._read_at = frozenset(each.fingerprint for each in admissions), changed_at
        return fingerprint_of(pem) in self._fingerprints
