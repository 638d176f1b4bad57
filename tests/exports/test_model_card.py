"""The folder for a model hub: what its card says is what the run's folder says."""

import json
from pathlib import Path

import pytest
import torch

import fedblade
from fedblade.core.errors import Misconfigured


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> tuple[fedblade.Result, Path]:
    """A run of a comparison with two seeds, and its folder for the hub, made from the folder of the run."""
    runs = tmp_path_factory.mktemp("runs")
    settings = {"num_clients": 6, "clients_per_round": 3, "rounds": 2, "epochs": 1, "model": "mlp"}
    for seed in (1, 2):
        result = fedblade.run(
            "quickstart", method="ccvr", seed=seed, metrics=["accuracy"], out=runs / f"mine-seed{seed}", **settings
        )
    return result, fedblade.load(runs / "mine-seed2").export(runs / "folder", "hub")


def section(folder: Path, heading: str) -> str:
    return (folder / "README.md").read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]


def test_the_folder_holds_a_program_tensors_settings_and_a_card(exported):
    result, folder = exported
    assert sorted(file.name for file in folder.iterdir()) == [
        "README.md", "config.json", "model.pt2", "model.safetensors", "preprocessor_config.json"
    ]  # fmt: skip
    configuration = json.loads((folder / "config.json").read_text())
    assert configuration["run"]["method"]["name"] == "ccvr"
    assert configuration["id2label"]["7"] == "7"
    assert json.loads((folder / "preprocessor_config.json").read_text())["preprocessing"]["unit"] == 16
    extra = {"fedblade.json": ""}
    program = torch.export.load(folder / "model.pt2", extra_files=extra).module()
    inputs = torch.randint(0, 17, (4, 1, 8, 8), dtype=torch.uint8)
    torch.testing.assert_close(program(inputs), result.model(inputs), rtol=1e-5, atol=1e-5)
    assert json.loads(extra["fedblade.json"])["method"] == "ccvr"


def test_the_head_of_the_card_is_one_that_a_hub_reads(exported):
    from huggingface_hub import ModelCard

    result, folder = exported
    card = ModelCard.load(folder / "README.md")
    assert card.data.license is None, "the licence is left to the user"
    assert card.data.eval_results[0].metric_value == pytest.approx(result.summary["final_accuracy"] / 100, abs=1e-4)
    assert "federated-learning" in card.data.tags
    assert len(set(card.data.tags)) == len(card.data.tags)
    assert (card.data.metrics, card.data.pipeline_tag) == (["accuracy"], "image-classification")


def test_the_card_gives_the_accuracy_with_its_spread_over_seeds_and_clients(exported):
    result, folder = exported
    text = section(folder, "Accuracy")
    finals = [fedblade.load(folder.parent / f"mine-seed{seed}").read_record().final_accuracy for seed in (1, 2)]
    mean, std = sum(finals) / 2, abs(finals[0] - finals[1]) / 2**0.5
    assert f"| final model | {result.summary['final_accuracy']:.2f} % |" in text
    assert f"Over seeds: {mean:.2f} ± {std:.2f} % after the last round" in text
    assert "over 2 seeds: 1, 2)" in text
    assert "(6 clients; expected of the client's mix of labels" in text


def test_the_card_says_how_skewed_the_split_is_and_what_left_the_clients(exported):
    result, folder = exported
    hardness = result.model.read_record().hardness
    assert hardness.sentence() in section(folder, "Data")
    left = section(folder, "What left the clients")
    assert "| `delta` | each round | sum over clients |" in left
    assert "| `moments` | once, at the end | sum over clients |" in left
    assert "This run was a simulation" in left


def test_a_folder_with_files_is_not_written_over(exported):
    result, folder = exported
    with pytest.raises(Misconfigured, match="may have been edited"):
        result.export(folder, "hub")


def test_one_seed_and_folders_of_this_machine(small_run, tmp_path, monkeypatch):
    """A run in memory has no other seeds, and nothing that is written names a folder of this machine."""
    net = tmp_path / "mine.py"
    net.write_text(
        "from torch import nn\n\ndef net(shape):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    run = fedblade.run(
        "quickstart", model=f"{net}:net", num_clients=6, clients_per_round=3, rounds=1, epochs=1, metrics=["accuracy"]
    )
    monkeypatch.chdir(tmp_path)
    folder = run.export(format="hub")
    assert folder == Path("fedblade-hub")
    assert "One seed" in section(folder, "Accuracy")
    for file in folder.iterdir():
        assert str(tmp_path).encode() not in file.read_bytes(), file.name
