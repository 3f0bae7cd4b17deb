"""The store in a SQLite file.

store.py     the face: every method of `Journal`
acts.py      what is done inside of a transaction
writer.py    the one thread that writes, with group commit
schema.py    the tables and their migrations
liveness.py  whether another worker of the store is alive
files.py     artifacts that are too large for a row
"""

from remit.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
