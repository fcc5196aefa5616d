"""What has to be fetched, whether its servers answer, and whether the clocks agree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import quote, urlsplit

import anyio
from anyio.to_thread import run_sync

from runner.artifacts import Store
from runner.artifacts.answers import shown_url
from runner.artifacts.manifest import ArtifactFile, Origin
from runner.doctor.host import Host, Reply
from runner.doctor.question import Question
from runner.doctor.report import Finding, failed, ok, skipped, warning
from runner.engines.registry import kind_of
from runner.engines.vllm.checkpoint import check_checkpoint, is_hub_id
from runner.errors import UserError

ARTIFACTS, CLOCK, SERVER = "artifacts", "clock", "model server"
FIRST_YEAR, LAST_YEAR = 2025, 2100
"""A clock outside of these was never set: it would fail every certificate, and date every result wrong."""
SKEW_S = 300.0
OFFLINE_REMEDY = "unset HF_HUB_OFFLINE, or bring the files: recount fetch PROFILE --from DIR"
UNREACHABLE_REMEDY = (
    "check the network and HTTPS_PROXY; HF_ENDPOINT and RECOUNT_GITHUB_RAW name mirrors;"
    " without any network: recount fetch PROFILE --from DIR, or --no-fetch where --data and --pack name files"
)
NO_HUB_REMEDY = (
    "check the network and HTTPS_PROXY; HF_ENDPOINT names a mirror; without any network: --model DIRECTORY of"
    " one that is here (for compose RECOUNT_MODELS=DIRECTORY_ABOVE RECOUNT_MODEL=/models/NAME)"
)
_CLIENT_ERROR, _SERVER_ERROR = 400, 500
_FORBIDDEN, _TOO_MANY = (401, 403), 429


class Servers:
    """The servers of a run, each asked once, whoever wants to know."""

    def __init__(self, question: Question, host: Host) -> None:
        """Nothing is asked yet."""
        self._question, self._host = question, host
        self._replies: dict[str, Reply] = {}
        self._asking: dict[str, anyio.Lock] = {}

    @property
    def addresses(self) -> tuple[str, ...]:
        """The pages that stand for the servers; none where the run is offline."""
        fetching, manifest, vllm = self._question.fetching, self._question.manifest, self._question.vllm
        served = tuple(_asked_for(self._question).values())
        if fetching.offline:
            return served
        hub = [self.hub_address(vllm.model)] if vllm is not None and is_hub_id(vllm.model) else []
        return (
            *served,
            *hub,
            *([] if manifest is None else [self.address_of(manifest.files, Origin.GITHUB)]),
        )

    def hub_address(self, repository: str) -> str:
        """Return a page of the hub that is there if the repository is, and may be read."""
        vllm = self._question.vllm
        revision = (vllm and vllm.revision) or "main"
        return f"{self._question.fetching.hub}/{repository}/resolve/{quote(revision)}/config.json"

    def address_of(self, files: tuple[ArtifactFile, ...], origin: Origin) -> str:
        """Return where the first of the files from there lies."""
        manifest = self._question.manifest
        file = next((one for one in files if one.origin is origin), None)
        if manifest is None or file is None:
            raise ValueError(f"no file comes from {origin.value}")
        if origin is Origin.HUB:
            return self.hub_address(manifest.hub.repository)
        github = manifest.github
        return f"{self._question.fetching.github_raw}/{github.repository}/{github.commit}/{quote(file.path)}"

    async def ask(self, address: str) -> Reply:
        """Return a server's reply."""
        # An address is asked once; others meanwhile.
        async with self._asking.setdefault(address, anyio.Lock()):
            if address not in self._replies:
                token = self._question.fetching.token
                of_hub = address.startswith(self._question.fetching.hub)
                headers = {"Authorization": f"Bearer {token}"} if token is not None and of_hub else {}
                self._replies[address] = await self._host.ask(address, headers)
            return self._replies[address]

    async def ask_all(self, addresses: Sequence[str]) -> dict[str, Reply]:
        """Return the replies of several, asked at once."""
        async with anyio.create_task_group() as tasks:
            for address in addresses:
                tasks.start_soon(self.ask, address)
        return {address: await self.ask(address) for address in addresses}


@dataclass(frozen=True)
class Stock:
    """Which of a manifest's files are here, by their paths."""

    known: tuple[ArtifactFile, ...]
    """Hashed at a fetch, and not changed since."""
    unhashed: tuple[ArtifactFile, ...]
    missing: tuple[ArtifactFile, ...]
    unverified: tuple[str, ...] = ()


def take_stock(store: Store, question: Question) -> Stock:
    """Look which files are here; reads no more than their sizes and times."""
    known, unhashed, missing = [], [], []
    for file in store.manifest.files:
        record, name = store.record_of(file), store.name_of(file)
        if file.group not in question.groups or file.name in question.data:
            continue
        if record.known(name) is not None:
            known.append(file)
        elif store.path_of(file).is_file():
            unhashed.append(file)
        elif file.required:
            missing.append(file)
    return Stock(tuple(known), tuple(unhashed), tuple(missing), store.unverified)


async def examine_artifacts(question: Question, servers: Servers) -> Finding:
    """Say what is here, and whether the rest can be had."""
    vllm, store = question.vllm, question.store
    if vllm is not None and not is_hub_id(vllm.model):
        try:
            await run_sync(check_checkpoint, Path(vllm.model), abandon_on_cancel=True)
        except UserError as error:
            return failed(error.message, error.remedy)
    if store is not None:
        return await _examine_store(question, store, servers)
    if vllm is None:
        return skipped("the profile has nothing to fetch")
    if not is_hub_id(vllm.model):
        return ok(f"the checkpoint is here: {vllm.model}")
    if _is_cached(vllm.model, question.fetching.hub_cache):
        return ok(f"{vllm.model} is in the hub's cache, {question.fetching.hub_cache}")
    if question.fetching.offline:
        return failed(f"{vllm.model} is not here, and HF_HUB_OFFLINE forbids to fetch it", OFFLINE_REMEDY)
    address = servers.hub_address(vllm.model)
    finding = judge_fetch(f"{vllm.model} has to be fetched", {address: await servers.ask(address)})
    # No manifest: `recount fetch` has nothing to do with this model, with or without --from.
    return replace(finding, remedy=NO_HUB_REMEDY) if finding.remedy == UNREACHABLE_REMEDY else finding


async def _examine_store(question: Question, store: Store, servers: Servers) -> Finding:
    try:
        stock = await run_sync(take_stock, store, question, abandon_on_cancel=True)
    except UserError as error:
        return failed(error.message, error.remedy)
    here = f"{len(stock.known)} files are here and verified"
    if stock.unhashed:
        here += f", {len(stock.unhashed)} are not hashed yet (recount fetch does)"
    if stock.missing:
        here += f", {len(stock.missing)} have to be fetched"
        if question.source is not None:
            return ok(f"{here}, from {question.source}")
        if question.fetching.offline:
            names = ", ".join(one.path.rpartition("/")[2] for one in stock.missing[:3])
            return failed(f"{here} ({names}), and HF_HUB_OFFLINE forbids it", OFFLINE_REMEDY)
        origins = {one.origin for one in stock.missing}
        addresses = [servers.address_of(stock.missing, origin) for origin in Origin if origin in origins]
        finding = judge_fetch(here, await servers.ask_all(addresses))
    else:
        finding = ok(here)
    if stock.unverified and finding.remedy is None:
        return warning(
            f"{finding.detail}; let pass unverified: {', '.join(stock.unverified)}",
            "fetch them again without --allow-unverified: a run with these is no reproduction",
        )
    return finding


def judge_fetch(said: str, replies: Mapping[str, Reply]) -> Finding:
    """Judge whether what is missing can be fetched. Pure."""
    for address, reply in replies.items():
        host = urlsplit(address).hostname or shown_url(address)
        if reply.status is None:
            return failed(f"{said}, and {host} does not answer: {reply.problem}", UNREACHABLE_REMEDY)
        if reply.status in _FORBIDDEN:
            return failed(
                f"{said}, and {host} refuses it (HTTP {reply.status})", "set HF_TOKEN to a token that may"
            )
        if reply.status == _TOO_MANY or reply.status >= _SERVER_ERROR:
            return warning(
                f"{said}, and {host} answers HTTP {reply.status}", "it will be tried again; wait a little"
            )
        if reply.status >= _CLIENT_ERROR:
            return failed(
                f"{said}, and {host} does not have it (HTTP {reply.status}): {shown_url(address)}",
                "check repository and revision, or name another with --model",
            )
    hosts = " and ".join(dict.fromkeys(urlsplit(one).hostname or one for one in replies))
    return ok(f"{said}; {hosts} answer{'' if ' and ' in hosts else 's'}")


def _is_cached(model: str, hub_cache: Path | None) -> bool:
    if hub_cache is None:
        return False
    snapshots = hub_cache / f"models--{model.replace('/', '--')}" / "snapshots"
    return any(snapshots.glob("*/config.json"))


async def examine_clock(servers: Servers, host: Host) -> Finding:
    """Hold this clock against sense and against a server's; never asks one where the run is offline."""
    if not servers.addresses:
        return judge_clock(host.now(), None, "")
    address = servers.addresses[0]
    reply = await servers.ask(address)
    return judge_clock(host.now(), reply.served_at, urlsplit(address).hostname or shown_url(address))


def judge_clock(now: float, served_at: float | None, who: str) -> Finding:
    """Judge a clock by its year, and by a server's where there is one. Pure."""
    here = datetime.fromtimestamp(now, timezone.utc)
    said = f"{here:%Y-%m-%d %H:%M:%S} UTC"
    remedy = "set the clock (timedatectl set-ntp true): certificates and dates of results depend on it"
    if not FIRST_YEAR <= here.year < LAST_YEAR:
        return failed(said, remedy)
    if served_at is None:
        return ok(f"{said}; no server was asked" if not who else f"{said}; {who} told no time")
    skew = now - served_at
    if abs(skew) > SKEW_S:
        return warning(f"{said}, {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} {who}", remedy)
    return ok(f"{said}, as {who} has it")


def _asked_for(question: Question) -> Mapping[str, str]:
    """Return the servers of the profile's engine, each with the page that shows it is there."""
    return kind_of(question.profile.engine).servers(question.profile.engine)


async def examine_server(question: Question, servers: Servers) -> Finding:
    """Ask the servers of a model that is served elsewhere for a sign of life."""
    asked_for = _asked_for(question)
    if not asked_for:
        return skipped("the profile serves its model itself")
    said = []
    for url, page in asked_for.items():
        reply = await servers.ask(page)
        if reply.status is None:
            return failed(
                f"{url} does not answer: {reply.problem}",
                "start the server, check --base-url, and that this machine may reach it",
            )
        said.append(f"{url} answers (HTTP {reply.status})")
    return ok(", ".join(said))
