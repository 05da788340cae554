"""Studies: papers' tables and figures beside our numbers. Importing the package registers what only they
need: the method `gan` of harden and the corpus formats of the papers."""

from backtalk import registry
from backtalk.data.corpora import FORMATS
from reproduction.data.formats import PAPER_FORMATS

registry.add("methods", "gan", "reproduction.negative.gan:Gan")
FORMATS.update(PAPER_FORMATS)
