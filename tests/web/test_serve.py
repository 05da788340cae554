"""`backtalk serve` as a command: it says where it is, ends at Ctrl-C, and refuses what it can not do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from backtalk.cli import run
from tests.web.worlds import finish

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_it_shows_a_folder_until_it_is_stopped(tmp_path: Path, end: signal.Signals) -> None:
    finish(tmp_path / "runs" / "one")
    spare = tmp_path / "spare"
    spare.mkdir()
    path = os.pathsep.join([str(ROOT / "src"), *sys.path])
    process = subprocess.Popen(
        [sys.executable, "-m", "backtalk", "serve", "runs", "--port", "0"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(spare)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell may have started the tests with Ctrl-C switched off, and a child inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = next(word for word in line.split() if word.startswith("http://127.0.0.1:"))
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        assert b">one<" in browser.open(address, timeout=20).read()
        process.send_signal(end)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (0, "stopped\n", "")
    assert list(spare.iterdir()) == []  # nothing is left behind


def test_what_it_can_not_do_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments, said in (
            (["file"], "file is a file; name a folder"),
            (["--model", "chitchatt"], "did you mean 'chitchat'"),
            (["--port", port], "choose another --port"),
            (["--port", "70000"], "--port should not be 70000"),
            (["--model", "py:nothing:here", "--port", "0"], "nothing"),
        ):
            assert run(["serve", *arguments]) == 2, arguments
            err = capsys.readouterr().err
            assert said in err
            assert err.count("\n") == 1
