"""The interactive viewer of a running or finished run, over its journal alone.

It reads and nothing else: no lock, no write, no question to engines or sandboxes. What it keeps in memory is
a row a trajectory and where its turns lie in the journal, so that it stays small however long the turns are.

The viewer is `app.WatchApp`; `find` says which run is meant. They are not imported here: a toolkit comes with
the first, which takes every command a second that only wants the second.
"""
