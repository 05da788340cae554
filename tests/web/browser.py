"""A real browser for the tests: headless Chromium, which is watched. A request to another machine, a dialog,
an error on the console or a breach of the policy fails the test that caused it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

NAMES = ("chromium", "chromium-browser", "google-chrome")
AXE = Path(__file__).parents[2] / ".browser" / "node_modules" / "axe-core" / "axe.min.js"
"""Where `make browser` puts it."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Headless Chromium: the system's, or the one that `make browser` installs."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; make browser")
    own = next((path for name in NAMES if (path := shutil.which(name))), None)
    # Chromium's own sandbox does not work for root, as in a container.
    arguments = ["--disable-background-networking", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_api.sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=own, args=arguments)
        except sync_api.Error:
            pytest.skip("there is no Chromium; make browser installs one")
        try:
            yield browser
        finally:
            browser.close()


class Watch:
    """What a page did that it must not do."""

    def __init__(self, context: BrowserContext, allowed: str) -> None:
        self.faults: list[str] = []
        self._allowed = allowed
        context.on("request", lambda request: self._check(request.url))
        context.on("console", lambda message: self._note(message.type, message.text))
        context.on("dialog", lambda dialog: self._dialog(dialog))
        context.on("weberror", lambda error: self.faults.append(f"error: {error.error}"))
        # A breach is reported to the page before any script of it runs.
        context.add_init_script(
            "document.addEventListener('securitypolicyviolation', "
            "(e) => console.error('policy breached: ' + e.violatedDirective + ' ' + e.blockedURI))"
        )

    def _check(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"data", "blob"} and f"{parts.scheme}://{parts.netloc}" != self._allowed:
            self.faults.append(f"request: {url[:200]}")

    def _note(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.faults.append(f"console: {text[:300]}")

    def _dialog(self, dialog: Any) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def expect(self, part: str) -> None:
        """Takes a fault that was meant to happen off the list."""
        assert any(part in fault for fault in self.faults), self.faults
        self.faults = [fault for fault in self.faults if part not in fault]

    def check(self, page: Page) -> None:
        """Nothing may have gone wrong."""
        assert page.evaluate("window.pwned") is None
        assert self.faults == []


def say(page: Page, label: str, text: str) -> None:
    """Fills a field and sends it, once the page's script is there, which goes to the field by itself."""
    page.locator("input:focus").wait_for()
    page.get_by_label(label).fill(text)
    page.keyboard.press("Enter")


@contextmanager
def watched(browser: Browser, address: str, **settings: Any) -> Iterator[tuple[Page, Watch]]:
    """A page in a context of its own, open at the address; at the end nothing may have gone wrong."""
    parts = urlsplit(address)
    context = browser.new_context(**settings)
    try:
        watch = Watch(context, f"{parts.scheme}://{parts.netloc}")
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.goto(address)
        yield page, watch
        watch.check(page)
    finally:
        context.close()
