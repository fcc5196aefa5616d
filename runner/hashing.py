"""SHA-256 of files and texts: what two runs compare themselves by."""

import hashlib
from pathlib import Path

_BLOCK_BYTES = 1 << 20


def sha256_file(path: Path) -> str:
    """Return the hex digest of a file's bytes, read in blocks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def sha256_text(text: str) -> str:
    """Return the hex digest of a text's UTF-8 bytes (lone surrogates as they are)."""
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()
