"""A person passes a function that looks at every round and ends the run."""

import pytest

import fedblade
from fedblade.api import Misconfigured, RunListener

SMALL = {
    "model": "mlp", "dim": 6, "hidden": [8], "num_clients": 4, "clients_per_round": 2, "rounds": 6, "device": "cpu",
    "metrics": "accuracy", "method": "fedavg", "listener": RunListener(),
}  # fmt: skip


def test_a_function_sees_every_round_and_ends_the_run_with_a_reason():
    seen = []

    def look(record):
        seen.append((record["round"], record["test_accuracy"]))
        return "this is enough" if record["round"] == 3 else None

    result = fedblade.run(callbacks=[look], **SMALL)
    assert seen == [(row["round"], row["test_accuracy"]) for row in result.history]
    assert len(seen) == 3
    assert result.summary["stopped"]["text"] == "stopped after round 3 of 6: this is enough"


def test_a_listener_may_end_the_run_too():
    class Enough(RunListener):
        def stops(self, record):
            return record["round"] == 2

    assert len(fedblade.run(callbacks=[Enough(), lambda record: None], **SMALL).history) == 2


def test_a_run_that_a_callback_ended_is_finished_until_it_gets_other_rounds(tmp_path):
    fedblade.run(out=tmp_path / "run", callbacks=[lambda record: record["round"] == 2], **SMALL)
    same = fedblade.run(out=tmp_path / "run", resume=True, listener=RunListener())
    assert len(same.history) == 2
    more = fedblade.run(out=tmp_path / "run", resume=True, rounds=5, listener=RunListener())
    assert len(more.history) == 5


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (lambda record: True, "is not a list; expected callbacks="),
        (["early"], "the callback 'early' cannot be called"),
        ([lambda record: 3], "gave 3 after round 1; expected None or False to go on"),
    ],
)
def test_what_is_no_callback_is_refused(callbacks, message):
    with pytest.raises(Misconfigured, match=message):
        fedblade.run(callbacks=callbacks, **SMALL)
