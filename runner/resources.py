"""Files that come with the package: profiles, protocol packs, the demo's data set."""

from pathlib import Path

_PACKAGE = Path(__file__).parent
_DATA = _PACKAGE / "data"
_CHECKOUT = _PACKAGE.parent
PROFILE_DIR = _DATA / "profiles"
PROTOCOL_DIR = _DATA / "protocols"


def bundled_dataset(name: str) -> Path:
    """Return where a data set of ours lies: beside the package in a checkout, inside it once installed."""
    checkout = _CHECKOUT / "datasets" / name
    return checkout if checkout.exists() else _DATA / "datasets" / name


def bundled_profiles() -> list[str]:
    """Return the names of the profiles that come with the package, sorted."""
    return sorted(path.stem for path in PROFILE_DIR.glob("*.toml"))
