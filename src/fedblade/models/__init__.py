"""Backbones: modules that turn inputs into features [batch, dim] and leave heads to the method."""

from fedblade.models._backbone import OWN_MODEL_REVISION, Adapted, Backbone, Output, as_backbone, own_module
from fedblade.models._redraw import redraw

__all__ = ["OWN_MODEL_REVISION", "Adapted", "Backbone", "Output", "as_backbone", "own_module", "redraw"]
