from __future__ import annotations

import pytest

from problem import KINDS


@pytest.fixture(params=KINDS)
def make(request):
    """Builds an optimizer of each kind, in turn, for given parameters."""
    return KINDS[request.param]
