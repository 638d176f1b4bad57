"""Backbones: modules that turn inputs into features [batch, dim]. The method adds the head."""

from fedblade.models._backbone import OWN_MODEL_REVISION, Adapted, Backbone, Output, as_backbone, own_module
from fedblade.models._redraw import redraw

__all__ = ["OWN_MODEL_REVISION", "Adapted", "Backbone", "Output", "as_backbone", "own_module", "redraw"]
