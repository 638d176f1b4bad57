"""The last answer of a client, kept on the disk of its node: a question that is repeated costs no second work."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedblade.core.errors import CorruptFile
from fedblade.core.tensorfile import read_tensors, write_tensors
from fedblade.core.tree import Tree, tree_digest
from fedblade.flower._client_states import make_run_folder
from fedblade.flower._node_errors import failing_with

Answer = tuple[dict[str, Any], Tree]
"""The facts and the tensors of a reply."""
_ATTEMPT, _QUESTION = "attempt", "question"


class LastAnswer:
    """The last answer of a client to questions that the coordinator may ask in several attempts.

    `folder` is that of the run. The answer is recalled if a later attempt asks the same as an earlier one, with the
    same facts and the same tensors: a round that is done again may begin with another model.
    """

    def __init__(self, folder: Path, client: int, kind: str, facts: Mapping[str, Any], tensors: Tree) -> None:
        self._folder, self._path = folder, folder / "answers" / f"{client}.safetensors"
        self._attempt = facts.get(_ATTEMPT)
        same = {key: value for key, value in facts.items() if key != _ATTEMPT}
        question = "" if self._attempt is None else json.dumps([kind, same, tree_digest(tensors)], sort_keys=True)
        self._question = hashlib.sha256(question.encode()).hexdigest()

    def recall(self) -> Answer | None:
        """The answer to an earlier attempt, None if this is the first or the answer is lost."""
        if not self._attempt or not self._path.is_file():
            return None
        try:
            tensors, facts = read_tensors(self._path)
        except CorruptFile:
            return None
        return (facts, tensors) if facts.pop(_QUESTION, None) == self._question else None

    def keep(self, answer: Answer) -> None:
        """Store the answer to a question that may be repeated."""
        if self._attempt is not None:
            facts, tensors = answer
            with failing_with("disk"):
                make_run_folder(self._folder)
                self._path.parent.mkdir(mode=0o700, exist_ok=True)
                write_tensors(self._path, tensors, {**facts, _QUESTION: self._question})
