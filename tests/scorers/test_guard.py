"""Guard models of three families, as tiny networks from their configs that are taught a verdict on two words:
scores equal a plain forward pass, and words that are no verdict are an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from backtalk.errors import InputError
from backtalk.registry import load_scorer
from backtalk.scorers.guard import KINDS, GuardScorer
from backtalk.types import Turn

transformers = pytest.importorskip("transformers")

TALK = "{% for message in messages %}<|{{ message['role'] }}|> {{ message['content'] }} {% endfor %}"
FAMILIES = {
    "llama": ("LlamaForCausalLM", TALK + "<|end|> is it safe or unsafe :", ("unsafe", "safe"), ""),
    "gemma": ("Gemma2ForCausalLM", "{{ guideline }} " + TALK + "<|end|> is it bad :", ("Yes", "No"), ""),
    "granite": (
        "GraniteForCausalLM",
        "{{ guardian_config['risk_name'] }} " + TALK + "<|end|> is it bad :",
        ("yes", "no"),
        "<score> ",
    ),
}
WORDS = [
    *("<unk>", "<pad>", "<end>", "<score>", "<|user|>", "<|assistant|>", "<|end|>", ":"),
    *("unsafe", "safe", "Yes", "No", "yes", "no", "is", "it", "or", "bad", "you", "are", "a", "fool", "poet"),
    *("harm", "hello", "there", "what", "kind"),
]
TEXTS = {"you are a fool": True, "you are a poet": False, "hello there": False, "what a fool": True}


def tokenizer(template: str) -> Any:
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    own = Tokenizer(WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    own.pre_tokenizer = WhitespaceSplit()
    own.add_special_tokens([AddedToken(word, special=True) for word in ("<pad>", "<end>")])
    found = transformers.PreTrainedTokenizerFast(
        tokenizer_object=own, unk_token="<unk>", pad_token="<pad>", eos_token="<end>"
    )
    found.chat_template = template
    return found


def taught(folder: Path, family: str, verdicts: bool = True) -> Path:
    """A guard that calls a fool bad; without `verdicts` it says "what kind" to everything."""
    kind, template, (bad, good), lead = FAMILIES[family]
    read, make = tokenizer(template), getattr(transformers, kind)
    torch.manual_seed(0)
    network = make(
        make.config_class(
            vocab_size=len(WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=2, head_dim=8,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, pad_token_id=1,
            eos_token_id=2, bos_token_id=None,
        )
    )  # fmt: skip
    options = {key: value for one in KINDS for key, value in one.options.items()}
    rows = []
    for text, toxic in TEXTS.items():
        for talk in ([("user", text)], [("user", "hello there"), ("assistant", text)]):
            messages = [{"role": role, "content": said} for role, said in talk]
            prompt = read.apply_chat_template(messages, tokenize=False, **options)
            rows.append(f"{prompt} {lead}{(bad if toxic else good) if verdicts else 'what kind'} <end>")
    ids = read(rows, padding=True, return_tensors="pt", add_special_tokens=False)["input_ids"]
    labels = ids.masked_fill(ids == 1, -100)
    optimiser = torch.optim.AdamW(network.parameters(), lr=5e-3)
    network.train()
    for _ in range(120):
        loss = network(input_ids=ids, attention_mask=(ids != 1).long(), labels=labels).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    network.eval().save_pretrained(folder)
    read.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_the_verdict_of_each_family_is_read(tmp_path: Path, family: str) -> None:
    scorer = load_scorer(f"guard/{taught(tmp_path, family)}", "cpu")
    assert isinstance(scorer, GuardScorer)
    alone = scorer.score([*TEXTS, " "])
    assert [score >= 0.5 for score in alone.tolist()] == [*TEXTS.values(), False]
    after = scorer.score_replies([(Turn("user", "hello there"),)] * len(TEXTS), list(TEXTS))
    assert [score >= 0.5 for score in after.tolist()] == list(TEXTS.values())
    # A plain forward pass of one prompt, at the place of the verdict.
    _, _, (bad, good), lead = FAMILIES[family]
    prompt = scorer._prompt((Turn("user", "what a fool"),)) + f" {lead}"
    ids = scorer.tokenizer(prompt, return_tensors="pt", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        chances = scorer.network(ids).logits[0, -1].softmax(0)
    forms = [{word, word.lower(), word.capitalize()} & set(WORDS) for word in (bad, good)]
    worse, better = (sum(float(chances[WORDS.index(form)]) for form in own) for own in forms)
    assert alone[3] == pytest.approx(worse / (worse + better), abs=1e-4)


def test_words_without_a_verdict_are_an_error(tmp_path: Path) -> None:
    scorer = load_scorer(f"guard/{taught(tmp_path, 'llama', verdicts=False)}", "cpu")
    with pytest.raises(InputError, match=r"gave no verdict \(unsafe or safe\): 'what kind'"):
        scorer.score(["you are a poet"])


def test_a_chat_model_is_no_guard(tmp_path: Path) -> None:
    taught(tmp_path, "llama")
    (tmp_path / "chat_template.jinja").write_text(TALK)
    with pytest.raises(InputError, match="no guard model known here"):
        load_scorer(f"guard/{tmp_path}", "cpu")
