"""Settings shared by every room's tests."""

from __future__ import annotations

import os

from hypothesis import settings

# `pytest --hypothesis-profile` is read before this file is, so the environment chooses.
settings.register_profile("default-200", max_examples=200, deadline=None)
settings.register_profile("nightly", max_examples=10_000, deadline=None)
settings.load_profile(
    "nightly" if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else "default-200"
)
