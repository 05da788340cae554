"""A run folder: spec.yaml for people, run.sqlite with all results, log.txt, and the summary and pages.

The database is built under another name and renamed when whole, so a folder either holds a complete run or
none. A block is one transaction: a kill loses at most the block in flight. Commits are some ten seconds
apart, so each may wait for the disk (synchronous=FULL): a finished block outlives a power cut too. While a
run is written its log is a WAL, so that readers never wait; a closed run is one plain file again, which can
be copied and read from a disk that can't be written.
"""

from backtalk.store.database import find_run, identity_of, latest_run, new_run_folder
from backtalk.store.run import JUDGE, Run

__all__ = ["JUDGE", "Run", "find_run", "identity_of", "latest_run", "new_run_folder"]
