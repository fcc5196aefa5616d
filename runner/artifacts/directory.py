"""Files for a machine without network: a directory laid out as the two repositories are (`--from`)."""

from pathlib import Path

from runner.artifacts.manifest import ArtifactFile, Manifest, Origin
from runner.errors import UserError
from runner.paths import is_file


class LocalDirectory:
    """Finds the manifest's files below a directory somebody brought.

    The directory may be the model repository, a checkout of the code repository, or hold one or both under
    their names (also as `owner/name`, as the code host's archives name themselves, or as a hub cache).
    """

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        """Raises `UserError` where there is no such directory, or none that can be read."""
        if not is_directory(directory):
            raise UserError(
                f"--from {directory}: no such directory", remedy="name the directory with the files"
            )
        try:
            next(directory.iterdir(), None)
        except OSError as error:
            raise _unreadable(directory, directory, error) from error
        self.directory = directory
        self._manifest = manifest
        hub, code = manifest.hub.repository, manifest.github.repository
        self._roots = {
            Origin.HUB: (*self._named(hub), *self._snapshots(hub)),
            Origin.GITHUB: (*self._named(code), directory / f"{_name(code)}-{manifest.github.commit}"),
        }

    def find(self, file: ArtifactFile) -> Path | None:
        """Return where a file lies, or None."""
        return next((path for root in self._roots[file.origin] if is_file(path := root / file.path)), None)

    def hub_listing(self) -> dict[str, object]:
        """Return the names of the files beside the checkpoint's configuration."""
        for root in self._roots[Origin.HUB]:
            if is_file(root / "config.json"):
                try:
                    return {path.name: None for path in root.iterdir() if is_file(path)}
                except OSError as error:
                    raise _unreadable(self.directory, root, error) from error
        return {}

    def missing(self, file: ArtifactFile) -> UserError:
        """Word that a required file is not here, and where it is looked for."""
        looked = "\n  ".join(str(root / file.path) for root in self._roots[file.origin][:3])
        return UserError(
            f"--from {self.directory}: {file.path} is not there. Looked for:\n  {looked}",
            remedy="lay the directory out as the repositories are (docs/artifacts.md)",
        )

    def _named(self, repository: str) -> tuple[Path, ...]:
        return (self.directory, self.directory / _name(repository), self.directory / repository)

    def _snapshots(self, repository: str) -> tuple[Path, ...]:
        cached = f"models--{repository.replace('/', '--')}"
        roots = [self.directory / cached, self.directory / "hub" / cached]
        try:
            return tuple(one for root in roots for one in sorted((root / "snapshots").glob("*")))
        except OSError as error:
            raise _unreadable(self.directory, self.directory, error) from error


def is_directory(path: Path) -> bool:
    """Say whether there is such a directory; one that cannot be looked at is none."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _unreadable(named: Path, path: Path, error: OSError) -> UserError:
    return UserError(
        f"--from {named}: {path} cannot be read: {error.strerror or error}",
        remedy="make it readable for this user, or name another directory",
    )


def _name(repository: str) -> str:
    return repository.rpartition("/")[2]
