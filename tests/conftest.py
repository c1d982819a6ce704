from __future__ import annotations

import pytest
import torch
from hypothesis import settings

# One thread: the networks of the tests are small, and results must not depend on the number of cores.
torch.set_num_threads(1)
settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
