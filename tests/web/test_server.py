"""Who is let in, and what is said to those who are not."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from backtalk.web.run_list import key_of
from backtalk.web.server import AppServer
from tests.web.worlds import COMPARED, HARDENED, Client, finish, harden, home, make_ratings, served


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppServer]:
    root = tmp_path_factory.mktemp("runs")
    finish(root / "one")
    make_ratings(root / "pairs")
    (root.parent / "secret.txt").write_text("not to be read")
    with served(root) as server:
        yield server


@pytest.fixture
def client(server: AppServer) -> Client:
    return Client(server).enter()


def test_nobody_is_let_in_without_the_token(server: AppServer) -> None:
    stranger = Client(server)
    for path in ("/", "/chat", "/api/runs", "/static", "/run/x", "/?token=", "/?token=wrong"):
        status, headers, body = stranger.ask("GET", path)
        assert status == 401
        assert "Set-Cookie" not in headers
        assert b"token" in body
    stranger.cookie = f"backtalk-{server.server_port}=guess"
    assert stranger.ask("GET", "/")[0] == 401


def test_the_token_becomes_a_cookie_and_leaves_the_address(server: AppServer) -> None:
    status, headers, _ = Client(server).ask("GET", f"/chat?a=1&token={server.access.token}")
    assert (status, headers["Location"]) == (303, f"{home(server)}/chat?a=1")
    assert "HttpOnly" in headers["Set-Cookie"]
    assert "SameSite=Lax" in headers["Set-Cookie"]
    assert server.access.token not in headers["Set-Cookie"]


@pytest.mark.parametrize("path", ["//example.invalid/", "/\\example.invalid/", "///example.invalid"])
def test_the_token_sends_nobody_to_another_machine(server: AppServer, path: str) -> None:
    status, headers, _ = Client(server).ask("GET", f"{path}?token={server.access.token}")
    assert status == 303
    assert not headers["Location"].startswith(("//", "/\\"))
    assert headers["Location"].startswith("/")


def test_cookies_of_other_ports_do_no_harm(client: Client) -> None:
    client.cookie = f'theirs="{{bad; json[]}}; {client.cookie}; other=1'
    assert client.ask("GET", "/")[0] == 200


@pytest.mark.parametrize(
    "changes",
    [
        {"Host": "example.invalid"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1.example.invalid:80"},
        {"Host": None},
        {"Origin": "http://example.invalid"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ],
)
def test_other_pages_are_refused_even_with_the_cookie(client: Client, changes: dict[str, str | None]) -> None:
    for path in ("/", "/api/runs"):
        assert client.ask("GET", path, **changes)[0] in {400, 403}
    assert client.ask("POST", "/api/chat", {"turns": []}, **changes)[0] in {400, 403}


def test_a_link_from_elsewhere_may_open_a_page(client: Client) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert client.ask("GET", "/", **headers)[0] == 200


def test_a_post_says_where_it_comes_from_and_is_json(client: Client) -> None:
    turns = {"turns": [{"role": "user", "text": "hello"}]}
    assert client.ask("POST", "/api/chat", turns)[0] == 200
    assert client.ask("POST", "/api/chat", turns, Origin=None)[0] == 403
    assert client.ask("POST", "/api/chat", turns, Content_Type="text/plain")[0] == 415
    assert client.ask("POST", "/api/chat", b"{")[0] == 400
    assert client.ask("POST", "/api/chat", b"[1]")[0] == 400
    assert client.ask("POST", "/api/chat", b"x" * 1_048_577)[0] == 413


@pytest.mark.parametrize(
    "path",
    [
        "/static/../secret.txt",
        "/static/..%2f..%2fsecret.txt",
        "/static/app.js/../../secret.txt",
        "/static//etc/passwd",
        "/run/..",
        "/run/%2e%2e%2fsecret.txt",
        "/run//etc",
        "/rate/..%2fone",
        "/api/run/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/run/one%00",
        "http://example.invalid/",
        "*",
    ],
)
def test_no_path_leads_out(client: Client, path: str) -> None:
    status, _, body = client.ask("GET", path)
    assert status == 404
    assert b"not to be read" not in body
    assert b"root:" not in body


def test_every_answer_carries_the_policy(client: Client, server: AppServer) -> None:
    stranger = Client(server)
    for asker, path in ((client, "/"), (client, "/static/app.js"), (client, "/nothing"), (stranger, "/")):
        headers = asker.ask("GET", path)[1]
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        assert "*" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "Python" not in headers["Server"]


def test_a_fault_of_ours_is_one_sentence(
    client: Client, server: AppServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail() -> list[object]:
        raise KeyError("a secret detail \x1b[31m")

    monkeypatch.setattr(server.app.runs, "items", fail)
    for path in ("/", "/api/runs"):
        status, _, body = client.ask("GET", path)
        assert status == 500
        assert b"Traceback" not in body
        assert b"secret detail" not in body
        assert b"something went wrong" in body
    err = capfd.readouterr().err
    assert "a secret detail" in err
    assert "\x1b" not in err


def test_what_is_no_request_is_refused_with_the_policy(server: AppServer) -> None:
    for line in (b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n", b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
            connection.sendall(line)
            answer = connection.makefile("rb").read()
        assert b"Traceback" not in answer
        assert b"That did not work" in answer


def test_errors_for_scripts_are_json(client: Client) -> None:
    status, headers, body = client.ask("GET", "/api/run/nothing")
    assert (status, headers["Content-Type"]) == (404, "application/json")
    assert "no such run" in json.loads(body)["error"]


def test_head_has_no_body(client: Client) -> None:
    status, headers, body = client.ask("HEAD", "/")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) > 1000


def test_the_list_shows_what_there_is(client: Client, server: AppServer) -> None:
    runs = {run["name"]: run for run in client.json("GET", "/api/runs")["runs"]}
    assert {name: run["kind"] for name, run in runs.items()} == {"one": "audit", "pairs": "rating"}
    one = runs["one"]
    assert (one["state"], one["done"], one["total"], one["result"]) == ("finished", 8, 8, "8 of 8 hit")
    folder = Path(server.app.runs.root) / "one"
    assert one["command"] == f"backtalk audit --hit io-sample-avg-k1 --out {folder}"
    assert f'href="./run/{one["key"]}"'.encode() in client.ask("GET", "/")[2]


def test_what_has_no_result_yet_says_so_and_leads_to_what_there_is(tmp_path: Path) -> None:
    folder = tmp_path / "hard"
    folder.mkdir()
    (folder / "hardening.json").write_text(json.dumps({"model": "chitchat"}))
    finish(tmp_path / HARDENED[0])
    with served(tmp_path) as server:
        client = Client(server).enter()
        status, _, body = client.ask("GET", f"/run/{key_of('hard')}")
        assert status == 200
        assert b"has no result yet" in body
        assert f"/run/{key_of(HARDENED[0])}".encode() in body
        shutil.rmtree(folder)
        harden(folder)
        _, _, body = client.ask("GET", f"/run/{key_of('hard')}")
        assert COMPARED.replace("&", "&amp;").encode() in body
        assert body.count(b"/compare?") == 1  # a run that is not there has no link
        status, _, body = client.ask("GET", COMPARED)
        assert status == 200
        assert b"What it cost" in body
