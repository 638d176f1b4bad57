import pytest
import torch

from fedblade.core.errors import CorruptFile, RunFailed
from fedblade.core.state import DiskStore, MemoryStore, ServerState, flatten, unflatten
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


def test_one_state_of_many_that_cannot_be_written_is_told_when_the_others_are(tmp_path, monkeypatch):
    put = DiskStore.put

    def failing(self, client, round_, state):
        if client == 1:
            raise RunFailed("no space left")
        put(self, client, round_, state)

    monkeypatch.setattr(DiskStore, "put", failing)
    store = DiskStore(tmp_path)
    store.put_all(0, {client: state(float(client)) for client in range(9)})
    with pytest.raises(RunFailed, match="no space left"):
        store.flush()
    assert [client for client in range(9) if store.has(client, 0)] == [0, 2, 3, 4, 5, 6, 7, 8]


def test_later_changes_to_what_was_saved_do_not_reach_the_store(store):
    mine = state(1.0)
    store.put(0, 0, mine)
    mine["control"]["body.weight"].fill_(9.0)
    assert value_of(store.get(0, 1)) == 1.0


def test_one_tensor_in_two_parts_of_a_state(store):
    leaf = torch.ones(3)
    store.put(0, 0, {"previous": {"w": leaf}, "_personal": {"w": leaf}})
    assert_same_bits(flatten(store.get(0, 1)), {"previous/w": leaf, "_personal/w": leaf})


def test_disk_gives_the_newest_before_a_round(tmp_path):
    store = DiskStore(tmp_path)
    for round_ in (0, 3, 7):
        store.put(0, round_, state(float(round_)))
    assert [value_of(store.get(0, before)) for before in (0, 1, 3, 4, 7, 8, 99)] == [None, 0, 0, 3, 3, 7, 7]


def test_disk_survives_a_new_process(tmp_path):
    DiskStore(tmp_path).put(5, 2, state(4.0))
    assert value_of(DiskStore(tmp_path).get(5, 3)) == 4.0


def test_disk_overwrites_a_round_done_again(tmp_path):
    store = DiskStore(tmp_path)
    store.put(0, 2, state(1.0))
    store.put(0, 2, state(2.0))
    assert value_of(store.get(0, 3)) == 2.0
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1


def test_garbage_collection_keeps_what_the_oldest_checkpoint_needs(tmp_path):
    store = DiskStore(tmp_path)
    for round_ in (0, 1, 4):
        store.put(0, round_, state(float(round_)))
    store.forget_before(4)
    store.put(0, 6, state(6.0))
    assert value_of(store.get(0, 4)) == 1.0
    assert value_of(store.get(0, 5)) == 4.0
    assert value_of(store.get(0, 7)) == 6.0
    assert value_of(store.get(0, 1)) is None


def test_garbage_collection_bounds_the_number_of_files(tmp_path):
    store = DiskStore(tmp_path)
    for round_ in range(20):
        store.put(0, round_, state(float(round_)))
        store.forget_before(max(round_ - 1, 0))
    assert len(list(tmp_path.rglob("*.safetensors"))) <= 4


def test_nothing_is_collected_before_a_checkpoint_exists(tmp_path):
    store = DiskStore(tmp_path)
    for round_ in range(5):
        store.put(0, round_, state(float(round_)))
    assert [value_of(store.get(0, r + 1)) for r in range(5)] == [0, 1, 2, 3, 4]


def test_a_damaged_file_raises(tmp_path):
    store = DiskStore(tmp_path)
    store.put(0, 0, state(1.0))
    (path,) = tmp_path.rglob("*.safetensors")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(CorruptFile, match="digest"):
        store.get(0, 1)


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


def test_disk_clears_what_a_killed_process_left_beside_the_state_it_writes(tmp_path):
    store = DiskStore(tmp_path)
    store.put(3, 0, state(1.0))
    left = next(tmp_path.rglob("*.safetensors")).parent / ".000000.safetensors.ab12.tmp"
    left.write_bytes(b"half")
    store.put(3, 1, state(2.0))
    assert not left.exists()
    assert len(list(tmp_path.rglob("*.safetensors"))) == 2
