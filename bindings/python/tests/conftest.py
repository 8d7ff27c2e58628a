"""What the tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import headwater
import numpy as np
import numpy.typing as npt
import pytest

#: An instant in 2026.
START = 1_767_225_600_000_000_000
SECOND = 1_000_000_000


def seconds(count: int, first: int = 0) -> npt.NDArray[np.int64]:
    """So many instants, a second apart."""
    return START + np.arange(first, first + count, dtype=np.int64) * SECOND


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db"


@pytest.fixture
def db(path: Path) -> Iterator[headwater.Database]:
    """An open database; without syncs, which no test here is about."""
    with headwater.open(path, durability="written") as db:
        yield db
