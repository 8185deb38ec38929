"""One headless Chromium for all tests of this room."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

CHROMIUM = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    ),
    None,
)
QUIET = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
)


@pytest.fixture(scope="session")
def chromium() -> Iterator[object]:
    """Start the Chromium of this machine; Playwright allows one driver a process."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: the browser's view of the book is not checked")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser
        browser.close()
