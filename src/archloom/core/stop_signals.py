"""Signals that ask a run to save and stop: Ctrl-C, and what terminals and batch systems send before they kill."""

from __future__ import annotations

import signal

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGXCPU")
STOP_SIGNALS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))  # Windows lacks some
