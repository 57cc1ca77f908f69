"""A model whose matrices and cache rows have the formats that a policy gives them.

Everything that counts bytes or chooses an arithmetic asks the model, so it follows from here.
"""

from __future__ import annotations

from dataclasses import replace

from aisim_v41.model.description import Model
from aisim_v41.model.precision import RoleFormats


def reformatted(model: Model, formats: RoleFormats) -> Model:
    """The model with these formats and no others; itself where it has them already."""
    if model.formats.roles is formats or model.formats.roles == formats:
        return model
    made = replace(model, formats=replace(model.formats, roles=formats))
    # The config is still the one that was read; formats are the policy's, and an identity has both.
    object.__setattr__(made, "config_sha256", model.config_sha256)
    return made
