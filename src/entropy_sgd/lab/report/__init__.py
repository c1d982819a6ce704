"""Reports: from the folders of runs to one page and its figures."""

from __future__ import annotations

from entropy_sgd.lab.report.page import write

__all__ = ["write"]
