"""Accuracies that clients measure on samples of their own: nobody can check them, so they are marked as claims."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Whose = Literal["global", "personal"]
"""Whose accuracy is meant: that of the global model, or that of the personal models."""
_MOST = 0.5
"""A client with more than this share of all test samples decides the accuracy alone."""
_CLIENTS = 3
"""With fewer clients one of them always has such a share, or nearly so."""


@dataclass(frozen=True)
class Claims:
    """The accuracies that clients measure, and the test samples that each client has declared so far, by client."""

    whose: frozenset[Whose] = frozenset()
    test_samples: Callable[[], Mapping[int, int]] = dict

    def mark(self, accuracy_of: str, *, accuracy: object, personal: object) -> dict[str, list[str]]:
        """The field `claimed` of a round record or a summary: whose accuracies in it are claims; empty if none is.

        `accuracy` is the accuracy of the models `accuracy_of`, `personal` that of the personal models; None stands for
        an accuracy that was not measured.
        """
        measured = {"personal"} if personal is not None else set[str]()
        measured |= {accuracy_of} if accuracy is not None else set()
        claimed = sorted(measured & self.whose)
        return {"claimed": claimed} if claimed else {}

    def mark_round(self, accuracy_of: str, record: Mapping[str, Any]) -> dict[str, list[str]]:
        """The field `claimed` of a round record."""
        return self.mark(accuracy_of, accuracy=record.get("test_accuracy"), personal=record.get("personal_accuracy"))

    def flags(self) -> list[str]:
        """A warning if the claimed accuracy is mostly that of one client."""
        samples = self.test_samples()
        total = sum(samples.values())
        if "global" not in self.whose or len(samples) < _CLIENTS or not total:
            return []
        client = max(samples, key=lambda client: samples[client])
        if samples[client] <= _MOST * total:
            return []
        return [
            f"the claimed accuracy is mostly that of client {client}, which declares {samples[client]} of "
            f"{total} test samples"
        ]
