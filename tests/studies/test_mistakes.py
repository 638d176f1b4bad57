"""What a user gets wrong is refused, and never reported as done or as pending."""

import pytest

from fedblade.core.errors import Misconfigured
from fedblade.presets.catalogue import load_grid, read_config
from fedblade.presets.published import lines_of, select
from fedblade.runs import execute, load_config
from fedblade.studies import plan_reproduction, plan_sweep
from fedblade.studies._sweep import Axis

GRID = """
[grid]
method = ["{method}"]
[dataset]
name = "digits"
[partition]
name = "dirichlet"
[federation]
rounds = 1
[model]
name = "mlp"
"""


@pytest.fixture
def mine(tmp_path):
    """A grid file of the user's, with a method and more lines."""

    def write(method="fedavg", more=""):
        path = tmp_path / "mine.toml"
        path.write_text(GRID.format(method=method) + more)
        return path

    return write


@pytest.mark.parametrize(
    ("method", "more", "message"),
    [
        ("fedavgg", "", "Did you mean 'fedavg'?"),
        ("fedavgg-ft", "", "Did you mean 'fedavg'?"),
        ("fedavg+feddecor", "", "Did you mean 'feddecorr'?"),
        ("fedavg", "[optimizer]\nlrr = 0.1", "lrr"),
        ("nosuch", "", "unknown method 'nosuch'"),
        ("fedavg", "[optimizer]\nlrr = 0.1\n[evaluation]\nmetrics = ['nosuch']", "lrr"),
        ("fedavg", "[evaluation]\nmetrics = ['nosuch']\nprotocol = 'lats10'", "lats10"),
        ("fedavg", "[evaluation]\nmetrics = ['nc1', 'nosuch']", "unknown metric 'nosuch'"),
        ("fedavg", "[[cases]]\nset = {evaluation.metrics = ['nosuch']}", "unknown metric 'nosuch'"),
        ("fedgela", "[methods.fedgela]\nE_W = -1.0", "E_W=-1.0: expected a number above 0"),
        ("fedavg", "[evaluation]\nmetrics = ['nc11']", "unknown metric 'nc11'. Did you mean 'nc1'?"),
        (
            "fedavg",
            "[evaluation]\nmetrics = ['nc11']\n[measures]\nmilliseconds = 'bench loss_ms_per_iter'",
            "unknown metric 'nc11'",
        ),
        ("fedavg", "[measures]\naccuracy = 'finale'", "unknown measure 'finale'. Did you mean 'final'?"),
    ],
)
def test_a_mistake_in_a_grid_is_not_pending(mine, command, tmp_path, method, more, message):
    with pytest.raises(Misconfigured) as error:
        command("reproduce", mine(method, more), "--dry-run", "--out", tmp_path / "out")
    assert message in str(error.value)


@pytest.mark.parametrize(
    "more",
    [
        "[measures]\nmilliseconds = 'bench loss_ms_per_iter'",
        "[measures]\nforward = 'bench forward_ms'\nbackward = 'bench backward_ms'",
        "[[cases]]\nwhere = {method = 'fedavg'}\nmeasures = {milliseconds = 'bench loss_ms_per_iter'}",
    ],
)
def test_what_only_a_benchmark_measures_is_pending(mine, more):
    plan = plan_reproduction(mine(more=more))
    (cell,) = plan.pending
    assert (cell.pending, cell.runs, plan.runs) == (("`fedblade bench losses`",), (), [])


def test_a_metric_that_no_run_gives_does_not_keep_the_others(mine, command, tmp_path):
    path = mine(more="[measures]\naccuracy = 'final'\nmilliseconds = 'bench loss_ms_per_iter'")
    (cell,) = plan_reproduction(path).cells
    assert (cell.pending, len(cell.runs)) == ((), 1)
    out = command("reproduce", path, "--dry-run", "--out", tmp_path / "out").stdout
    assert "milliseconds: measured by `fedblade bench losses` and by no run\n" in out
    assert "pending" not in out


@pytest.mark.parametrize("method", ["fedavg-ft", "fedavg-ft+feddecorr", "fedntd+prox"])
def test_names_that_are_put_together_are_ready(mine, method):
    (cell,) = plan_reproduction(mine(method)).cells
    assert (cell.pending, len(cell.runs)) == ((), 1)


def test_a_method_in_a_file_of_the_users_is_ready(mine, tmp_path):
    own = tmp_path / "own.py"
    own.write_text("from fedblade.methods.fedavg import fedavg as own\n")
    (cell,) = plan_reproduction(mine(f"{own}:own")).cells
    assert (cell.pending, len(cell.runs)) == ((), 1)
    with pytest.raises(Misconfigured, match=r"absent\.py"):
        _ = plan_reproduction(mine(f"{tmp_path}/absent.py:own")).cells


@pytest.mark.parametrize("given", ["seed", "seeds"])
def test_seeds_of_a_preset_are_no_setting(tiny, command, tmp_path, given):
    with pytest.raises(Misconfigured, match="Use --seeds"):
        command("reproduce", tiny("tn-t1"), "--set", f"{given}=5", "--dry-run", "--out", tmp_path)


@pytest.mark.parametrize(
    ("preset", "given"),
    [
        ("tn-t1", "method"),
        ("tn-t1", "method.name"),
        ("tn-t1", "dataset"),
        ("tn-t1", "alpha"),
        ("tn-t1", "partition.alpha"),
        ("tn-t1", "num_clients"),
        ("tn-f1", "epochs"),
        ("tn-f1", "local.epochs"),
    ],
)
def test_what_names_a_cell_is_chosen_and_not_set(tiny, preset, given):
    with pytest.raises(Misconfigured, match="Use --where"):
        plan_reproduction(tiny(preset), overrides={given: 1})


@pytest.mark.parametrize(("preset", "given"), [("fb-t3", "gamma_pba"), ("fb-t4", "use_fa"), ("fb-t4", "method.pba")])
def test_knobs_of_variants_are_chosen_and_not_set(preset, given):
    with pytest.raises(Misconfigured, match="Use --where"):
        plan_reproduction(preset, overrides={given: 0.5})


def test_other_settings_can_still_be_changed(tiny):
    plan = plan_reproduction(tiny("tn-t1"), where=["method=FedAvg"], overrides={"epochs": 2, "lr": 0.2})
    assert {(run.config.local.epochs, run.config.optimizer.lr) for run in plan.runs} == {(2, 0.2)}


@pytest.mark.parametrize("key", ["seed", "seeds", "fedavg:seed"])
def test_seeds_are_no_axis_of_a_sweep(command, tmp_path, key):
    with pytest.raises(Misconfigured, match="Use --seeds"):
        command("sweep", "--grid", f"{key}=5,6", "--out", tmp_path)


def test_a_seed_that_is_set_is_the_seed_of_a_sweep(tiny, tmp_path):
    (trial,) = plan_sweep(tiny("tn-one"), [Axis("lr", (0.1,))], tmp_path, overrides={"seed": 5})
    assert [run.config.general.seed for run in trial.runs] == [5]


def test_a_method_is_not_its_ablations():
    def labels(*where):
        return {line.columns["method"] for line in select(lines_of(load_grid("fg-t6")), where)}

    assert labels("method=FedGELA") == labels("method=fedgela") == {"FedGELA"}
    assert labels("method=FedGELA Q=exp(x)", "method=FedGELA") == {"FedGELA Q=exp(x)", "FedGELA"}
    with pytest.raises(Misconfigured, match="no cell has method = 'fedavg'"):
        labels("method=fedavg")


def test_an_example_can_be_pasted_into_a_shell():
    with pytest.raises(Misconfigured) as error:
        read_config("fg-t6", ["level=0.5"])
    assert "for example --where 'method=FedGELA Q=exp(x)';" in str(error.value)


def test_a_seed_is_named_once(tiny, command, tmp_path):
    with pytest.raises(Misconfigured, match="names a seed twice"):
        command("reproduce", tiny("tn-t1"), "--seeds", "1,2,1", "--dry-run", "--out", tmp_path)


def test_a_single_run_is_not_reproduced():
    with pytest.raises(Misconfigured, match="Use `fedblade run quickstart`"):
        plan_reproduction("quickstart")


def test_a_run_of_a_cell_with_an_unknown_metric_is_refused(mine, tmp_path):
    config, _ = load_config(mine(more="[evaluation]\nmetrics = ['nc1', 'nosuch']"), {})
    with pytest.raises(Misconfigured, match="unknown metric 'nosuch'"):
        execute(config, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
