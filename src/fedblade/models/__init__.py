"""Backbones: modules that turn inputs into features [batch, dim]. The method adds the head."""

from fedblade.models._adapters import with_head
from fedblade.models._backbone import USER_MODULE_REVISION, Adapted, Backbone, Output, as_backbone, user_module
from fedblade.models._redraw import redraw

__all__ = [
    "USER_MODULE_REVISION",
    "Adapted",
    "Backbone",
    "Output",
    "as_backbone",
    "redraw",
    "user_module",
    "with_head",
]
