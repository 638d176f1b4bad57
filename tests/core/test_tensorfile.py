import pytest
import torch
from safetensors.torch import save

from fedblade.core.errors import CorruptFile
from fedblade.core.safetensors_bytes import layout_of
from fedblade.core.tensorfile import read_tensors, write_tensors
from fedblade.core.tree import leaf_bytes
from support.small_federation import assert_same_bits


def tree():
    return {
        "a/weight": torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
        "scale": torch.tensor(1.5),
        "count": torch.tensor(7),
        "has": torch.tensor([True, False]),
        "empty": torch.zeros(0, 3),
    }


def test_what_was_written_is_read_bit_for_bit(tmp_path):
    write_tensors(tmp_path / "t", tree(), {"round": 3, "names": ["x"]})
    tensors, metadata = read_tensors(tmp_path / "t")
    assert_same_bits(tensors, tree())
    assert metadata == {"round": 3, "names": ["x"]}


def test_the_same_contents_give_the_same_bytes(tmp_path):
    for number in range(20):
        write_tensors(tmp_path / f"{number}", tree(), {"round": 3, "accuracy": 0.1, "names": ["x"], "none": None})
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_reading_and_writing_again_changes_no_byte(tmp_path):
    write_tensors(tmp_path / "a", tree(), {"mean": [0.1, 1e-30], "names": ["ä"], "none": None})
    write_tensors(tmp_path / "b", *read_tensors(tmp_path / "a"))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_views_and_transposes_are_stored_by_value(tmp_path):
    base = torch.arange(6.0).reshape(2, 3)
    write_tensors(tmp_path / "t", {"t": base.T, "row": base[1]})
    tensors, _ = read_tensors(tmp_path / "t")
    assert_same_bits(tensors, {"t": base.T, "row": base[1]})


def test_one_tensor_under_two_names_is_stored_twice(tmp_path):
    leaf = torch.arange(4.0)
    write_tensors(tmp_path / "t", {"a": leaf, "b": leaf})
    tensors, _ = read_tensors(tmp_path / "t")
    assert_same_bits(tensors, {"a": leaf, "b": leaf})


def test_an_empty_tree(tmp_path):
    write_tensors(tmp_path / "t", {})
    assert read_tensors(tmp_path / "t") == ({}, {})


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_torn_file_is_refused(tmp_path, share):
    write_tensors(tmp_path / "t", tree())
    content = (tmp_path / "t").read_bytes()
    (tmp_path / "t").write_bytes(content[: int(len(content) * share)])
    with pytest.raises(CorruptFile, match="t'"):
        read_tensors(tmp_path / "t")


def test_no_flipped_bit_goes_unnoticed(tmp_path):
    write_tensors(tmp_path / "t", {"a": torch.arange(4.0)}, {"round": 1})
    content = (tmp_path / "t").read_bytes()
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1
        (tmp_path / "t").write_bytes(bytes(flipped))
        try:
            tensors, metadata = read_tensors(tmp_path / "t")
        except CorruptFile:
            continue
        assert_same_bits(tensors, {"a": torch.arange(4.0)})
        assert metadata == {"round": 1}, f"byte {place}: {content[place : place + 1]!r} became other metadata"


def test_a_file_without_digest_is_refused(tmp_path):
    (tmp_path / "t").write_bytes(save(tree()))
    with pytest.raises(CorruptFile, match="digest"):
        read_tensors(tmp_path / "t")


def test_an_absent_file_is_not_called_corrupt(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_tensors(tmp_path / "absent")


def test_the_bytes_are_those_of_the_formats_own_library():
    """For every type, in any order of the names, and with characters that JSON writes in another way."""
    types = [
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
        torch.uint8, torch.bool, torch.complex64, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn,
        torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
    ]  # fmt: skip
    tensors = tree() | {f"of {dtype}": torch.ones(3).to(dtype) for dtype in types}
    tensors |= {"Z": torch.ones(2), "ä": torch.ones(1), 'a"\\\n\x01': torch.ones(1), "𝔸": torch.ones(1)}
    for metadata in ({"fedblade": '{"names": ["ä\\n"]}'}, {"fedblade": "\x7f\u2028"}):
        buffers = {name: leaf_bytes(leaf) for name, leaf in tensors.items()}
        assert layout_of(tensors).file(buffers, metadata) == save(tensors, metadata)
    assert layout_of({}).file({}, {"fedblade": ""}) == save({}, {"fedblade": ""})
