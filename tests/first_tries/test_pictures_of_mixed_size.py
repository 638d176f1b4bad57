"""My pictures are in folders and have many sizes."""

import pytest

import fedblade
from support.made_files import pixels, save_picture


def test_pictures_of_mixed_size(tmp_path):
    for k in range(24):
        save_picture(tmp_path / "cat" / f"{k}.png", pixels(1, 8 + k % 3, seed=k)[0] // 2)
        save_picture(tmp_path / "dog" / f"{k}.png", pixels(1, 8 + k % 3, seed=k)[0] // 2 + 120)
    data = {"dataset": "image_folder", "dataset.path": str(tmp_path), "dataset.test_share": 0.25}
    few = {
        "num_clients": 2,
        "clients_per_round": 2,
        "rounds": 2,
        "model": "mlp",
        "partition": "iid",
        "method": "fedavg",
    }
    with pytest.raises(
        fedblade.api.Misconfigured, match=r"8×8 \(16\), 9×9 \(16\), 10×10 \(16\) pixels.*dataset.size=32"
    ):
        fedblade.run(**data, **few)

    result = fedblade.run(**data, **few, **{"dataset.size": 8})
    assert result.summary["rounds"] == 2
