"""Studies: papers' tables and figures beside our numbers. Importing the package registers what only they
need: the method `gan` of harden and the corpus formats of the papers."""

from backtalk.data.corpora import FORMATS
from backtalk.registry import CONFIGS, Entry
from reproduction.data.formats import PAPER_FORMATS

CONFIGS["methods"]["gan"] = Entry("reproduction.negative.gan:Gan", "of reproduction")
FORMATS.update(PAPER_FORMATS)
