"""`backtalk serve`: the folder, the chat's model and the port put together; runs until Ctrl-C."""

from __future__ import annotations

import signal
import webbrowser
from pathlib import Path

from backtalk.audit.consent import Consent, agree
from backtalk.errors import InputError
from backtalk.protocols import TextModel
from backtalk.registry import find_model, load_model
from backtalk.specs.model import ModelOptions
from backtalk.terminal import printable, say
from backtalk.web.app import App
from backtalk.web.server import AppServer
from backtalk.web.shelf import Shelf
from backtalk.web.talk import Talker


def serve(
    folder: Path,
    ratings: Path,
    model: str,
    default_model: str,
    port: int,
    open_page: bool,
    device: str,
    consent: Consent,
    options: ModelOptions,
) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; name a folder that holds runs")
    name = model or default_model
    find_model(name)

    def load() -> TextModel:
        loaded = load_model(name, device, options, consent.trusted)
        agree(loaded, "a request for each thing that is said on the chat page", consent)
        return loaded

    talker = Talker(printable(name), load)
    if model:  # what was asked for is checked, and agreed to, here and not in a browser
        talker.ready()
    try:
        server = AppServer(App(Shelf(folder, ratings), talker), port)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"can't listen on port {port} ({reason}); choose another --port") from None
    with server:
        say(f"Showing {folder} at {server.address} until Ctrl-C.")
        if open_page:
            webbrowser.open(server.address)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # cleans up as Ctrl-C does
        try:
            server.serve_forever(poll_interval=0.1)
        except KeyboardInterrupt:
            say("stopped")
