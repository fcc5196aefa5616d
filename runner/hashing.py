"""SHA-256 of files and texts: what two runs compare themselves by."""

import hashlib
from pathlib import Path

_BLOCK_BYTES = 1 << 20
_ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = ("runner", "sandbox")
_CODE_SUFFIXES = frozenset({".py", ".c", ".h"})


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


def code_sha256(root: Path = _ROOT) -> str:
    """Return one hex digest of all our own Python and C files, by path and content.

    It names the code where a version does not: the same in a checkout, in an installed package and in an
    image, and another one after any change.
    """
    files = (
        path
        for package in _PACKAGES
        for path in (root / package).rglob("*")
        if path.suffix in _CODE_SUFFIXES and path.is_file()
    )
    named = sorted((path.relative_to(root).as_posix(), path) for path in files)
    return sha256_text("".join(f"{sha256_file(path)}  {name}\n" for name, path in named))
