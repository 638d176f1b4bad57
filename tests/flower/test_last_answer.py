"""A node repeats its last answer only to the very question that it has answered."""

import pytest

pytest.importorskip("flwr")
import torch

from fedblade.flower._last_answer import LastAnswer


def test_a_later_attempt_gets_the_answer_to_the_same_question_alone(tmp_path):
    model, other = ({"params/w": torch.full((2,), value)} for value in (1.0, 2.0))

    def asked(attempt, tensors=model, kind="train", **facts):
        return LastAnswer(tmp_path / "run", 0, kind, {"round": 3, "attempt": attempt, **facts}, tensors)

    answer = {"client": 0}, {"sums/w": torch.ones(2)}
    asked(0).keep(answer)
    facts, tensors = asked(1).recall()
    assert (facts, tensors["sums/w"].tolist()) == ({"client": 0}, [1.0, 1.0])
    assert asked(0).recall() is None
    assert asked(1, round=4).recall() is None
    assert asked(1, kind="collect").recall() is None
    # The round is done again from a checkpoint, with another model.
    assert asked(1, other).recall() is None
