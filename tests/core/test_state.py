import pytest
import torch

from fedblade.core.disk_store import DiskStore
from fedblade.core.state import MemoryStore, ServerState, flatten, unflatten
from support.small_federation import assert_same_bits


def state(value):
    return {"control": {"body.weight": torch.full((2,), float(value))}, "_momentum": {"scale": torch.tensor(value)}}


@pytest.fixture(params=["memory", "disk"])
def store(request, tmp_path):
    return MemoryStore() if request.param == "memory" else DiskStore(tmp_path / "clients")


def value_of(found):
    return None if found is None else found["control"]["body.weight"][0].item()


def test_a_client_that_never_saved_has_nothing(store):
    assert store.get(3, 100) is None


def test_the_newest_state_comes_back_whole(store):
    store.put(3, 0, state(1.0))
    store.put(3, 4, state(2.0))
    found = store.get(3, 5)
    assert found.keys() == {"control", "_momentum"}
    assert_same_bits(flatten(found), flatten(state(2.0)))


def test_clients_do_not_mix(store):
    for client in (0, 1, 1000, 1001):
        store.put(client, 0, state(float(client)))
    assert [value_of(store.get(client, 1)) for client in (0, 1, 1000, 1001)] == [0.0, 1.0, 1000.0, 1001.0]


def test_many_states_at_once(store):
    store.put_all(2, {client: state(float(client)) for client in range(12)})
    assert [value_of(store.get(client, 3)) for client in range(13)] == [*range(12), None]


def test_later_changes_to_what_was_saved_do_not_reach_the_store(store):
    mine = state(1.0)
    store.put(0, 0, mine)
    mine["control"]["body.weight"].fill_(9.0)
    assert value_of(store.get(0, 1)) == 1.0


def test_one_tensor_in_two_parts_of_a_state(store):
    leaf = torch.ones(3)
    store.put(0, 0, {"previous": {"w": leaf}, "_personal": {"w": leaf}})
    assert_same_bits(flatten(store.get(0, 1)), {"previous/w": leaf, "_personal/w": leaf})


def test_flatten_and_unflatten_are_inverse():
    nested = {"extra/prototypes": {"mean": torch.ones(1)}, "params": {"body.a.b": torch.zeros(2)}}
    assert flatten(nested).keys() == {"extra/prototypes/mean", "params/body.a.b"}
    again = unflatten(flatten(nested))
    assert again.keys() == nested.keys()
    assert_same_bits(flatten(again), flatten(nested))


def server_state(value):
    return ServerState(
        params={"body.w": torch.full((2,), value)},
        buffers={},
        fixed={"etf": torch.full((2, 2), value)},
        extra={"prototypes": {"mean": torch.full((3,), value), "has": torch.tensor([value > 1])}, "nothing": {}},
        round=0,
    )


def test_server_state_is_restored_from_its_flat_form():
    again = server_state(1.0).restored(server_state(2.0).flat(), 5)
    assert again.round == 5
    assert again.extra.keys() == {"prototypes", "nothing"}
    assert again.buffers == {}
    assert_same_bits(again.flat(), server_state(2.0).flat())


def test_restoring_another_methods_checkpoint_is_refused():
    flat = server_state(1.0).flat()
    flat.pop("extra/prototypes/has")
    with pytest.raises(KeyError, match="has"):
        server_state(1.0).restored(flat, 1)


def test_replace_leaves_the_original():
    before = server_state(1.0)
    assert before.replace(round=3).round == 3
    assert before.round == 0
