"""`python -m reproduction`: commands, and what they refuse in one sentence."""

from pathlib import Path

import pytest
from tests.security.test_names import NAMES

from backtalk.registry import helps, method_config
from reproduction.__main__ import STUDIES, run_command


@pytest.mark.parametrize("name", [*STUDIES, "enumerate", "train", "train-paper", "harden"])
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        run_command([name, "--help"])
    assert left.value.code == 0
    assert "--device" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("egregious --data embedded --max-time=-1s", "max-time"),
        ("egregious --data embedded --jobs 99999999999", "jobs"),
        ("egregious", "--data"),
        ("egregius --data embedded", "egregious"),
        ("egregious --data embedded --model smollm2", "--model"),
        ("lora --model chitchat", "chitchat"),
        ("transformers --model chitchat", "chitchat"),
        ("ast --data embedded --model chitchat", "chitchat"),
        ("enumerate --length 3", "--model"),
    ],
)
def test_bad_input_is_one_sentence(
    line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(line.split()) == 2
    sentence = capsys.readouterr().err
    assert sentence.count("\n") == 1
    assert said in sentence
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("command", ["lora", "ast", "enumerate"])
def test_a_name_in_yaml_never_runs(
    command: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = "" if command == "enumerate" else "data: embedded\nsize: mini\n"
    Path("spec.yaml").write_text(f"{data}model: {name!r}\n")
    assert run_command([command, "--config", "spec.yaml"]) == 2


def test_gan_is_a_method_once_the_package_is_imported() -> None:
    assert "gan" in helps("methods")
    assert method_config("gan").name == "gan"
