"""Fixtures of the tests with several processes."""

import pytest
from launcher_process import Launcher


@pytest.fixture
def launch(tmp_path):
    """Starts one launcher, and ends it with the test."""
    started = []

    def start(script, *options, **keywords):
        started.append(Launcher(tmp_path, script, *options, **keywords))
        return started[-1]

    yield start
    for launcher in started:
        launcher.__exit__()
