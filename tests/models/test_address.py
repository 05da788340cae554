"""An endpoint's name: what it says, and that no error repeats what may be a secret."""

from __future__ import annotations

import pytest

from backtalk.errors import InputError
from backtalk.models.service.endpoint import Address, parse_address


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("http://127.0.0.1:8000/v1#m", Address("http", "127.0.0.1", 8000, "/v1", "m")),
        ("https://api.example.org/v1/#org/m:8b", Address("https", "api.example.org", 443, "/v1", "org/m:8b")),
        ("http://[::1]:80#m", Address("http", "::1", 80, "", "m")),
        ("http://LOCALHOST/v1#m", Address("http", "localhost", 80, "/v1", "m")),
        (
            "http://h_1/v1#m?completions,max_tokens=40&concurrency=2,timeout_s=5",
            Address("http", "h_1", 80, "/v1", "m", "completions", 40, 2, 5),
        ),
    ],
)
def test_what_a_name_says(name: str, address: Address) -> None:
    assert parse_address(name) == address


@pytest.mark.parametrize(
    ("name", "phrase"),
    [
        ("http://h/v1", "http://HOST:PORT/v1#NAME"),
        ("http://h/v1#", "names no model"),
        ("http:///v1#m", "not an endpoint's address"),
        ("http://h h/v1#m", "not an endpoint's address"),
        ("http://h:99999/v1#m", "is invalid"),
        ("http://h:x/v1#m", "is invalid"),
        ("http://[::1/v1#m", "is invalid"),
        ("http://h/a b#m", "%20"),
        ("http://h/\r\nX: y#m", "%20"),
        ("http://user:s3cret@h/v1#m", "BACKTALK_API_KEY"),
        ("http://s3cret@h/v1#m", "BACKTALK_API_KEY"),
        ("http://h/v1?key=s3cret#m", "query before the #"),
        ("http://h/v1#m?key=s3cret", "'key'"),
        ("http://h/v1#m?completions=s3cret", "completions"),
        ("http://h/v1#m?max_token=4", "'max_tokens'"),
        ("http://h/v1#m?max_tokens=0", "from 1 to 10000"),
        ("http://h/v1#m?concurrency=257", "from 1 to 256"),
        ("http://h/v1#m?concurrency=", "from 1 to 256"),
    ],
)
def test_a_name_that_is_wrong(name: str, phrase: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_address(name)
    assert phrase in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.8.0.9", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("localhost.example.org", False),
        ("127.0.0.1.example.org", False),
    ],
)
def test_what_is_this_machine(host: str, here: bool) -> None:
    assert parse_address(f"http://{host}/v1#m").on_this_machine is here


def test_the_fingerprint_is_what_decides_the_replies() -> None:
    def print_of(settings: str) -> str:
        return parse_address(f"http://h:8000/v1#m{settings}").fingerprint

    assert print_of("") == "http://h:8000/v1#m?chat&max_tokens=100" == print_of("?concurrency=3&timeout_s=9")
    assert len({print_of(""), print_of("?completions"), print_of("?max_tokens=3")}) == 3
