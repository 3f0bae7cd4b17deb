"""The store in a SQLite file.

store.py     the face: every method of a store
acts.py      what is done inside of a transaction
directory.py runs, by what is known of them
grants.py    what was approved in advance
keeping.py   erasing and pruning
checking.py  whether everything is as it was written; what is kept, in numbers
copying.py   a copy of a store in use
writer.py    the one thread that writes, with group commit
settling.py  who waited for one of its threads, told a few in each turn of the event loop
schema.py    the tables and their migrations
liveness.py  whether another worker of the store is alive
place.py     the file and its name: what deletes, replaces or fills it, and who may read it
files.py     artifacts that are too large for a row
"""

from remit.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
