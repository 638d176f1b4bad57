"""Knobs that weigh a term: negative ones and those that are not finite are refused by name."""

import math

import pytest

from fedblade.core.errors import Misconfigured
from fedblade.core.method import Method
from fedblade.core.registry import methods, regularisers

KNOBS = [
    ("fedprox", "mu"),
    ("moon", "mu"),
    ("fedntd", "beta_ntd"),
    ("fedlc", "tau_lc"),
    ("fedrs", "alpha_rs"),
    ("fedproto", "lambda_proto"),
    ("fedfm", "lambda_fm"),
    ("feduv", "lambda_v"),
    ("feduv", "mu_u"),
    ("fedrcl", "beta_rcl"),
    ("ditto", "lambda_ditto"),
    ("fedgen", "alpha_0"),
    ("fedgen", "beta_0"),
    ("fedgen", "alpha_s"),
    ("fedgen", "eta_s"),
    ("fedgen", "beta_s"),
    ("feddecorr", "lambda_decorr"),
    ("decov", "lambda_decorr"),
    ("stdecov", "lambda_decorr"),
    ("lsingular", "lambda_decorr"),
]
ADDED = ["feddecorr", "lddecorr", "decov", "stdecov", "lsingular"]
NONSENSE = [-1.0, -1e-9, math.nan, math.inf]


@pytest.mark.parametrize(("method", "knob"), KNOBS)
def test_a_weight_that_is_none_is_refused_by_the_name_of_its_knob(method, knob):
    for given in NONSENSE:
        with pytest.raises(Misconfigured, match=rf"{knob}={given}: expected a number from 0 on"):
            methods.get(method).make(**{knob: given})


@pytest.mark.parametrize("name", ADDED)
def test_a_regulariser_refuses_it_too(name):
    for given in NONSENSE:
        with pytest.raises(Misconfigured, match=rf"lambda_decorr={given}: expected a number from 0 on"):
            regularisers.get(name).make(lambda_decorr=given)


@pytest.mark.parametrize("knob", ["lambda_decorr", "gamma_pba", "gamma_bal"])
def test_fedblade_refuses_it_by_the_name_of_the_term(knob):
    with pytest.raises(Misconfigured, match=r"(decorr\.weight|pa\.weight|gamma)=-1\.0: expected a number from 0 on"):
        methods.get("fedblade").make(**{knob: -1.0})


@pytest.mark.parametrize(("method", "knob"), KNOBS)
def test_zero_and_more_are_allowed(method, knob):
    for given in (0.0, 2.0):
        assert isinstance(methods.get(method).make(**{knob: given}), Method)
