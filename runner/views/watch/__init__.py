"""The interactive viewer of a running or finished run, over its journal alone.

It reads and nothing else: no lock, no write, no question to engines or sandboxes. What it keeps in memory is
a row a trajectory and where its turns lie in the journal, so that it stays small however long the turns are.
"""

from runner.views.watch.app import WatchApp
from runner.views.watch.find import find_run

__all__ = ["WatchApp", "find_run"]
