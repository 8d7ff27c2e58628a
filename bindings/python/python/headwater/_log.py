"""Hands what the engine tells in the background to :mod:`logging`, as the logger ``headwater``."""

from __future__ import annotations

import atexit
import logging
import os
import threading

from . import _native

_logger = logging.getLogger("headwater")
_lock = threading.Lock()
_started_by: int | None = None


def _drain(seconds: float) -> bool:
    """Logs one message, waiting for it so long. False when there was none."""
    event = _native.next_event(seconds)
    if event is not None:
        _logger.log(*event)
    return event is not None


def _forward() -> None:
    while True:
        _drain(60.0)


def _finish() -> None:
    while _drain(0.0):
        pass


def start() -> None:
    """Starts the thread that does it, once in a process."""
    global _started_by
    with _lock:
        if _started_by == os.getpid():
            return
        if _started_by is None:
            atexit.register(_finish)
        _started_by = os.getpid()
        # Whatever is told from here on is heard, even before the thread runs.
        _drain(0.0)
        threading.Thread(target=_forward, name="headwater-log", daemon=True).start()
