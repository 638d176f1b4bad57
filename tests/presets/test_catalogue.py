"""Every preset of the papers is there, resolves, and names parts that exist."""

import pytest

from fedblade.config.settings import lookup, merge
from fedblade.core.method import Method
from fedblade.core.registry import methods, metrics, partitions, regularisers
from fedblade.data._recipes import RECIPES
from fedblade.methods import compose
from fedblade.presets.catalogue import preset_names, preset_summary, read_config
from fedblade.presets.published import select
from fedblade.runs import tuning_stages
from fedblade.studies._measures import check_cell
from support.all_presets import GRIDS, configs, lines, settled, shipped
from support.for_every import for_every

FB = [
    *(f"fb-t{n}" for n in (1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17)),
    *(f"fb-f{n}" for n in range(2, 11)),
]
FD = [*(f"fd-t{n}" for n in range(1, 9)), *(f"fd-f{n}" for n in range(2, 10))]
FG = ["fg-t2", "fg-t3", "fg-t4", "fg-t5", "fg-t6", "fg-f2", "fg-f3", "fg-f4", "fg-f5", "fg-app"]
FE = ["fe-t1", "fe-t2", "fe-t3", "fe-t4", "fe-t5", "fe-f1", "fe-f4", "fe-f5", "fe-f6", "fe-f7", "fe-f8"]
FR = [*(f"fr-t{n}" for n in (2, 3, 4, 5, 11, 12, 13, 14, 15, 16, 17)), *(f"fr-f{n}" for n in (2, 3, 4, 5, 6, 7, 9))]

# Names that users rely on: none of them may go.
METHODS = set(
    "fedavg fedprox fedavgm scaffold fednova feddyn fedexp fedsol moon fedntd fedlc fedrs fedgen fedrcl fedproto fedfm "  # noqa: SIM905
    "fedbn feddecorr decov stdecov lsingular fedetf fedge fedgela fedla fedbabu spherefed dotreg feddr_plus fedblade "
    "fedper fedrep perfedavg ditto fedrod fednh ccvr feduv local_ce local_ce_etf local_dr".split()
)
ADDED = {"feddecorr", "lddecorr", "decov", "stdecov", "lsingular", "prox", "kd", "ntd", "ld", "moon", "fd"}
MODELS = {
    "mobilenet_v2", "mobilenet_v1", "resnet18", "resnet18_imagenet", "resnet20", "resnet32", "resnet56", "wrn56_4",
    "densenet121", "efficientnet_b0_small", "efficientnet_b0", "vgg11", "alexnet_bn", "char_lstm", "cnn_femnist",
}  # fmt: skip
DATASETS = {
    "cifar10", "cifar100", "tiny_imagenet", "svhn", "imagenet100", "office_caltech10", "domainnet", "fed_isic2019",
    "femnist", "shakespeare",
}  # fmt: skip

CELLS = {
    "fb-t1": 3 * 3 * 9, "fb-t2": 2 * 4, "fb-t3": 2 * 3 * 4, "fb-t4": 3 * 4, "fb-t5": 3 * 2, "fb-t7": 3 * 3 * 9,
    "fb-t8": 3 * 3 * 9, "fb-t9": 3 * 3 * 3, "fb-t10": 3 * 2 * 4, "fb-t11": 3 * 2, "fb-t12": 9, "fb-f2": 2 * 4,
    "fb-f3": 2 * 3 * 4, "fb-f6": 2 * 3 * 4, "fb-f7": 2 * 3 * 4, "fb-f8": 2 * 3 * 4, "fb-f9": 2 * 3 * 9,
    "fd-t1": 3 * 4 * 10, "fd-t2": 3 * 3 * 10, "fd-t3": 2 * 10, "fd-t4": 2 * 2 * 5 * 2, "fd-t5": 2 * 2 * 4 * 2,
    "fd-t6": 3 * 4, "fd-t7": 3 * 4, "fd-t8": 2 * 3 * 2, "fd-f2": 4, "fd-f5": 2 * 2, "fd-f8": 6 * 2, "fd-f9": 5 * 2 * 2,
    "fg-t2": 3 * 6 * 11, "fg-t3": 11, "fg-t4": (3 * 6 + 1) * 4, "fg-t5": 2 * 2 * 2, "fg-t6": 3 * 3,
    "fe-t1": 3 * 2 * 10, "fe-t2": 2 * 2 * 5, "fe-t3": 7 * 2, "fe-t4": 2 * 5, "fe-t5": 4 * 5, "fe-f5": 2,
    "fr-t2": 2 * 6 * 7, "fr-t3": (8 + 6 + 2) * 12, "fr-t4": 12, "fr-t5": 6 * 13, "fr-t13": 2 * 6 * 7, "fr-t14": 6 * 6,
    "fr-t15": 4, "fr-t16": 2 * 3, "fr-t17": 4 * 3, "fr-f2": 3,
}  # fmt: skip


def test_every_id_of_the_papers_is_shipped():
    assert sorted(GRIDS) == sorted([*FB, *FD, *FG, *FE, *FR])
    assert set(preset_names()) == {"quickstart", *GRIDS}


@pytest.mark.parametrize(("alias", "target"), [("fr-t11", "fr-t2"), ("fr-t12", "fr-t2"), ("fr-f9", "fr-t16")])
def test_other_names_lead_to_the_same_preset(alias, target):
    assert shipped(alias) == shipped(target)
    assert preset_summary(alias) == f"the same as {target}"


@for_every([name for name in GRIDS if name not in ("fr-t11", "fr-t12", "fr-f9")])
def test_a_summary_is_one_line_of_its_own(name):
    summary = preset_summary(name)
    assert 20 < len(summary) < 120
    assert "\n" not in summary
    assert [other for other in GRIDS if preset_summary(other) == summary] == [name]


def test_the_quickstart_is_still_a_single_run():
    assert read_config(None)["dataset"] == {"name": "digits"}
    assert preset_summary("quickstart").startswith("Digits on two cores")


@for_every(CELLS.items())
def test_grids_have_the_size_of_the_papers_tables(name, count):
    assert len(shipped(name).cells) == count


def test_the_names_of_the_contract_are_registered():
    assert set(methods.names()) >= METHODS
    assert set(regularisers.names()) >= ADDED


@for_every(GRIDS)
def test_parts_are_those_of_the_contract(name):
    for cell in shipped(name).cells:
        composition = compose(str(lookup(cell.config, "method")))
        assert composition.base.name in METHODS
        assert {entry.name for entry in composition.added} <= ADDED
        assert lookup(cell.config, "model") in MODELS
        assert lookup(cell.config, "dataset") in DATASETS
        assert lookup(cell.config, "partition") in partitions.names()
        assert set(lookup(cell.config, "evaluation.metrics") or ()) <= set(metrics.names())


@pytest.mark.thorough
@for_every(GRIDS)
def test_every_cell_builds_its_method_with_the_knobs_of_the_preset(name):
    for cell, config in zip(shipped(name).cells, configs(name), strict=True):
        known = config.table()["method"]
        assert merge(known, settled(cell)["method"]) == known
        assert isinstance(config.build_method(), Method)


@for_every(GRIDS)
def test_every_augmentation_is_defined_for_its_data_set(name):
    for cell in shipped(name).cells:
        recipe, dataset = lookup(cell.config, "dataset.augment"), lookup(cell.config, "dataset")
        assert recipe == "none" or dataset in RECIPES[recipe]


@pytest.mark.thorough
@for_every(GRIDS)
def test_only_what_a_benchmark_measures_is_pending(name):
    commands = ["`fedblade bench losses`"] if name == "fb-t10" else []
    for cell in shipped(name).cells:
        benchmarked = check_cell(cell)
        assert list(benchmarked.values()) == commands
        assert not commands or benchmarked.keys() == cell.measures.keys()


@for_every(GRIDS)
def test_own_models_are_measured_where_a_table_prints_them(name):
    for cell, config in zip(shipped(name).cells, configs(name), strict=True):
        protocols = {how.partition(" ")[0] for how in cell.measures.values() if "personal_accuracy" in how}
        if protocols:
            assert protocols == {config.evaluation.protocol}
            assert tuning_stages(config.build_method(), config.evaluation.protocol) is not None


@for_every(GRIDS)
def test_a_label_chooses_exactly_its_own_lines(name):
    for label in {line.columns["method"] for line in lines(name)}:
        expected = [line for line in lines(name) if line.columns["method"] == label]
        assert select(lines(name), [f"method={label}"]) == expected


def test_cells_whose_parts_exist_are_ready():
    for name in ("fb-t4", "fe-t1", "fg-t5", "fr-t5", "fr-t14"):
        assert not any(check_cell(cell) for cell in shipped(name).cells)


# fb-t10 times the terms of one loss instead of training; the three sweeps of fr-f7 share the default values.
@for_every([name for name in GRIDS if name not in ("fb-t10", "fr-f7")])
def test_every_cell_of_a_grid_is_different(name):
    tables = [repr(settled(cell)) for cell in shipped(name).cells]
    assert len(set(tables)) == len(tables)


@for_every(GRIDS)
def test_lines_differ_in_something_a_user_can_choose_by(name):
    facts = [tuple(sorted(line.facts.items())) for line in lines(name)]
    assert len(set(facts)) == len(facts)
