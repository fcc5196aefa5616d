"""The chain through a journal: each line carries a hash of itself and of the line before.

Whoever changes, drops, adds or moves a line breaks it there, and the place can be named. It is no signature:
whoever writes the whole journal anew, and what is derived from it, writes a new chain. The last hash commits
to all that stands before it; told to somebody else, it shows also that.
"""

import hashlib
import re

CHAIN_KEY = "chain"
_SEAL = re.compile(rb',"chain":"([0-9a-f]{64})"\}\n\Z')
SEAL_BYTES = len(',"chain":"' + "0" * 64 + '"}\n')


def seal(before: str, body: str) -> tuple[str, str]:
    """Return the hash of a line whose object is `body`, behind the one with hash `before`, and the line."""
    chain = _chain(before, body.encode("ascii"))
    return chain, f'{body[:-1]},"{CHAIN_KEY}":"{chain}"}}\n'


def chain_of(raw: bytes) -> str:
    """Return the hash that a line (or its last `SEAL_BYTES`) carries; empty where it carries none."""
    found = _SEAL.search(raw)
    return "" if found is None else found.group(1).decode("ascii")


def follows(before: str, raw: bytes) -> bool:
    """Say whether a line that carries a hash is the one that was written behind the hash `before`."""
    return chain_of(raw) == _chain(before, raw[:-SEAL_BYTES] + b"}")


def _chain(before: str, body: bytes) -> str:
    return hashlib.sha256(before.encode("ascii") + body).hexdigest()
