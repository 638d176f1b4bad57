"""The sample of methods that stands for all: no kind of head, payload, state or exchange is missing."""

from fedblade.core.registry import methods
from support.sample import SAMPLE


def kinds(name):
    """What engines, folders and the command line see of a method."""
    method = methods.get(name).make()
    heads = {type(method.head).__name__}
    sums = {f"sum {each.name}" for each in method.sums}
    states = {f"state {each}" for each in method.client_state}
    exchanges = {f"exchange {each.when}" for each in method.exchanges}
    return heads | sums | states | exchanges | {f"own models: {method.has_own_models}"}


def test_every_kind_of_method_is_in_the_sample():
    chosen = set().union(*(kinds(name) for name in SAMPLE if "+" not in name))
    missing = {name: kinds(name) - chosen for name in methods.names() if kinds(name) - chosen}
    assert missing == {}
