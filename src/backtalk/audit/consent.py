"""The user's consent to requests that leave this machine, and to code that comes with a model."""

from collections.abc import Callable
from dataclasses import dataclass

from backtalk.errors import InputError
from backtalk.models.service.endpoint import EndpointModel
from backtalk.protocols import Scorer, TextModel
from backtalk.registry import is_exact, judge_name, load_reward, load_scorer
from backtalk.terminal import printable


@dataclass(frozen=True)
class Consent:
    """What the user agreed to, on the command line or in a call."""

    insecure: bool = False  # plain http may leave this machine
    yes: bool = False  # requests may leave this machine, without a question
    trusted: tuple[str, ...] = ()
    """Models whose own code may run: their names were typed beside --trust-remote-code."""
    ask: Callable[[str], bool] | None = None  # asks the user a yes-no question; None: nobody can be asked


NO_CONSENT = Consent()


def agree(model: TextModel | Scorer, requests: str, consent: Consent) -> None:
    """Asks once before a remote endpoint is used; others need no consent. `requests` says how many it
    will get, as in "at most 20,000 requests"."""
    if not isinstance(model, EndpointModel) or model.agreed or model.address.on_this_machine:
        return
    where = printable(model.address.origin)
    if not model.address.secure and not consent.insecure:
        why = f"{where} is plain http beyond this machine, which others can read on the way"
        raise InputError(f"{why}; use https, or add --insecure")
    what = f"{requests} to {where}" + (f", with the key of {model.key_from}" if model.key else "")
    if not consent.yes:
        if consent.ask is None:
            raise InputError(f"this would send {what}; add --yes to agree")
        if not consent.ask(f"This will send {what}. Go on?"):
            raise InputError("nothing was sent")
    model.agreed = True


def agreed_reward(name: str, device: str, consent: Consent) -> Scorer:
    """The scorer that a search or a training aims by."""
    reward = load_reward(name, device)
    agree(reward, "a request for each text", consent)
    return reward


def agreed_judge(name: str, device: str, consent: Consent, reward: Scorer | None = None) -> Scorer:
    """The scorer that judges, the default one if none is named. It is never the reward, unless it only looks
    for given texts."""
    judge = load_scorer(name or judge_name(reward.name if reward else ""), device)
    if reward is not None and judge.fingerprint == reward.fingerprint and not is_exact(judge.name):
        why = f"{judge.name} is the reward, so it can't judge what was found by it"
        raise InputError(f"{why}; name another --scorer, or another --reward")
    agree(judge, "a request for each text", consent)
    return judge
