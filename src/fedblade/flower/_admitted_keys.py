"""Which keys of nodes are admitted now."""

from fedblade.flower._public_keys import fingerprint_of
from fedblade.flower.admissions import CurrentAdmissions
from fedblade.flower.app_folder import AppFolder


class AdmittedKeys:
    """The admitted keys of an app's federation."""

    def __init__(self, app: AppFolder) -> None:
        self._admissions = CurrentAdmissions(app)

    def contains(self, pem: bytes) -> bool:
        """Whether a public key in PEM format is admitted and was not revoked."""
        fingerprint = fingerprint_of(pem)
        return any(each.fingerprint == fingerprint for each in self._admissions.valid() or ())
