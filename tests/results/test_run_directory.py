"""A run's folder: exactly the files and fields of the contract, whole, without pickle, and held by one process."""

import hashlib
import json
import math
import pickle
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

import fedblade
from fedblade.core.errors import Misconfigured, NonFinite, RunFailed
from fedblade.core.metric import Metric
from fedblade.core.registry import metrics
from fedblade.core.sums import DataPass
from fedblade.core.tensorfile import read_tensors
from fedblade.core.tree import tree_digest
from fedblade.data import Dataset, Part
from fedblade.engines.sequential import SequentialEngine
from fedblade.partitions import Hardness, hardness
from fedblade.runs import RunListener, _summary, load_config, split_clients
from fedblade.runs._checkout import commit_of

SUMMARY_FIELDS = {
    "method", "dataset", "partition", "model", "engine", "seed", "rounds", "final_accuracy", "last10_accuracy",
    "best_accuracy", "seconds", "bytes_up", "bytes_down", "versions", "status", "accuracy_of",
}  # fmt: skip


def read_history(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def timeless(history) -> list[dict]:
    """The history without the fields that may depend on the clock."""
    return [{key: value for key, value in row.items() if "seconds" not in key} for row in history]


def weights(folder: Path) -> str:
    return tree_digest(read_tensors(folder / "model.safetensors")[0])


class StopAfter(RunListener):
    """Raises when a round has been recorded, as Ctrl-C would."""

    def __init__(self, round_: int, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.round, self.error = round_, error

    def on_round(self, record):
        if record["round"] == self.round:
            raise self.error


@pytest.fixture
def cut_short(small_run, tmp_path):
    """A run stopped after its second of three rounds."""
    with pytest.raises(KeyboardInterrupt):
        small_run(out=tmp_path / "run", listener=StopAfter(2))
    return tmp_path / "run"


def test_a_finished_run_holds_the_files_of_the_contract_and_no_others(small_run, tmp_path):
    small_run(out=tmp_path / "run")
    visible = {p.relative_to(tmp_path / "run").as_posix() for p in (tmp_path / "run").rglob("[!.]*") if p.is_file()}
    assert visible == {
        "config.toml", "metrics.json", "history.jsonl", "diagnostics.jsonl", "summary.json", "partition.json",
        "model.safetensors", "folder.json", "clients.jsonl", "checkpoints/journal.jsonl",
        "checkpoints/round-000002.safetensors", "checkpoints/round-000003.safetensors",
    }  # fmt: skip
    assert not list((tmp_path / "run").rglob("*.tmp"))


def test_the_stored_configuration_is_the_resolved_one(small_run, tmp_path):
    small_run(out=tmp_path / "run", method="fedblade", hidden=[16])
    stored = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    keys = dict(method="fedblade", model="mlp", hidden=[16], dim=8, num_clients=6, clients_per_round=3)  # noqa: C408
    expected = load_config(
        "quickstart", keys | {"rounds": 3, "epochs": 1, "metrics": ["accuracy", "spectrum", "drift"]}
    )[0].table()
    assert stored == expected
    for key in ("weight_decay", "schedule", "persist", "clip", "momentum"):
        assert key in stored["optimizer"]
    assert stored["method"]["pba"]["tau"] == 0.1


def test_history_has_one_object_per_round_with_the_fields_of_the_contract(small_run, tmp_path):
    result = small_run(out=tmp_path / "run")
    rows = read_history(tmp_path / "run")
    assert [row["round"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert {"clients", "test_accuracy", "test_loss", "seconds"} <= row.keys()
        assert len(set(row["clients"])) == 3
        assert all(isinstance(client, int) and 0 <= client < 6 for client in row["clients"])
        assert 0 <= row["test_accuracy"] <= 100
        assert row["seconds"] > 0
    assert rows == result.history


def test_rounds_without_evaluation_have_no_accuracy_and_the_last_always_has(small_run, tmp_path):
    small_run(out=tmp_path / "run", rounds=5, **{"evaluation.every": 2})
    evaluated = [row["round"] for row in read_history(tmp_path / "run") if "test_accuracy" in row]
    assert evaluated == [2, 4, 5]


def test_summary_has_the_fields_of_the_contract(small_run, tmp_path):
    result = small_run(out=tmp_path / "run", rounds=12)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    rows = read_history(tmp_path / "run")
    accuracies = [row["test_accuracy"] for row in rows]
    assert summary.keys() >= SUMMARY_FIELDS
    assert summary == result.summary
    assert (summary["method"], summary["dataset"], summary["partition"]) == ("fedavg", "digits", "dirichlet")
    assert (summary["model"], summary["engine"], summary["seed"]) == ("mlp", "stacked", 1)
    assert (summary["rounds"], summary["status"], summary["accuracy_of"]) == (12, "finished", "global")
    assert summary["final_accuracy"] == accuracies[-1]
    assert summary["last10_accuracy"] == pytest.approx(sum(accuracies[2:]) / 10)
    assert summary["best_accuracy"] == max(accuracies)
    assert summary["seconds"] == pytest.approx(sum(row["seconds"] for row in rows))
    assert summary["bytes_up"] == sum(row["bytes_up"] for row in rows) > 0
    assert summary["bytes_down"] == sum(row["bytes_down"] for row in rows) > 0
    assert summary["versions"]["torch"] == torch.__version__
    assert summary["versions"]["fedblade"] == fedblade.__version__


def test_bytes_are_those_of_the_weights_that_travel(small_run):
    """64·16+16 + 16·8+8 + 8·10+10 parameters of four bytes, three clients; up comes the weight as well."""
    parameters = 64 * 16 + 16 + 16 * 8 + 8 + 8 * 10 + 10
    row = small_run(rounds=1).history[0]
    assert row["bytes_down"] == 3 * 4 * parameters
    assert row["bytes_up"] == 3 * 4 * (parameters + 1)


def test_the_partition_is_recorded_with_its_hash_and_table(small_run, tmp_path):
    small_run(out=tmp_path / "run")
    stored = json.loads((tmp_path / "run" / "partition.json").read_text())
    config, _ = load_config(tmp_path / "run" / "config.toml", {})
    dataset = config.dataset.make()
    split = split_clients(config, dataset).train
    table = [np.bincount(dataset.train.labels[split.part(k)], minlength=10).tolist() for k in range(6)]
    assert stored["counts"] == table
    assert sum(map(sum, table)) == 1348
    assert stored["digest"] == split.digest()
    assert stored["name"] == "dirichlet"
    assert Hardness.restored(stored["hardness"]) == hardness(split, 3)


def test_a_run_of_before_hardness_was_stored_goes_on(small_run, cut_short):
    stored = json.loads((cut_short / "partition.json").read_text())
    del stored["hardness"]
    (cut_short / "partition.json").write_text(json.dumps(stored))
    (cut_short / "folder.json").unlink()
    assert small_run(out=cut_short, resume=True).summary["status"] == "finished"
    assert json.loads((cut_short / "partition.json").read_text()) == stored


def test_runs_of_a_seed_differ_only_in_fields_about_seconds(small_run, tmp_path):
    for name in ("a", "b"):
        small_run(out=tmp_path / name, method="fedblade", metrics=["erank_feature", "nc1"])
    first, second = read_history(tmp_path / "a"), read_history(tmp_path / "b")
    differing = {key for one, two in zip(first, second, strict=True) for key in one if one[key] != two[key]}
    assert all("seconds" in key for key in differing)
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    summaries = [json.loads((tmp_path / name / "summary.json").read_text()) for name in ("a", "b")]
    assert timeless([summaries[0]]) == timeless([summaries[1]])


def test_another_seed_gives_another_run(small_run, tmp_path):
    for seed in (1, 2):
        small_run(out=tmp_path / str(seed), seed=seed)
    assert weights(tmp_path / "1") != weights(tmp_path / "2")
    assert timeless(read_history(tmp_path / "1")) != timeless(read_history(tmp_path / "2"))


def test_a_run_with_a_folder_equals_a_run_in_memory(small_run, tmp_path):
    on_disk, in_memory = small_run(out=tmp_path / "run"), small_run()
    assert timeless(on_disk.history) == timeless(in_memory.history)
    assert tree_digest(dict(on_disk.model.state_dict())) == tree_digest(dict(in_memory.model.state_dict()))


def test_nothing_is_written_without_a_folder(small_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = small_run()
    assert result.path is None
    assert list(tmp_path.iterdir()) == []


def forbid_pickle(monkeypatch):
    def refuse(*_args, **_kwargs):
        raise AssertionError("pickle was read")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(torch, "load", refuse)


def test_no_pickle_is_written_or_read(cut_short, small_run, monkeypatch):
    forbid_pickle(monkeypatch)
    small_run(out=cut_short, resume=True)
    small_run(out=cut_short, resume=True)
    fedblade.load(cut_short)
    for path in (p for p in cut_short.rglob("*") if p.is_file() and p.name != ".lock"):
        if path.suffix == ".safetensors":
            read_tensors(path)
        else:
            text = path.read_text(encoding="utf-8")
            assert not text.startswith("\x80")


def nan_metric() -> Metric:
    one = DataPass("nothing", lambda view: {"count": torch.ones((), dtype=torch.float64) * len(view.labels)})
    return Metric((one,), lambda _totals: {"undefined": math.nan, "endless": -math.inf, "fine": 1.5})


def test_numbers_that_json_cannot_hold_are_null(small_run, tmp_path, monkeypatch):
    metrics.names()
    monkeypatch.setattr(metrics, "_entries", dict(metrics._entries))
    metrics.register("undefined")(nan_metric)
    small_run(out=tmp_path / "run", metrics=["undefined"])
    text = (tmp_path / "run" / "history.jsonl").read_text()
    rows = [json.loads(line, parse_constant=lambda name: pytest.fail(name)) for line in text.splitlines()]
    assert [(row["undefined"], row["endless"], row["fine"]) for row in rows] == [(None, None, 1.5)] * 3


def test_checkpoints_are_kept_as_configured(small_run, tmp_path):
    small_run(out=tmp_path / "run", rounds=7, **{"checkpoint.every": 2, "checkpoint.keep": 3})
    kept = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("*.safetensors"))
    assert kept == [f"round-{r:06d}.safetensors" for r in (4, 6, 7)]


def test_a_writer_that_dies_leaves_the_old_file(tmp_path, monkeypatch):
    from fedblade.core import files

    target = tmp_path / "summary.json"
    files.write_atomic(target, "old")

    def fail(_handle):
        raise OSError("no space")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        files.write_atomic(target, "new" * 1000)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


def test_files_appear_under_their_name_only_when_whole(tmp_path, monkeypatch):
    from fedblade.core import files

    seen = []
    real = files.os.fsync
    monkeypatch.setattr(files.os, "fsync", lambda handle: (seen.append((tmp_path / "x").exists()), real(handle)))
    files.write_atomic(tmp_path / "x", b"content")
    assert seen[0] is False
    assert (tmp_path / "x").read_bytes() == b"content"


def test_a_folder_that_holds_another_run_is_refused(small_run, tmp_path):
    small_run(out=tmp_path / "run")
    before = (tmp_path / "run" / "history.jsonl").read_bytes()
    with pytest.raises(Misconfigured, match="already holds a run"):
        small_run(out=tmp_path / "run")
    assert (tmp_path / "run" / "history.jsonl").read_bytes() == before


def test_a_foreign_folder_is_refused_and_left_alone(small_run, tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    for resume in (False, True):
        with pytest.raises(Misconfigured, match="not empty"):
            small_run(out=tmp_path, resume=resume)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_place_of_the_folder_is_refused(small_run, tmp_path):
    (tmp_path / "run").write_text("a file")
    with pytest.raises(Misconfigured, match="run"):
        small_run(out=tmp_path / "run")


def test_a_folder_that_cannot_be_made_is_refused(small_run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Misconfigured, match="file"):
        small_run(out=tmp_path / "file" / "run")


def test_an_empty_folder_may_be_used(small_run, tmp_path):
    (tmp_path / "run").mkdir()
    assert small_run(out=tmp_path / "run", resume=True).summary["status"] == "finished"


def test_a_second_process_is_refused_while_the_first_is_at_work(small_run, tmp_path):
    code = (
        "import sys, fedblade.results._run_directory as d, pathlib\n"
        "from fedblade.core.errors import Misconfigured\n"
        "folder = d.RunDirectory(pathlib.Path(sys.argv[1]))\n"
        "try:\n    folder.open(resume=True)\n"
        "except Misconfigured as error:\n    print(error)\n"
    )
    answers = []

    class Ask(RunListener):
        def on_round(self, record):
            if record["round"] == 1:
                command = [sys.executable, "-c", code, str(tmp_path / "run")]
                answers.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    small_run(out=tmp_path / "run", listener=Ask())
    assert "in use by another process" in answers[0]


def test_the_folder_is_free_again_after_a_failure(cut_short, small_run):
    assert small_run(out=cut_short, resume=True).summary["rounds"] == 3


def test_an_interrupted_run_says_so_and_keeps_its_history(cut_short):
    summary = json.loads((cut_short / "summary.json").read_text())
    assert (summary["status"], summary["rounds"]) == ("interrupted", 2)
    assert len(read_history(cut_short)) == 2
    assert not (cut_short / "model.safetensors").exists()


def test_a_crash_in_someones_code_is_a_failed_run(small_run, tmp_path):
    with pytest.raises(ZeroDivisionError):
        small_run(out=tmp_path / "run", listener=StopAfter(2, ZeroDivisionError))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["rounds"]) == ("failed", 2)


def test_a_resumed_run_equals_an_undisturbed_one(cut_short, small_run, tmp_path):
    resumed, whole = small_run(out=cut_short, resume=True), small_run(out=tmp_path / "whole")
    assert timeless(read_history(cut_short)) == timeless(read_history(tmp_path / "whole"))
    assert timeless(resumed.history) == timeless(whole.history)
    assert weights(cut_short) == weights(tmp_path / "whole")
    assert resumed.summary["status"] == "finished"


def test_resuming_a_finished_run_returns_the_same_result_and_writes_nothing(small_run, tmp_path):
    first = small_run(out=tmp_path / "run")
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.name != ".lock"}
    again = small_run(out=tmp_path / "run", resume=True)
    assert again.history == first.history
    assert again.summary == first.summary
    assert tree_digest(dict(again.model.state_dict())) == tree_digest(dict(first.model.state_dict()))
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps


@pytest.mark.parametrize(
    ("change", "key", "old", "new"),
    [
        ({"lr": 0.5}, "optimizer.lr", "0.02", "0.5"),
        ({"rounds": 2}, "federation.rounds", "3", "2"),
        ({"seed": 9}, "seed", "1", "9"),
        ({"method": "fedprox"}, "method", "fedavg", "fedprox"),
        ({"hidden": [16, 4]}, "model.hidden", "[16]", "[16, 4]"),
    ],
)
def test_a_changed_configuration_is_refused_by_key_and_values(cut_short, small_run, change, key, old, new):
    with pytest.raises(Misconfigured) as caught:
        small_run(out=cut_short, resume=True, **change)
    assert key in str(caught.value)
    if key != "method":
        assert f"{key} = {old}" in str(caught.value)
        assert new in str(caught.value)


def arrays(shift: float = 0.0):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(90, 5)).astype(np.float32) + np.float32(shift), np.arange(90) % 3
    return x[:60], y[:60], x[60:], y[60:]


@pytest.mark.parametrize("finished", [False, True])
def test_changed_data_are_refused(small_run, tmp_path, finished):
    keys = {"out": tmp_path / "run", "partition": "iid"}
    try:
        small_run(dataset=arrays(), listener=None if finished else StopAfter(1), **keys)
    except KeyboardInterrupt:
        assert not finished
    with pytest.raises(Misconfigured, match="data"):
        small_run(dataset=arrays(shift=0.5), resume=True, **keys)
    assert small_run(dataset=arrays(), resume=True, **keys).summary["rounds"] == 3


def test_changed_groups_of_the_samples_are_changed_data():
    x, y, *_ = arrays()
    groups = np.arange(60) % 2
    one, two = (Dataset("d", Part(x, y, g), Part(x, y), 3).digest() for g in (groups, 1 - groups))
    assert one != two


MISTAKES = [
    {"alpha": -1.0},
    {"device": "cuda:99"},
    {"min_size": 10_000},
    {"metrics": ["acuracy"]},
    {"engine": "stakked"},
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda each: next(iter(each)))
def test_a_mistake_leaves_no_run_behind_so_that_it_can_be_mended(small_run, tmp_path, mistake):
    with pytest.raises(Misconfigured):
        small_run(out=tmp_path / "run", **mistake)
    assert not (tmp_path / "run" / "config.toml").exists()
    assert small_run(out=tmp_path / "run").summary["status"] == "finished"


def test_a_run_that_turns_non_finite_fails_with_its_history(small_run, tmp_path):
    with pytest.raises(NonFinite, match=r"client \d+"):
        small_run(out=tmp_path / "run", lr=1e12, rounds=40)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "failed"
    assert summary["rounds"] == len(read_history(tmp_path / "run") if summary["rounds"] else [])
    assert "client" in summary["error"]


def test_a_lack_of_memory_on_a_gpu_says_what_to_do_and_the_run_goes_on(small_run, tmp_path, monkeypatch):
    def full(self, *arguments):
        if arguments[0].round == 1:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return train(self, *arguments)

    train = SequentialEngine.train
    with monkeypatch.context() as patch:
        patch.setattr(SequentialEngine, "train", full)
        with pytest.raises(RunFailed, match=r"the GPU's memory is too small.*local\.batch_size.*--resume"):
            small_run(out=tmp_path / "run", engine="sequential")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["rounds"]) == ("failed", 1)
    assert small_run(out=tmp_path / "run", engine="sequential", resume=True).summary["status"] == "finished"


@pytest.mark.parametrize("content", ["{", "[]", "", "\x00"])
def test_a_damaged_summary_does_not_stop_a_resume(cut_short, small_run, content):
    (cut_short / "summary.json").write_text(content)
    assert small_run(out=cut_short, resume=True).summary["status"] == "finished"


@pytest.mark.parametrize("content", [b"seed = = 1", b'id = "\xff"', None])
def test_a_configuration_that_cannot_be_read_is_written_again(cut_short, small_run, content):
    path = cut_short / "config.toml"
    before = path.read_bytes()
    path.unlink() if content is None else path.write_bytes(content)
    assert fedblade.run(out=cut_short, resume=True).summary["status"] == "finished"
    assert path.read_bytes() == before


def test_a_configuration_of_an_older_version_that_cannot_be_read_is_reported(cut_short, small_run):
    (cut_short / "config.toml").write_text("seed = = 1")
    (cut_short / "folder.json").unlink()
    with pytest.raises(fedblade.core.errors.CorruptFile, match=r"config\.toml"):
        small_run(out=cut_short, resume=True)


def test_resuming_without_a_word_takes_the_runs_own_configuration(cut_short, small_run, tmp_path):
    resumed, whole = fedblade.run(out=cut_short, resume=True), small_run(out=tmp_path / "whole")
    assert timeless(resumed.history) == timeless(whole.history)
    assert fedblade.run(out=cut_short, resume=True).summary == resumed.summary
    with pytest.raises(Misconfigured, match="was started with"):
        fedblade.run(out=cut_short, resume=True, lr=0.5)
    with pytest.raises(Misconfigured, match="already holds a run"):
        fedblade.run(out=cut_short)


def test_resuming_with_nothing_but_the_data_takes_the_runs_own_configuration(small_run, tmp_path):
    keys = {"out": tmp_path / "run", "dataset": arrays()}
    with pytest.raises(KeyboardInterrupt):
        small_run(partition="iid", listener=StopAfter(1), **keys)
    with pytest.raises(Misconfigured, match="Python"):
        fedblade.run(out=tmp_path / "run", resume=True)
    assert fedblade.run(resume=True, **keys).summary["rounds"] == 3


def test_an_object_in_place_of_a_name_is_another_configuration(cut_short):
    with pytest.raises(Misconfigured, match="model"):
        fedblade.run(out=cut_short, resume=True, model=torch.nn.Linear(64, 8))


OWN = """
from fedblade.methods.fedavg import fedavg

def mine():
    return fedavg()
"""


@pytest.mark.parametrize("finished", [False, True])
def test_an_edited_file_of_the_users_is_refused_by_name(small_run, tmp_path, finished):
    path, keys = tmp_path / "own.py", {"out": tmp_path / "run"}
    path.write_text(OWN)
    keys["method"] = f"{path}:mine+feddecorr"
    try:
        small_run(listener=None if finished else StopAfter(1), **keys)
    except KeyboardInterrupt:
        assert not finished
    stored = json.loads((tmp_path / "run" / "partition.json").read_text())["sources"]
    assert stored == {str(path): hashlib.sha256(OWN.encode()).hexdigest()}
    path.write_text(OWN + "# edited\n")
    with pytest.raises(Misconfigured, match=r"own\.py' was changed"):
        small_run(resume=True, **keys)
    path.write_text(OWN)
    assert small_run(resume=True, **keys).summary["status"] == "finished"


def test_built_in_parts_have_no_sources(cut_short):
    assert json.loads((cut_short / "partition.json").read_text())["sources"] == {}


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("files", "commit"),
    [
        ({}, None),
        ({"HEAD": COMMIT}, COMMIT),
        ({"HEAD": "ref: refs/heads/main\n", "refs/heads/main": f"{COMMIT}\n"}, COMMIT),
        ({"HEAD": "ref: refs/heads/main\n", "packed-refs": f"# pack\n{COMMIT} refs/heads/main\n"}, COMMIT),
        ({"HEAD": "ref: refs/heads/main\n"}, None),
    ],
    ids=["none", "detached", "loose", "packed", "unborn"],
)
def test_the_commit_of_a_checkout_is_in_the_summary(small_run, tmp_path, monkeypatch, files, commit):
    for name, text in files.items():
        (tmp_path / ".git" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / ".git" / name).write_text(text)
    monkeypatch.setattr(_summary, "CHECKOUT", tmp_path)
    assert small_run(rounds=1).summary["versions"].get("commit") == commit


@pytest.mark.parametrize("branch", [["--detach"], ["-b", "other"]], ids=["detached", "branch"])
def test_the_commit_of_a_linked_worktree_is_known(tmp_path, branch):
    main, linked = tmp_path / "main", tmp_path / "linked"

    def git(*words, folder=main):
        settings = ("-c", "user.name=A", "-c", "user.email=a@b.c")
        done = subprocess.run(["git", *settings, *words], cwd=folder, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init", "-q", str(main), folder=tmp_path)
    git("commit", "-q", "--allow-empty", "-m", "first")
    git("worktree", "add", "-q", *branch, str(linked))
    git("commit", "-q", "--allow-empty", "-m", "second", folder=linked)
    assert commit_of(linked) == git("rev-parse", "HEAD", folder=linked) != git("rev-parse", "HEAD")


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(37, "No locks available")])
def test_a_folder_that_cannot_be_locked_is_named(small_run, tmp_path, monkeypatch, error):
    import filelock

    def acquire(_):
        raise error

    monkeypatch.setattr(filelock.FileLock, "acquire", acquire)
    with pytest.raises(Misconfigured, match=f"run' cannot be locked .*{error.strerror}.* Choose another --out"):
        small_run(out=tmp_path / "run")


def test_a_disk_without_locks_is_refused(small_run, tmp_path, monkeypatch):
    """A soft lock is a mark that a killed process leaves behind."""
    import filelock

    monkeypatch.setattr(filelock, "FileLock", filelock.SoftFileLock)
    with pytest.raises(Misconfigured, match="has no file locks"):
        small_run(out=tmp_path / "run")
