"""A plugin of pytest that ends a test of Energon's suite that takes too long, and lets torchvision be imported."""

from __future__ import annotations

import importlib.util
import os
import signal

import pytest
import torchvision_operators


def pytest_configure(config):
    if importlib.util.find_spec("torchvision") is not None:
        torchvision_operators.declare()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    def interrupt(*_):
        raise TimeoutError("this test takes too long")

    signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(int(os.environ.get("TEST_LIMIT_SECONDS", "120")))
    try:
        yield
    finally:
        signal.alarm(0)
