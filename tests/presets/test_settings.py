"""Settings of single cells, written out by hand from the texts of the papers."""

import pytest

from fedblade.config.settings import lookup
from fedblade.presets.published import lines_of, select
from fedblade.runs import tuning_stages
from fedblade.studies._measures import check_cell
from fedblade.studies._reproduction import cell_name
from support.all_presets import GRIDS, cell, configs, settled, shipped, whole
from support.for_every import for_every

EXPECTED = [
    ("fb-t1", {"dataset": "CIFAR-10", "level": "0.05", "method": "FedBlade"}, {
        "optimizer.lr": 0.01, "optimizer.momentum": 0.9, "optimizer.weight_decay": 1e-5, "local.batch_size": 64,
        "local.epochs": 5, "model": "mobilenet_v2", "partition": "dirichlet_clients",
        "partition.sizes": "equal", "partition.deal": "clients",
        "partition.alpha": 0.05, "federation.num_clients": 100, "federation.clients_per_round": 20,
        "federation.rounds": 200, "federation.weighting": "samples", "model.norm_stats": "running",
        "evaluation.protocol": "last10", "method.lambda_decorr": 0.005, "method.gamma_pba": 1.0,
        "method.pba.tau": 0.1, "method.decorr.eps": 1e-4, "method.decorr.balance": "none",
    }),
    ("fb-t1", {"dataset": "CIFAR-100", "level": "0.1", "method": "FedDecorr"}, {
        "method.lambda_decorr": 0.1, "method.decorr.scale": "official",
    }),
    ("fb-t1", {"dataset": "CIFAR-10", "level": "0.5", "method": "FedLC"}, {"method.tau_lc": 10.0}),
    ("fb-t7", {"dataset": "Tiny-ImageNet", "level": "0.5", "method": "FedProx"}, {
        "federation.num_clients": 20, "federation.clients_per_round": 20, "federation.rounds": 100, "method.mu": 0.01,
    }),
    ("fb-t8", {"dataset": "CIFAR-10", "level": "0.1", "method": "FedETF"}, {
        "model": "resnet18", "federation.rounds": 200,
    }),
    ("fb-t4", {"level": "0.1", "method": "FedBlade w/o DF"}, {
        "dataset": "tiny_imagenet", "method.pba.distribution_factor": False, "method.pba.tau": 0.1,
        "method.gamma_pba": 1.0, "method.lambda_decorr": 0.005,
    }),
    ("fb-t3", {"dataset": "CIFAR-100", "level": "0.05", "method": "FedBlade w/o LDDecorr"}, {
        "method.lambda_decorr": 0.0, "method.gamma_pba": 1.0,
    }),
    ("fb-f3", {"dataset": "CIFAR-100", "level": "0.05", "method": "FedBlade-FedDecorr"}, {
        "method.name": "fedblade", "method.lambda_decorr": 0.1, "method.decorr.kind": "feddecorr",
        "method.decorr.scale": "official", "method.gamma_pba": 1.0,
    }),
    ("fd-t1", {"dataset": "CIFAR-10", "level": "0.05", "method": "FedAvgM+FedDecorr"}, {
        "optimizer.weight_decay": 1e-5, "federation.rounds": 100, "federation.num_clients": 10, "local.epochs": 10,
        "method.rho": 0.5, "method.variant": "ema", "method.feddecorr.lambda_decorr": 0.1,
        "evaluation.protocol": "final",
        "method.feddecorr.decorr.scale": "official",
    }),
    ("fd-t1", {"dataset": "Tiny-ImageNet", "level": "inf", "method": "FedProx"}, {
        "partition": "iid", "federation.rounds": 50, "optimizer.weight_decay": 1e-4, "method.mu": 1e-3,
    }),
    ("fd-t3", {"dataset": "DomainNet", "level": "Avg", "method": "FedBN"}, {
        "model": "alexnet_bn", "federation.rounds": 300, "local.epochs": 1, "federation.num_clients": 6,
        "federation.clients_per_round": 6, "federation.weighting": "uniform", "optimizer.weight_decay": 1e-5,
        "partition": "domain", "partition.fraction": 0.05, "evaluation.protocol": "domain",
    }),
    ("fd-t4", {"dataset": "Tiny-ImageNet", "level": "0.1", "clients": "50", "method": "FedAvg"}, {
        "federation.clients_per_round": 10, "federation.rounds": 100,
    }),
    ("fd-t4", {"dataset": "Tiny-ImageNet", "level": "0.1", "clients": "30", "method": "FedAvg"}, {
        "federation.clients_per_round": 30, "federation.rounds": 50,
    }),
    ("fd-t8", {"level": "0.1", "model": "ResNet-32", "method": "FedAvg"}, {"model.shortcut": "A"}),
    ("fg-t2", {"dataset": "CIFAR-100", "level": "0.2", "clients": "50", "method": "FedGELA", "metric": "PA"}, {
        "federation.rounds": 200, "federation.clients_per_round": 10, "local.batch_size": 100, "local.epochs": 10,
        "partition.min_size": 0, "partition.cap": True, "dataset.test_split": "proportional",
        "optimizer.weight_decay": 1e-4,
    }),
    ("fg-t2", {"dataset": "SVHN", "level": "0.1", "clients": "10", "method": "FedAvg", "metric": "GA"}, {
        "federation.rounds": 50,
    }),
    ("fg-t5", {"dataset": "SVHN", "clients": "50", "method": "FedGELA", "metric": "GA"}, {
        "partition.classes_per_client": 2, "federation.rounds": 100, "federation.clients_per_round": 10,
    }),
    ("fe-t1", {"dataset": "CIFAR-10", "level": "0.05", "method": "FedETF", "metric": "generalization"}, {
        "optimizer.lr": 0.04, "optimizer.schedule": "exp", "optimizer.weight_decay": 5e-4, "local.batch_size": 128,
        "local.epochs": 3, "federation.rounds": 200, "model": "resnet20", "model.shortcut": "B",
        "partition.cap": False, "dataset.test_split": "holdout",
    }),
    ("fe-t1", {"dataset": "Tiny-ImageNet", "level": "0.1", "method": "FedAvg", "metric": "generalization"}, {
        "optimizer.lr": 0.01, "model": "resnet18", "model.shortcut": None, "local.epochs": 1, "federation.rounds": 50,
    }),
    ("fr-t3", {"dataset": "CIFAR-10", "partition": "dirichlet", "level": "0.2", "method": "FedDr+"}, {
        "optimizer.lr": 0.35, "model": "vgg11", "local.epochs": 10, "model.norm_stats": "batch", "method.beta": 0.9,
        "federation.weighting": "samples", "dataset.test_split": "matched", "optimizer.schedule": "step",
        "federation.rounds": 320, "local.batch_size": 50,
    }),
    ("fr-t3", {"dataset": "CIFAR-100", "partition": "shards", "level": "10", "method": "SphereFed"}, {
        "optimizer.lr": 6.5, "model": "mobilenet_v1", "local.epochs": 3,
    }),
    ("fr-t3", {"dataset": "ImageNet-100", "partition": "shards", "method": "FedETF"}, {
        "optimizer.lr": 1.0, "model": "resnet18_imagenet", "local.epochs": 5, "partition.shards_per_client": 20,
    }),
    ("fr-t3", {"dataset": "ImageNet-100", "partition": "shards", "method": "FedAvg"}, {"optimizer.lr": 0.1}),
    ("fr-t2", {"partition": "shards", "method": "FedETF+KD"}, {
        "optimizer.lr": 0.5, "federation.weighting": "uniform", "method.kd.beta": 0.5,
    }),
    ("fr-t13", {"partition": "shards", "method": "FedGELA+KD"}, {"method.kd.beta": 0.9, "method.normalize": False}),
    ("fr-t5", {"partition": "shards", "level": "20", "method": "Local-DR"}, {
        "federation.rounds": 160, "local.epochs": 1, "federation.clients_per_round": 100, "optimizer.lr": 5.0,
    }),
    ("fr-t17", {"clients": "500", "method": "FedDr+"}, {
        "federation.rounds": 1000, "federation.clients_per_round": 50, "optimizer.lr": 5.0,
    }),
]  # fmt: skip

SEEDS = {
    "fb-t1": (1024, 2025, 4096), "fd-t1": (0, 1, 2), "fg-t2": (0, 1, 2), "fe-t1": (8, 9, 10), "fr-t3": (0, 1, 2),
    "fr-t17": (0, 1, 2), "fr-t5": (0, 1, 2, 3, 4), "fr-t15": (0, 1, 2, 3, 4), "fr-t2": (0,), "fr-t13": (0,),
    "fr-t14": (0,), "fr-t16": (0,), "fe-f7": (8,),
}  # fmt: skip


@pytest.mark.parametrize(("name", "where", "expected"), EXPECTED)
def test_cells_have_the_settings_of_the_text(name, where, expected):
    table = settled(cell(name, **where))
    assert {key: lookup(table, key) for key in expected} == expected


@pytest.mark.parametrize("name", ["fr-t5", "fr-t14"])
def test_own_models_that_count_at_the_end_are_measured_once(name):
    tuned = [config for config in configs(name) if config.evaluation.protocol == "ft"]
    assert tuned
    assert all(config.evaluation.every >= config.federation.rounds for config in tuned)


def test_the_best_round_and_the_mean_of_the_last_five_need_every_round():
    for name in GRIDS:
        if name.startswith(("fe-", "fg-")):
            assert {config.evaluation.every for config in configs(name)} == {1}


def test_a_model_that_is_not_tuned_is_the_one_of_the_table_without_tuning():
    """FedDr+ Table 14 without fine-tuning, shards: a global model on the whole test set, as in Table 2."""
    assert cell_name(settled(cell("fr-t14", partition="shards", level="10", method="DotRegression"))) == cell_name(
        settled(cell("fr-t2", partition="shards", method="DotRegression"))
    )


def test_measures_of_own_models():
    """Where a number is read: of FedGELA's tables the best round, of FedDr+ Table 14 the deviation over clients."""
    gapa = {"GA": "gapa general_accuracy", "PA": "gapa personal_accuracy"}
    assert all(each.measures == gapa for each in shipped("fg-t2").cells)
    own = "pers_etf personal_accuracy"
    measures = {lookup(each.config, "method"): dict(each.measures) for each in shipped("fe-t1").cells}
    assert measures.pop("fedproto") == {"personalization": own}
    assert all(each == {"generalization": "last5", "personalization": own} for each in measures.values())
    assert {each.measures["personalization"] for each in shipped("fr-t5").cells} == {"ft personal_accuracy"}
    tuned = cell("fr-t14", partition="dirichlet", level="0.1", method="FedDr+-FT(L_DR)")
    assert tuned.measures == {"personalization": "ft personal_accuracy personal_std"}


def test_every_iteration_of_fine_tuning_is_a_stage():
    """FedETF Figure 6 (b): the accuracy after the features were adapted, and after each of the 20 turns."""
    for config in configs("fe-f6"):
        assert config.evaluation.protocol == "pers_etf"
        assert len(tuning_stages(config.build_method(), "pers_etf")) == 21


@pytest.mark.parametrize(("name", "seeds"), SEEDS.items())
def test_seeds(name, seeds):
    assert {each.seeds for each in shipped(name).cells} == {seeds}


def test_readings_of_a_split_have_runs_of_their_own_and_old_folders_are_found_again():
    """Names as they were while class by class was the only reading."""
    where = ["dataset=CIFAR-10", "level=0.05", "method=FedAvg"]
    names, lines = {}, {}
    for split in ("client-wise", "class-wise"):
        (lines[split],) = select(lines_of(whole("fb-t1")), [*where, f"split={split}"])
        names[split] = cell_name(settled(lines[split].cells[0]))
    assert names["class-wise"] == "cifar10-dirichlet0.05-20of100-mobilenet_v2-fedavg-e5-r200-3d1c43"
    assert names["client-wise"].startswith("cifar10-dirichlet_clients0.05-20of100-")
    assert {line.published.mean for line in lines.values()} == {55.19}
    both = select(lines_of(whole("fb-t1")), [*where, "split=client-wise", "split=class-wise"])
    assert [line.facts["split"] for line in both] == ["client-wise", "class-wise"]
    assert [line.columns["partition"] for line in both] == ["dirichlet", "dirichlet"]
    assert [line.facts["split"] for line in select(lines_of(whole("fb-t1")), where)] == ["client-wise"]
    for name in (name for name in GRIDS if name.startswith("fb-")):
        assert "both readings are possible" in whole(name).remark
        assert {each.variants["split"] for each in whole(name).cells} == {"client-wise", "class-wise"}


RELEASED = [
    ("fr-t3", {"dataset": "CIFAR-10", "partition": "dirichlet", "level": "0.2", "method": "FedETF"}, {
        "dataset.augment": "feddr_plus_released", "partition.seed": 0, "local.steps": 100, "method.count_floor": 0,
        "method.projector_bias": False, "evaluation.protocol": "final", "optimizer.lr": 0.05,
    }),
    ("fr-t3", {"dataset": "CIFAR-100", "partition": "shards", "level": "10", "method": "FedExP"}, {
        "local.steps": None, "local.epochs": 3, "evaluation.protocol": "ft", "method.rule": "released",
        "model.norm_stats": "batch",
    }),
    ("fr-t3", {"dataset": "ImageNet-100", "partition": "dirichlet", "method": "SCAFFOLD"}, {
        "model.norm_stats": "running", "local.steps": 130, "method.freeze_classifier": True,
    }),
    ("fr-t3", {"dataset": "CIFAR-100", "partition": "dirichlet", "level": "0.1", "method": "FedSOL"}, {
        "local.steps": 30, "method.perturbation": "fixed", "dataset.test_split": "matched",
    }),
    ("fr-t2", {"partition": "dirichlet", "method": "FedGELA+KD"}, {"method.head": "projected", "method.kd.beta": 0.5}),
    ("fr-t5", {"partition": "dirichlet", "level": "0.1", "method": "FedGELA-FT"}, {
        "method.head": "projected", "dataset.test_split": "matched_counts", "local.steps": None,
    }),
    ("fr-t5", {"partition": "shards", "level": "10", "method": "FedRep"}, {
        "method.carry_momentum": True, "method.E_b": 1, "dataset.test_split": "proportional",
    }),
    ("fr-t5", {"partition": "shards", "level": "10", "method": "Per-FedAvg"}, {"method.carry_momentum": True}),
    ("fr-f7", {"method": "FedDr+", "local.epochs": "5"}, {"local.steps": 50}),
]  # fmt: skip


def test_the_released_block_has_the_settings_of_the_authors_code():
    for name, columns, expected in RELEASED:
        found = [line for line in lines_of(whole(name)) if columns.items() <= line.facts.items()]
        paper, released = (next(line for line in found if line.facts["block"] == b) for b in ("paper", "released"))
        table = settled(released.cells[0])
        assert {key: lookup(table, key) for key in expected} == expected, (name, columns)
        assert lookup(paper.cells[0].config, "dataset.augment") == "feddr_plus_crop_flip"
        assert lookup(paper.cells[0].config, "partition.seed") is None
        assert paper.published == released.published
        assert cell_name(settled(paper.cells[0])) != cell_name(table)
    names = [name for name in GRIDS if name.startswith("fr-") and name not in ("fr-t11", "fr-t12", "fr-f9")]
    for name in names:
        assert "etri-edgeai/nn-dist-train" in whole(name).remark
        others = [each for each in whole(name).cells if each.unusual]
        assert len(others) * 2 == len(whole(name).cells)
        for each in others:
            assert not check_cell(each)


def test_shards_of_the_released_block_have_a_second_column_with_the_papers_number_beside_it():
    where = ["block=released", "dataset=CIFAR-100", "partition=shards", "level=10", "method=FedAvg"]
    both = select(lines_of(whole("fr-t3")), where)
    assert [(line.metric, line.measure) for line in both] == [
        ("accuracy", "final"),
        ("accuracy (own test sets)", "ft personal_accuracy"),
    ]
    assert {line.published.mean for line in both} == {36.63}
    assert both[0].cells == both[1].cells
    own = "ft personal_accuracy"
    for name in ("fr-t2", "fr-t3", "fr-t4", "fr-t13", "fr-t14", "fr-t16", "fr-t17", *(f"fr-f{n}" for n in range(2, 7))):
        lines = [line for line in lines_of(whole(name)) if line.columns["partition"] == "shards"]
        for line in (line for line in lines if line.facts["block"] == "released"):
            (cell,) = line.cells
            twice = name[:4] == "fr-t" and name != "fr-t4" and "accuracy" in cell.measures
            assert cell.measures.get("accuracy (own test sets)") == (own if twice else None), (name, line.facts)
            protocol = lookup(cell.config, "evaluation.protocol")
            assert protocol == ("final" if name.startswith("fr-f") else "ft"), (name, line.facts)


def test_a_derived_preset_has_the_runs_of_its_source():
    def names(*presets):
        return {cell_name(settled(each)) for name in presets for each in shipped(name).cells}

    source = names("fb-t1")
    assert len(source) == 81
    for derived in ("fb-t2", *(f"fb-t{n}" for n in range(12, 18)), "fb-f5", "fb-f9", "fb-f10"):
        assert names(derived) <= source, derived
    assert names("fd-f8") <= names("fd-t1", "fd-t2")
    assert names("fe-f4", "fe-f8") == names("fe-t1")
    assert names("fr-t4") <= names("fr-t3")
    everywhere = {cell_name(settled(each)) for each in whole("fr-t3").cells}
    assert {cell_name(settled(each)) for each in whole("fr-t4").cells} <= everywhere
    assert names("fb-f4") == names("fb-f3")
    assert len(names("fb-t3") & source) == 12


@for_every(GRIDS)
def test_gradients_are_clipped_as_by_the_methods_authors(name):
    """At 20 for FedGELA and its parts and at 10 for FedRCL; FedDr+ runs FedGELA on short class vectors without."""
    clips = {"fedgela": 20.0, "fedge": 20.0, "fedla": 20.0, "fedrcl": 10.0}
    for config in configs(name):
        base = config.method.base.name
        expected = None if name.startswith("fr-") else clips.get(base)
        assert (config.build_method().clip, config.optimizer.clip) == (expected, "none"), config.method.name
