"""Engines whose clients take turns in slots, which engines do by themselves on a GPU only."""

from dataclasses import replace


def use_slots(engine, slots):
    """Let a stacked engine train with this `SlotTrainer`; None trains without."""
    engine._clients = replace(engine._clients, slots=slots)


def slots_of(engine):
    """The trainer of an engine whose clients take turns; None if they do not."""
    return engine._clients.slots
